// GEMV policy: activations in 8 bits, weights as packed bytes, DP4A. A slice costs 8 DP4A per row of X whatever the weight type.
//   y = sum over slices of xs * (scale * (sum w*x - bias * sum x) + offset * sum x)
#pragma once

#include "families/activations.cuh"
#include "families/gemv.cuh"

namespace quern {

template <class D, class X, GemvGeometry G>
struct GemvQ8 {
  QuantizedActivations layout;
  const u8* store;

  QUERN_FN GemvQ8(const KernelArgs& args, int slices, u8* shared) : layout{G.m, slices} {
    store = static_cast<const u8*>(args.workspace);
    if constexpr (!G.fuse) ptx::wait_previous();
    if constexpr (G.stage) {
      if constexpr (G.fuse) {
        quantize_rows<D, X>(shared, layout, args, ptx::thread_x(), G.threads());
      } else {
        for (int i = ptx::thread_x(); i < static_cast<int>(layout.bytes() / 8); i += G.threads())
          reinterpret_cast<u32x2*>(shared)[i] = ptx::load_cached(reinterpret_cast<const u32x2*>(store) + i);
      }
      ptx::barrier();
      store = shared;
    }
  }

  // `sum` plus the products of four quads.
  static QUERN_FN i32 dot4(const u32 (&w)[8], int first, u32x4 x, i32 sum) {
    if constexpr (D::kSigned) {
      sum = ptx::dp4a_ss(w[first], x.x, sum), sum = ptx::dp4a_ss(w[first + 1], x.y, sum);
      sum = ptx::dp4a_ss(w[first + 2], x.z, sum), sum = ptx::dp4a_ss(w[first + 3], x.w, sum);
    } else {
      sum = ptx::dp4a_us(w[first], x.x, sum), sum = ptx::dp4a_us(w[first + 1], x.y, sum);
      sum = ptx::dp4a_us(w[first + 2], x.z, sum), sum = ptx::dp4a_us(w[first + 3], x.w, sum);
    }
    return sum;
  }

  template <class Slices>
  QUERN_FN void accumulate(f32 (&sum)[G.rows][G.m], const Slices& w, int u, int s) const {
    u32 quads[G.rows][8];
    f32 scale[G.rows][D::kScales], offset[G.rows][D::kScales];
    QUERN_UNROLL
    for (int r = 0; r < G.rows; ++r) {
      QUERN_UNROLL
      for (int q = 0; q < 8; ++q) quads[r][q] = D::quad(w[r][u], q);
      QUERN_UNROLL
      for (int g = 0; g < D::kScales; ++g) scale[r][g] = D::scale(w[r][u], g), offset[r][g] = D::offset(w[r][u], g);
    }
    QUERN_UNROLL
    for (int m = 0; m < G.m; ++m) {
      int group = m * static_cast<int>(layout.slices) + s;
      u32x4 x0 = ptx::load_cached(reinterpret_cast<const u32x4*>(store + layout.half(0)) + group);
      u32x4 x1 = ptx::load_cached(reinterpret_cast<const u32x4*>(store + layout.half(1)) + group);
      u32x2 meta = ptx::load_cached(reinterpret_cast<const u32x2*>(store + layout.meta()) + group);
      f32 xs = ptx::float_from_bits(meta.x);
      f32 sum0 = f16_bits_to_f32(meta.y & 0xffffu), sum1 = f16_bits_to_f32(meta.y >> 16);
      f32 bias = static_cast<f32>(D::kBias);
      QUERN_UNROLL
      for (int r = 0; r < G.rows; ++r) {
        f32 v;
        if constexpr (D::kScales == 1) {
          f32 dot = sum_to_f32(dot4(quads[r], 4, x1, dot4(quads[r], 0, x0, kIntegerZero)));
          if constexpr (D::kBias != 0) dot = ptx::fma(-bias, sum0 + sum1, dot);
          v = ptx::mul(scale[r][0], dot);
          if constexpr (D::kOffset) v = ptx::fma(offset[r][0], sum0 + sum1, v);
        } else {
          f32 dot0 = sum_to_f32(dot4(quads[r], 0, x0, kIntegerZero)), dot1 = sum_to_f32(dot4(quads[r], 4, x1, kIntegerZero));
          if constexpr (D::kBias != 0) dot0 = ptx::fma(-bias, sum0, dot0), dot1 = ptx::fma(-bias, sum1, dot1);
          v = ptx::fma(scale[r][1], dot1, ptx::mul(scale[r][0], dot0));
          if constexpr (D::kOffset) v = ptx::fma(offset[r][0], sum0, ptx::fma(offset[r][1], sum1, v));
        }
        sum[r][m] = ptx::fma(xs, v, sum[r][m]);
      }
    }
  }
};

}  // namespace quern

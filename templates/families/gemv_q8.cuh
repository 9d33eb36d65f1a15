// GEMV policy: activations in 8 bits, weights as packed bytes, DP4A. A slice costs 8 DP4A per row of X whatever the weight type.
//   y = sum over slices of xs * (scale * (sum w*x - bias * sum x) + offset * sum x)
#pragma once

#include "families/activations.cuh"
#include "families/gemv.cuh"

namespace quern {

template <class D, class X, GemvGeometry G>
struct GemvQ8 {
  static constexpr QuantizedActivations layout{G.m, G.k / kSliceWeights};
  const u8* store;

  QUERN_FN GemvQ8(const KernelArgs& args, u8* shared) {
    store = static_cast<const u8*>(args.workspace);
    if constexpr (!G.fuse) ptx::wait_previous(), ptx::allow_next();
    if constexpr (G.stage) {
      if constexpr (G.fuse) {
        for (int m = 0; m < G.m; ++m) quantize_row<D, X>(shared, layout, args, m, ptx::thread_x(), G.threads());
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

  // Whether scales span all of f32 and come in two factors.
  static constexpr bool kWideScale = requires(typename D::Slice slice) { D::outer_scale(slice); };

  // Products of the slice's 32 weights and quants, biases removed and scales applied: what one quant step of the activations is worth.
  struct Scales {
    u32 packed;
    f32 scale[2], offset[2];
    f32 outer = 1;  // multiplies the activations' scale

    QUERN_FN explicit Scales(const typename D::Slice& slice) {
      if constexpr (D::kSuper) {
        packed = D::packed_scales(slice);
        scale[0] = D::super_scale(slice), offset[0] = D::kOffset ? -D::super_offset(slice) : 0.0f;
      } else if constexpr (kWideScale) {
        scale[0] = D::inner_scale(slice), outer = D::outer_scale(slice);
      } else {
        QUERN_UNROLL
        for (int g = 0; g < D::kScales; ++g) scale[g] = D::scale(slice, g), offset[g] = D::offset(slice, g);
      }
    }
  };

  // -kBias for half 0, half 1 or both, as the bytes of a two-way dot product with the pair of sums.
  static constexpr u32 bias_bytes(bool first, bool second) {
    u32 bias = static_cast<u32>(-D::kBias) & 0xffu;
    return (first ? bias : 0u) | (second ? bias << 8 : 0u);
  }

  static QUERN_FN f32 product(const u32 (&quads)[8], const Scales& w, u32x4 x0, u32x4 x1, u32 sums) {
    if constexpr (D::kScales == 1) {
      i32 dot = dot4(quads, 4, x1, dot4(quads, 0, x0, kIntegerZero));
      if constexpr (D::kBias != 0) dot = ptx::dp2a_lo_ss(sums, bias_bytes(true, true), dot);
      f32 v = ptx::mul(w.scale[0], sum_to_f32(dot));
      if constexpr (D::kOffset) v = ptx::fma(w.offset[0], sum_to_f32(ptx::dp2a_lo_ss(sums, 0x0101u, kIntegerZero)), v);
      return v;
    } else {
      constexpr i32 kStart = D::kSuper ? 0 : kIntegerZero;
      i32 dot0 = dot4(quads, 0, x0, kStart), dot1 = dot4(quads, 4, x1, kStart);
      if constexpr (D::kBias != 0)
        dot0 = ptx::dp2a_lo_ss(sums, bias_bytes(true, false), dot0), dot1 = ptx::dp2a_lo_ss(sums, bias_bytes(false, true), dot1);
      if constexpr (D::kSuper) {
        f32 total;
        if constexpr (D::kDotsFit16)
          total = sum_to_f32(ptx::dp2a_lo_ss(ptx::prmt(static_cast<u32>(dot0), static_cast<u32>(dot1), 0x5410u), w.packed, kIntegerZero));
        else
          total = static_cast<f32>(dot0 * static_cast<i8>(w.packed) + dot1 * static_cast<i8>(w.packed >> 8));
        f32 v = ptx::mul(w.scale[0], total);
        if constexpr (D::kOffset) v = ptx::fma(w.offset[0], sum_to_f32(ptx::dp2a_hi_su(sums, w.packed, kIntegerZero)), v);
        return v;
      } else {
        f32 v = ptx::fma(w.scale[1], sum_to_f32(dot1), ptx::mul(w.scale[0], sum_to_f32(dot0)));
        if constexpr (D::kOffset) {
          v = ptx::fma(w.offset[0], sum_to_f32(ptx::dp2a_lo_ss(sums, 0x0001u, kIntegerZero)), v);
          v = ptx::fma(w.offset[1], sum_to_f32(ptx::dp2a_lo_ss(sums, 0x0100u, kIntegerZero)), v);
        }
        return v;
      }
    }
  }

  template <class Slices>
  QUERN_FN void accumulate(f32 (&sum)[G.rows][G.m], const Slices& w, int u, int s) const {
    QUERN_UNROLL
    for (int m = 0; m < G.m; ++m) {
      int group = m * static_cast<int>(layout.slices) + s;
      u32x4 x0 = ptx::load_cached(reinterpret_cast<const u32x4*>(store + layout.half(0)) + group);
      u32x4 x1 = ptx::load_cached(reinterpret_cast<const u32x4*>(store + layout.half(1)) + group);
      u32x2 meta = ptx::load_cached(reinterpret_cast<const u32x2*>(store + layout.meta()) + group);
      QUERN_UNROLL
      for (int r = 0; r < G.rows; ++r) {
        u32 quads[8];
        QUERN_UNROLL
        for (int q = 0; q < 8; ++q) quads[q] = D::quad(w[r][u], q);
        Scales scales(w[r][u]);
        f32 activation = ptx::float_from_bits(meta.x);
        if constexpr (kWideScale) activation = ptx::mul(activation, scales.outer);
        sum[r][m] = ptx::fma(activation, product(quads, scales, x0, x1, meta.y), sum[r][m]);
      }
    }
  }
};

}  // namespace quern

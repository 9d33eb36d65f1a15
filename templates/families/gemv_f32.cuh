// GEMV policy: activations and weights as f32, fused multiply-add. For dense weights, and where 8-bit activations are too coarse.
#pragma once

#include "families/activations.cuh"
#include "families/gemv.cuh"

namespace quern {

template <class D, class X, GemvGeometry G>
struct GemvF32 {
  static constexpr int slices = G.k / kSliceWeights;
  const u8* shared;
  const X* x;
  i64 ldx;
  bool wide;

  // Staged as [m][quad][slice][4 f32]: neighbouring lanes read neighbouring 16 bytes.
  QUERN_FN GemvF32(const KernelArgs& args, u8* shared_memory)
      : shared(shared_memory), x(static_cast<const X*>(args.x)), ldx(args.ldx), wide(rows_are_wide<X>(args.x, args.ldx)) {
    if constexpr (G.stage) {
      for (int i = ptx::thread_x(); i < G.m * 8 * slices; i += G.threads()) {
        int m = i / (8 * slices), s = i / 8 % slices, q = i % 8;
        f32 v[4];
        load_quad(v, x + m * ldx + quad_position<D>(s, q), wide);
        reinterpret_cast<u32x4*>(shared_memory)[(m * 8 + q) * slices + s] = {ptx::bits_of(v[0]), ptx::bits_of(v[1]), ptx::bits_of(v[2]),
                                                                             ptx::bits_of(v[3])};
      }
      ptx::barrier();
    }
  }

  QUERN_FN void activations(f32 (&v)[4], int m, int s, int q) const {
    if constexpr (G.stage)
      load_quad(v, reinterpret_cast<const f32*>(shared) + ((m * 8 + q) * slices + s) * 4, true);
    else
      load_quad(v, x + m * ldx + quad_position<D>(s, q), wide);
  }

  template <class Slices>
  QUERN_FN void accumulate(f32 (&sum)[G.rows][G.m], const Slices& w, int u, int s) const {
    f32 part[G.rows][G.m] = {};
    QUERN_UNROLL
    for (int r = 0; r < G.rows; ++r) {
      f32 values[32];
      slice_values<D>(w[r][u], values);
      QUERN_UNROLL
      for (int m = 0; m < G.m; ++m) {
        QUERN_UNROLL
        for (int q = 0; q < 8; ++q) {
          f32 v[4];
          activations(v, m, s, q);
          QUERN_UNROLL
          for (int e = 0; e < 4; ++e) part[r][m] = ptx::fma(values[4 * q + e], v[e], part[r][m]);
        }
      }
    }
    QUERN_UNROLL
    for (int r = 0; r < G.rows; ++r) QUERN_UNROLL
    for (int m = 0; m < G.m; ++m) sum[r][m] = ptx::add(sum[r][m], part[r][m]);
  }
};

}  // namespace quern

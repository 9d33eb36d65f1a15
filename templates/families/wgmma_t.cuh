// out_prod on Hopper's tensor cores: a warpgroup holds 64 tokens in registers and multiplies them by wgmma with W's run, which lies decoded
// in shared memory, its columns contiguous. While the tensor cores work on one run, the warps decode the next one.
#pragma once

#include "families/out_prod.cuh"
#include "ptx/wgmma.cuh"

namespace quern {

template <class D, class Layout, class In, class Out, WgmmaTGeometry G>
struct WgmmaT {
  static constexpr bool kBf16 = G.bf16 != 0;
  static constexpr OutProdTiles T = G.tiles();
  static constexpr int kGroups = G.kRun / 16, kFrags = G.tile_k / 8;
  using Weights = WeightTile<D, Layout, kBf16, T, G.threads()>;
  using Fragments = InputFragments<In, 1, kGroups>;
  using Scales = InputScales<kBf16, 1>;

  static QUERN_FN void convert(u32 (&a)[kGroups][4], const Fragments& x, const Scales& scales) {
    QUERN_UNROLL
    for (int j = 0; j < kGroups; ++j) x.template operand<kBf16>(a[j], 0, j, scales.inverse);
  }

  static QUERN_FN void multiply(f32 (&c)[1][kFrags][4], const u32 (&a)[kGroups][4], const u8* tile) {
    ptx::wgmma_fence();
    QUERN_UNROLL
    for (int j = 0; j < kGroups; ++j)
      ptx::Wgmma<kBf16, kFrags, true>::multiply(c[0], a[j], tile + j * 16 * 128, T.weights().chunk_bytes());
    ptx::wgmma_commit();
  }

  static QUERN_FN void run(const KernelArgs& args) {
    ptx::allow_next();
    OutProdPlace at = out_prod_place<T>(args);
    i64 m0 = at.m0 + ptx::warp() * 16;
    bool wide = !In::transposed && rows_are_wide<typename In::Type>(args.x, args.ldx);
    u8* tiles = ptx::shared_memory();

    Weights w;
    Fragments x;
    w.load(args, at.begin, at.end, at.k0);
    x.load(args, m0, at.begin, at.end, wide);
    if constexpr (!kBf16) ptx::wait_previous();
    Scales scales;
    scales.load(args, m0);
    f32 c[1][kFrags][4] = {};
    u32 a[2][kGroups][4];
    w.store(tiles, at.k0);
    convert(a[0], x, scales);
    if (at.begin + G.kRun < at.end) {
      w.load(args, at.begin + G.kRun, at.end, at.k0);
      x.load(args, m0, at.begin + G.kRun, at.end, wide);
    }
    // Two runs per turn, so that each has its own operand registers.
    for (i64 first = at.begin; first < at.end; first += 2 * G.kRun) {
      QUERN_UNROLL
      for (int half = 0; half < 2; ++half) {
        i64 n = first + half * G.kRun;
        if (n >= at.end) break;
        ptx::fence_proxy_async();
        ptx::barrier();
        multiply(c, a[half], tiles + half * T.weights().bytes());
        if (n + G.kRun < at.end) {
          w.store(tiles + (1 - half) * T.weights().bytes(), at.k0);
          convert(a[1 - half], x, scales);
        }
        if (n + 2 * G.kRun < at.end) {
          w.load(args, n + 2 * G.kRun, at.end, at.k0);
          x.load(args, m0, n + 2 * G.kRun, at.end, wide);
        }
        ptx::wgmma_wait(c[0]);
      }
    }
    store_out_prod<Out, G.split, !kBf16>(c, scales.scale, args, at, m0, at.k0);
  }
};

}  // namespace quern

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

  static constexpr int kPrefetched = 5;  // runs ahead

  struct State {
    Weights w;    // of the next run
    Fragments x;  // of the next run
    Scales scales;
    f32 c[1][kFrags][4];
    u32 a[2][kGroups][4];
  };

  static QUERN_FN void multiply(f32 (&c)[kFrags][4], const u32 (&a)[4], const u8* tile, int j) {
    ptx::Wgmma<kBf16, kFrags, true>::multiply(c, a, tile + j * 16 * 128, T.weights().chunk_bytes());
  }

  // Converts the next run of X, and loads the one behind it.
  template <int kHalf, bool kWide>
  static QUERN_FN void next_input(State& s, const KernelArgs& args, i64 m0, int ahead, int end) {
    QUERN_UNROLL
    for (int j = 0; j < kGroups; ++j) {
      s.x.template operand<kBf16>(s.a[1 - kHalf][j], 0, j, s.scales.inverse);
      s.x.template load_group<kWide>(j, args, m0, ahead, end);
    }
  }

  // Multiplies the run in half `kHalf` of the tiles, and meanwhile decodes the next run and loads the one behind it, guarded where it may
  // reach over the end. Nothing of the decoding may be hoisted above the barrier, as the compiler likes to: what it waits for would keep
  // the tensor cores waiting too (docs/decisions/0008-out-prod.md).
  template <int kHalf, bool kWide>
  static QUERN_FN void step(State& s, const KernelArgs& args, const OutProdPlace& at, i64 m0, int n, u8* tiles) {
    const u8* now = tiles + kHalf * T.weights().bytes();
    u8* next = tiles + (1 - kHalf) * T.weights().bytes();
    int ahead = n + 2 * G.kRun;
    // A load has one step to arrive, 0.6 us at best: enough from L2, not from memory.
    // Blocks side by side read the same rows of X or W: one in four prefetches.
    u32 turn = static_cast<u32>(n / G.kRun) + static_cast<u32>(at.k0) / T.tile_k + static_cast<u32>(at.m0) / T.tile_m;
    if (kWide && n + (kPrefetched + 1) * G.kRun <= at.end && turn % 4 == 0) {
      s.w.prefetch(args, n + kPrefetched * G.kRun, at.k0);
      Fragments::template prefetch<T.tile_m, G.threads()>(args, s.w.thread, at.m0, n + kPrefetched * G.kRun);
    }
    ptx::fence_proxy_async();
    u32 zero = ptx::barrier_zero();
    hold_until(zero, s.w.slice);
    if constexpr (G.hold) s.x.hold(zero);
    ptx::wgmma_fence();
    if constexpr (G.spread == 0) {
      QUERN_UNROLL
      for (int j = 0; j < kGroups; ++j) multiply(s.c[0], s.a[kHalf][j], now, j);
      ptx::wgmma_commit();
    }
    QUERN_UNROLL
    for (int j = 0; j < (G.spread == 0 ? 1 : kGroups); ++j) {
      if constexpr (G.spread != 0) multiply(s.c[0], s.a[kHalf][j], now, j);
      if (j == 0) next_input<kHalf, kWide>(s, args, m0, ahead, at.end);
      constexpr int kParts = G.spread == 0 ? 1 : G.spread;
      if (j < kParts) s.w.template store_part<kWide>(j, kParts, next, args, ahead, at.end, at.k0);
    }
    if constexpr (G.spread != 0) ptx::wgmma_commit();
    ptx::wgmma_wait(s.c[0]);
  }

  static QUERN_FN void run(const KernelArgs& args) {
    OutProdPlace at = out_prod_place<T>(args);
    i64 m0 = at.m0 + ptx::warp() * 16;
    bool wide = !In::transposed && rows_are_wide<typename In::Type>(args.x, args.ldx);
    u8* tiles = ptx::shared_memory();

    State s{Weights(args, at.begin + 2 * G.kRun, at.k0), {}, {}, {}, {}};
    s.w.load(args, at.begin, at.end, at.k0);
    s.x.load(args, m0, at.begin, at.end, wide);
    if constexpr (!kBf16) ptx::wait_previous(), ptx::allow_next();
    s.scales.load(args, m0);
    s.w.store(tiles, at.k0);
    QUERN_UNROLL
    for (int j = 0; j < kGroups; ++j) s.x.template operand<kBf16>(s.a[0][j], 0, j, s.scales.inverse);
    s.w.load(args, at.begin + G.kRun, at.end, at.k0);
    s.x.load(args, m0, at.begin + G.kRun, at.end, wide);
    // Two runs per turn, so that each has its own operand registers. Where runs are whole and wide the loop has one path: where paths met,
    // the compiler copied what was just being loaded, and waited for it (24% of all stalls).
    int n = at.begin;
    if (wide)
      for (; n + 4 * G.kRun <= at.end; n += 2 * G.kRun) {
        step<0, true>(s, args, at, m0, n, tiles);
        step<1, true>(s, args, at, m0, n + G.kRun, tiles);
      }
    for (; n < at.end; n += 2 * G.kRun) {
      step<0, false>(s, args, at, m0, n, tiles);
      if (n + G.kRun < at.end) step<1, false>(s, args, at, m0, n + G.kRun, tiles);
    }
    store_out_prod<Out, T, !kBf16>(s.c, s.scales.scale, args, at, m0, at.k0);
  }
};

}  // namespace quern

// out_prod on tensor cores (mma.sync m16n8k16): tokens are the 16 rows, columns of W the 8 columns, 16 rows of W the reduction. W's run is
// decoded into shared memory while the run before it is multiplied; ldmatrix hands it out transposed, as the B operand.
#pragma once

#include "families/out_prod.cuh"

namespace quern {

template <class D, class Layout, class In, class Out, GemmTGeometry G>
struct GemmT {
  static constexpr bool kBf16 = G.bf16 != 0;
  static constexpr OutProdTiles T = G.tiles();
  static constexpr int kGroups = G.run / 16;
  using Weights = WeightTile<D, Layout, kBf16, T, G.threads()>;
  using Fragments = InputFragments<In, G.frags_m, kGroups>;
  using Scales = InputScales<kBf16, G.frags_m>;

  static QUERN_FN void multiply(f32 (&c)[G.frags_m][G.frags_k][4], const u32 (&a)[G.frags_m][kGroups][4], const u8* tile, int column0) {
    int lane = ptx::lane();
    QUERN_UNROLL
    for (int j = 0; j < kGroups; ++j) QUERN_UNROLL
    for (int f = 0; f < G.frags_k; f += 2) {
      // Lane i addresses row i%8 of matrix i/8: rows 0-7 and 8-15 of the group, each of two fragments.
      u32 b[4];
      ptx::ldmatrix_x4_trans(b, tile + T.weights().at(16 * j + lane % 16, column0 + 8 * f + lane / 16 * 8));
      QUERN_UNROLL
      for (int i = 0; i < G.frags_m; ++i) {
        if constexpr (kBf16) {
          ptx::mma_bf16(c[i][f], a[i][j], b[0], b[1]);
          ptx::mma_bf16(c[i][f + 1], a[i][j], b[2], b[3]);
        } else {
          ptx::mma_f16(c[i][f], a[i][j], b[0], b[1]);
          ptx::mma_f16(c[i][f + 1], a[i][j], b[2], b[3]);
        }
      }
    }
  }

  static QUERN_FN void convert(u32 (&a)[G.frags_m][kGroups][4], const Fragments& x, const Scales& scales) {
    QUERN_UNROLL
    for (int i = 0; i < G.frags_m; ++i) QUERN_UNROLL
    for (int j = 0; j < kGroups; ++j) x.template operand<kBf16>(a[i][j], i, j, scales.inverse);
  }

  struct State {
    Weights w;    // of this run
    Fragments x;  // of this run
    Scales scales;
    f32 c[G.frags_m][G.frags_k][4];
  };

  // Decodes and multiplies the run at n, and loads the next one, guarded where it may reach over the end.
  template <bool kWide>
  static QUERN_FN void step(State& s, const KernelArgs& args, const OutProdPlace& at, i64 m0, int column0, int n, u8* tiles, u8*& tile) {
    u32 a[G.frags_m][kGroups][4];
    convert(a, s.x, s.scales);
    QUERN_UNROLL
    for (int j = 0; j < kGroups; ++j) s.x.template load_group<kWide>(j, args, m0, n + G.run, at.end);
    s.w.template store_part<kWide>(0, 1, tile, args, n + G.run, at.end, at.k0);
    ptx::barrier();  // the other tile is free: every warp has multiplied it
    multiply(s.c, a, tile, column0);
    tile = tile == tiles ? tiles + T.weights().bytes() : tiles;
  }

  static QUERN_FN void run(const KernelArgs& args) {
    OutProdPlace at = out_prod_place<T>(args);
    int warp_m = ptx::warp() % G.warps_m, warp_k = ptx::warp() / G.warps_m, column0 = warp_k * G.frags_k * 8;
    i64 m0 = at.m0 + warp_m * G.frags_m * 16;
    bool wide = !In::transposed && rows_are_wide<typename In::Type>(args.x, args.ldx);
    u8* tiles = ptx::shared_memory();

    State s{Weights(args, at.begin + G.run, at.k0), {}, {}, {}};
    s.w.load(args, at.begin, at.end, at.k0);
    s.x.load(args, m0, at.begin, at.end, wide);
    if constexpr (!kBf16) ptx::wait_previous(), ptx::allow_next();
    s.scales.load(args, m0);
    u8* tile = tiles;
    // One path where runs are whole and wide: where paths meet, the compiler copies what is being loaded, and waits for it.
    int n = at.begin;
    if (wide)
      for (; n + 2 * G.run <= at.end; n += G.run) step<true>(s, args, at, m0, column0, n, tiles, tile);
    for (; n < at.end; n += G.run) step<false>(s, args, at, m0, column0, n, tiles, tile);
    store_out_prod<Out, T, !kBf16>(s.c, s.scales.scale, args, at, m0, at.k0 + column0);
  }
};

}  // namespace quern

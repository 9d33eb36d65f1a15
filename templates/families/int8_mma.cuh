// Rows of int8 codes times rows of int8 codes on tensor cores (mma m16n8k32), for more rows of X than DP4A should read W for. The sum is
// exact, so that its order is free: lane 4g+t loads 16 neighbouring bytes of each of its rows, where the instruction's own order would be 4
// bytes at a time, and W and X are permuted alike. Both come straight from global memory: a block's warps share rows of X in L1.
#pragma once

#include "families/int8_rows.cuh"

namespace quern {

template <class Out, Int8MmaGeometry G>
struct Int8Mma {
  // Of one step, 64 codes per row.
  struct Step {
    Chunk w[G.frags_n][2];  // rows g and g+8 of each fragment
    Chunk x[G.frags_m];
  };
  struct Rows {
    const u8* w[G.frags_n][2];
    const u8* x[G.frags_m];
  };

  // Rows past the end stand for the last one and are not written.
  static QUERN_FN Rows aim(const KernelArgs& args, i64 m0, i64 n0) {
    Rows rows;
    int g = ptx::lane() / 4;
    QUERN_UNROLL
    for (int f = 0; f < G.frags_n; ++f) QUERN_UNROLL
    for (int h = 0; h < 2; ++h) {
      i64 n = n0 + 16 * f + 8 * h + g;
      rows.w[f][h] = static_cast<const u8*>(args.w) + (n < args.n ? n : args.n - 1) * args.w_row_bytes;
    }
    QUERN_UNROLL
    for (int f = 0; f < G.frags_m; ++f) {
      i64 m = m0 + 8 * f + g;
      rows.x[f] = static_cast<const u8*>(args.x) + (m < args.m ? m : args.m - 1) * args.ldx;
    }
    return rows;
  }

  template <int kAlign>
  static QUERN_FN void load(Step& step, const Rows& rows, int segment) {
    int c = 4 * segment + ptx::lane() % 4;
    QUERN_UNROLL
    for (int f = 0; f < G.frags_n; ++f) QUERN_UNROLL
    for (int h = 0; h < 2; ++h) step.w[f][h] = load_chunk<G.k, kAlign>(rows.w[f][h], c);
    QUERN_UNROLL
    for (int f = 0; f < G.frags_m; ++f) step.x[f] = load_chunk<G.k, kAlign>(rows.x[f], c);
  }

  static QUERN_FN void multiply(i32 (&sum)[G.frags_n][G.frags_m][4], const Step& step) {
    QUERN_UNROLL
    for (int half = 0; half < 2; ++half) QUERN_UNROLL
    for (int f = 0; f < G.frags_n; ++f) {
      const Chunk &top = step.w[f][0], &bottom = step.w[f][1];
      u32 a[4] = {top.word[2 * half], bottom.word[2 * half], top.word[2 * half + 1], bottom.word[2 * half + 1]};
      QUERN_UNROLL
      for (int i = 0; i < G.frags_m; ++i) ptx::mma_s8(sum[f][i], a, step.x[i].word[2 * half], step.x[i].word[2 * half + 1]);
    }
  }

  static QUERN_FN void store(const i32 (&sum)[G.frags_n][G.frags_m][4], const KernelArgs& args, i64 m0, i64 n0) {
    int g = ptx::lane() / 4, t = ptx::lane() % 4;
    QUERN_UNROLL
    for (int f = 0; f < G.frags_n; ++f) QUERN_UNROLL
    for (int i = 0; i < G.frags_m; ++i) QUERN_UNROLL
    for (int e = 0; e < 4; ++e) {
      i64 n = n0 + 16 * f + 8 * (e / 2) + g, m = m0 + 8 * i + 2 * t + e % 2;
      if (n < args.n && m < args.m) store_int8_product<Out>(args, m, n, sum[f][i][e]);
    }
  }

  template <int kAlign>
  static QUERN_FN void run_aligned(const KernelArgs& args) {
    i64 blocks_n = G.blocks_n(args.n), m0 = ptx::block_x() / blocks_n * G.tile_m();
    i64 n0 = ptx::block_x() % blocks_n * G.tile_n() + ptx::warp() * (16 * G.frags_n);
    Rows rows = aim(args, m0, n0);
    i32 sum[G.frags_n][G.frags_m][4] = {};
    Step next;
    load<kAlign>(next, rows, 0);
    QUERN_UNROLL_BY(1)  // unrolled, the bodies for odd addresses spill
    for (int s = 0; s < G.segments(); ++s) {
      Step now = next;
      if (s + 1 < G.segments()) load<kAlign>(next, rows, s + 1);
      multiply(sum, now);
    }
    store(sum, args, m0, n0);
  }

  static QUERN_FN void run(const KernelArgs& args) {
    run_by_alignment<Int8Mma>(args, reinterpret_cast<u64>(args.w) | static_cast<u64>(args.w_row_bytes) | reinterpret_cast<u64>(args.x) |
                                        static_cast<u64>(args.ldx));
  }
};

}  // namespace quern

// Rows of codes times rows of codes, exactly, the sum in i32 by DP4A. X's rows are staged in shared memory once per block, as codes; a
// group of lanes shares a row of W, 16 bytes a lane and load, the next ones always in flight.
#pragma once

#include "families/codes.cuh"

namespace quern {

template <class Codes, class Epilogue, CodeDotGeometry G>
struct CodeDot {
  static constexpr int kChunks = G.chunks();
  static constexpr int kStep = G.lanes * G.unroll;  // chunks per row and iteration
  static constexpr int kIterations = (kChunks + kStep - 1) / kStep;
  // Iterations unrolled: as many as keep the loop's body near 32 pieces' products. Byte by byte, as from odd addresses, a body of one is
  // long enough.
  static constexpr int kWork = G.rows * G.unroll * G.m * G.pieces;
  template <int kAlign>
  static constexpr int unrolled() {
    return kAlign < 16 || kWork >= 32 ? 1 : 32 / kWork < kIterations ? 32 / kWork : kIterations;
  }

  struct Weights {
    Chunk chunk[G.rows][G.unroll];
  };

  template <int kAlign>
  static QUERN_FN void load(Weights& w, const u8* const (&rows)[G.rows], int c) {
    QUERN_UNROLL
    for (int u = 0; u < G.unroll; ++u) QUERN_UNROLL
    for (int r = 0; r < G.rows; ++r) w.chunk[r][u] = load_chunk<G.row_bytes, kAlign>(rows[r], c + u * G.lanes);
  }

  // The rows of one pass. Rows past the end stand for the last one and are not written.
  static QUERN_FN void aim(const u8* (&rows)[G.rows], const KernelArgs& args, i64 n) {
    QUERN_UNROLL
    for (int r = 0; r < G.rows; ++r) rows[r] = static_cast<const u8*>(args.w) + (n + r < args.n ? n + r : args.n - 1) * args.w_row_bytes;
  }

  static QUERN_FN void accumulate(i32 (&sum)[G.rows][G.m], const Codes& codes, const Weights& w, const Chunk* staged, int c) {
    QUERN_UNROLL
    for (int u = 0; u < G.unroll; ++u) {
      int at = c + u * G.lanes;
      if (kChunks % kStep != 0 && at >= kChunks) continue;
      QUERN_UNROLL
      for (int p = 0; p < G.pieces; ++p) {
        Chunk q[G.rows];
        QUERN_UNROLL
        for (int r = 0; r < G.rows; ++r) q[r] = codes.w_piece(w.chunk[r][u], p);
        QUERN_UNROLL
        for (int m = 0; m < G.m; ++m) {
          u32x4 x = ptx::load_cached(reinterpret_cast<const u32x4*>(staged + (m * G.pieces + p) * kChunks + at));
          QUERN_UNROLL
          for (int r = 0; r < G.rows; ++r) {
            sum[r][m] = ptx::dp4a_ss(q[r].word[0], x.x, sum[r][m]);
            sum[r][m] = ptx::dp4a_ss(q[r].word[1], x.y, sum[r][m]);
            sum[r][m] = ptx::dp4a_ss(q[r].word[2], x.z, sum[r][m]);
            sum[r][m] = ptx::dp4a_ss(q[r].word[3], x.w, sum[r][m]);
          }
        }
      }
    }
  }

  // Sums over the lanes of a row; each lane of the group then writes some of the outputs.
  static QUERN_FN void finish(const i32 (&sum)[G.rows][G.m], const KernelArgs& args, i64 m0, i64 n) {
    ScatteredSums<G.lanes, G.rows * G.m> sums{};
    QUERN_UNROLL
    for (int i = 0; i < G.rows * G.m; ++i) sums.values[i] = sum[i / G.m][i % G.m];
    sums.reduce();
    QUERN_UNROLL
    for (int i = 0; i < sums.kKept; ++i) {
      int r = (sums.first() + i) / G.m, m = (sums.first() + i) % G.m;
      if (sums.owns() && r < G.rows && n + r < args.n && m0 + m < args.m)
        Epilogue::load(args, m0 + m, n + r).store(args, m0 + m, n + r, sums.values[i]);
    }
  }

  template <int kAlign>
  static QUERN_FN void run_aligned(const KernelArgs& args) {
    i64 blocks_n = G.blocks_n(args.n), block_n = ptx::block_x(), m0 = 0;
    if (G.tiles_m > 1) block_n = ptx::block_x() % blocks_n, m0 = ptx::block_x() / blocks_n * G.m;
    i64 n = block_n * G.passes * G.rows_per_block() + ptx::warp() * G.rows_per_warp() + ptx::lane() / G.lanes * G.rows;
    i64 groups = G.row_groups(args.n) - block_n * G.passes;
    int passes = groups < G.passes ? static_cast<int>(groups) : G.passes, first = ptx::lane() % G.lanes;

    Codes codes(args);
    CodeStage<G.row_bytes, G.m, G.pieces * kChunks, G.threads(), Codes> stage(args, m0);
    const u8* rows[G.rows];
    aim(rows, args, n);
    Weights next;
    load<kAlign>(next, rows, first);
    Chunk* staged = reinterpret_cast<Chunk*>(ptx::shared_memory());
    codes.fill(ptx::shared_memory() + G.staged_bytes(), G.threads());
    stage.finish(staged, codes, args, m0);
    for (int pass = 0; pass < passes; ++pass) {
      i32 sum[G.rows][G.m] = {};
      QUERN_UNROLL_BY((unrolled<kAlign>()))
      for (int i = 0; i < kIterations; ++i) {
        Weights now = next;
        if (i + 1 < kIterations) {
          load<kAlign>(next, rows, first + (i + 1) * kStep);
        } else if (pass + 1 < passes) {
          aim(rows, args, n + G.rows_per_block());
          load<kAlign>(next, rows, first);
        }
        accumulate(sum, codes, now, staged, first + i * kStep);
      }
      finish(sum, args, m0, n);
      n += G.rows_per_block();
    }
  }

  static QUERN_FN void run(const KernelArgs& args) {
    run_by_alignment<CodeDot, CodeDot<Codes, Epilogue, G.slim()>>(args, w_addresses(args));
  }
};

}  // namespace quern

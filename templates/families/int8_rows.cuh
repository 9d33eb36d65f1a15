// Rows of int8 codes times rows of int8 codes, exactly: Y = f32(sum) * (x_scale * w_scale) + bias, sum in i32 by DP4A. X's rows are staged
// in shared memory once per block; a group of lanes shares a row of W, 16 bytes a lane and load, the next ones always in flight.
#pragma once

#include "decode/view.cuh"
#include "families/element.cuh"
#include "geometry/int8_rows.h"

namespace quern {

// Y from an exact sum: three operations, each rounded once, then the output's rounding.
template <class Out>
QUERN_FN void store_int8_product(const KernelArgs& args, i64 m, i64 n, i32 sum) {
  f32 scale = ptx::mul(ptx::load_cached(args.x_scales + m), ptx::load_cached(args.w_scales + n));
  Out::store(args, m, n, ptx::mul(static_cast<f32>(sum), scale));
}

// Sixteen codes.
struct Chunk {
  u32 word[4];
};
// Chunk c of a row of kLength codes whose address is a multiple of kAlign; what lies past the row's end is zero and not read.
template <int kLength, int kAlign>
QUERN_FN Chunk load_chunk(const u8* row, int c) {
  constexpr int kWhole = kLength / 16, kTail = kLength % 16;
  Chunk chunk{};
  const u8* p = row + c * 16;
  if (c < kWhole) {
    load_words<kAlign>(chunk.word, p);
  } else if (kTail != 0 && c == kWhole) {
    QUERN_UNROLL
    for (int i = 0; i < kTail; ++i) chunk.word[i / 4] |= static_cast<u32>(ptx::load_stream(p + i)) << (8 * (i % 4));
  }
  return chunk;
}

// Runs Body's widest form that the addresses allow: rows may start anywhere and be of any length.
template <class Body>
QUERN_FN void run_by_alignment(const KernelArgs& args, u64 addresses) {
  if (addresses % 16 == 0)
    Body::template run_aligned<16>(args);
  else if (addresses % 4 == 0)
    Body::template run_aligned<4>(args);
  else
    Body::template run_aligned<1>(args);
}

template <class Out, Int8DotGeometry G>
struct Int8Dot {
  static constexpr int kChunks = G.chunks();
  static constexpr int kStep = G.lanes * G.unroll;  // chunks per row and iteration
  static constexpr int kIterations = (kChunks + kStep - 1) / kStep;
  // Iterations unrolled: as many as keep the loop's body near 32 chunks' products.
  static constexpr int kWork = G.rows * G.unroll * G.m;
  static constexpr int kUnrolled = kWork >= 32 ? 1 : 32 / kWork < kIterations ? 32 / kWork : kIterations;

  struct Weights {
    Chunk chunk[G.rows][G.unroll];
  };

  template <int kAlign>
  static QUERN_FN void load(Weights& w, const u8* const (&rows)[G.rows], int c) {
    QUERN_UNROLL
    for (int u = 0; u < G.unroll; ++u) QUERN_UNROLL
    for (int r = 0; r < G.rows; ++r) w.chunk[r][u] = load_chunk<G.k, kAlign>(rows[r], c + u * G.lanes);
  }

  // The rows of one pass. Rows past the end stand for the last one and are not written.
  static QUERN_FN void aim(const u8* (&rows)[G.rows], const KernelArgs& args, i64 n) {
    QUERN_UNROLL
    for (int r = 0; r < G.rows; ++r) rows[r] = static_cast<const u8*>(args.w) + (n + r < args.n ? n + r : args.n - 1) * args.w_row_bytes;
  }

  // X's rows from m0 on as [m][chunk], zeros past the last row and past the end of each.
  static QUERN_FN void stage(Chunk* staged, const KernelArgs& args, i64 m0) {
    const u8* x = static_cast<const u8*>(args.x);
    bool wide = ((reinterpret_cast<u64>(x) | static_cast<u64>(args.ldx)) & 15) == 0;
    for (int i = ptx::thread_x(); i < G.m * kChunks; i += G.threads()) {
      i64 m = m0 + i / kChunks;
      int c = i % kChunks;
      Chunk chunk{};
      if (m < args.m) {
        const u8* row = x + m * args.ldx;
        chunk = wide ? load_chunk<G.k, 16>(row, c) : load_chunk<G.k, 1>(row, c);
      }
      staged[i] = chunk;
    }
    ptx::barrier();
  }

  static QUERN_FN void accumulate(i32 (&sum)[G.rows][G.m], const Weights& w, const Chunk* staged, int c) {
    QUERN_UNROLL
    for (int u = 0; u < G.unroll; ++u) {
      int at = c + u * G.lanes;
      if (kChunks % kStep != 0 && at >= kChunks) continue;
      QUERN_UNROLL
      for (int m = 0; m < G.m; ++m) {
        u32x4 x = ptx::load_cached(reinterpret_cast<const u32x4*>(staged + m * kChunks + at));
        QUERN_UNROLL
        for (int r = 0; r < G.rows; ++r) {
          const u32(&q)[4] = w.chunk[r][u].word;
          sum[r][m] = ptx::dp4a_ss(q[0], x.x, sum[r][m]);
          sum[r][m] = ptx::dp4a_ss(q[1], x.y, sum[r][m]);
          sum[r][m] = ptx::dp4a_ss(q[2], x.z, sum[r][m]);
          sum[r][m] = ptx::dp4a_ss(q[3], x.w, sum[r][m]);
        }
      }
    }
  }

  // Sums over the lanes of a row; each lane of the group then writes some of the outputs.
  static QUERN_FN void finish(i32 (&sum)[G.rows][G.m], const KernelArgs& args, i64 m0, i64 n) {
    int lane = ptx::lane() % G.lanes;
    QUERN_UNROLL
    for (int i = 0; i < G.rows * G.m; ++i) {
      int r = i / G.m, m = i % G.m;
      QUERN_UNROLL
      for (int mask = G.lanes / 2; mask > 0; mask /= 2) sum[r][m] += ptx::shuffle_xor(sum[r][m], mask);
      if (lane == i % G.lanes && n + r < args.n && m0 + m < args.m) store_int8_product<Out>(args, m0 + m, n + r, sum[r][m]);
    }
  }

  template <int kAlign>
  static QUERN_FN void run_aligned(const KernelArgs& args) {
    i64 blocks_n = G.blocks_n(args.n), block_n = ptx::block_x() % blocks_n, m0 = ptx::block_x() / blocks_n * G.m;
    i64 n = block_n * G.passes * G.rows_per_block() + ptx::warp() * G.rows_per_warp() + ptx::lane() / G.lanes * G.rows;
    i64 groups = G.row_groups(args.n) - block_n * G.passes;
    int passes = groups < G.passes ? static_cast<int>(groups) : G.passes, first = ptx::lane() % G.lanes;

    const u8* rows[G.rows];
    aim(rows, args, n);
    Weights next;
    load<kAlign>(next, rows, first);
    Chunk* staged = reinterpret_cast<Chunk*>(ptx::shared_memory());
    stage(staged, args, m0);
    for (int pass = 0; pass < passes; ++pass) {
      i32 sum[G.rows][G.m] = {};
      QUERN_UNROLL_BY(kUnrolled)
      for (int i = 0; i < kIterations; ++i) {
        Weights now = next;
        if (i + 1 < kIterations) {
          load<kAlign>(next, rows, first + (i + 1) * kStep);
        } else if (pass + 1 < passes) {
          aim(rows, args, n + G.rows_per_block());
          load<kAlign>(next, rows, first);
        }
        accumulate(sum, now, staged, first + i * kStep);
      }
      finish(sum, args, m0, n);
      n += G.rows_per_block();
    }
  }

  static QUERN_FN void run(const KernelArgs& args) {
    run_by_alignment<Int8Dot>(args, reinterpret_cast<u64>(args.w) | static_cast<u64>(args.w_row_bytes));
  }
};

}  // namespace quern

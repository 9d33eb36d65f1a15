// w4a4 by DP4A where W is k-major, [K/2,N]: neighbouring lanes have neighbouring columns, four each, and the warps of a block share the
// rows along K. Two bytes of one column are four indices in order, so that byte permutes of two rows give what a row-major W holds.
#pragma once

#include "families/code_dot.cuh"
#include "families/codebook.cuh"

namespace quern {

template <class Codebook, class Epilogue, KMajorGeometry G>
struct KMajorDot {
  using Codes = IndexCodes<Codebook>;
  static constexpr int kSteps = G.steps(), kStep = G.kStepBytes;
  static constexpr int kChunks = G.row_bytes / kChunkBytes;

  struct Weights {
    u32 row[kStep];  // a byte of each of the lane's four columns
  };

  // Columns past the end stand for the last one and are not written; where words are loaded N is a multiple of four.
  template <int kAlign>
  static QUERN_FN void load(Weights& w, const KernelArgs& args, i64 n, int step) {
    const u8* p = static_cast<const u8*>(args.w) + step * kStep * args.w_row_bytes;
    QUERN_UNROLL
    for (int i = 0; i < kStep; ++i, p += args.w_row_bytes) {
      if constexpr (kAlign >= 4) {
        w.row[i] = ptx::load_stream(reinterpret_cast<const u32*>(p + (n < args.n ? n : args.n - 4)));
      } else {
        w.row[i] = 0;
        QUERN_UNROLL
        for (int c = 0; c < 4; ++c) w.row[i] |= static_cast<u32>(ptx::load_stream(p + (n + c < args.n ? n + c : args.n - 1))) << (8 * c);
      }
    }
  }

  static QUERN_FN void accumulate(i32 (&sum)[4][G.m], const Codes& codes, const Weights& w, const Chunk* staged, int step) {
    Chunk q[4];  // of each column
    QUERN_UNROLL
    for (int i = 0; i < 4; ++i) QUERN_UNROLL
    for (int half = 0; half < 2; ++half) {
      u32 two[2];
      codes.w.look_up(two, ptx::prmt(w.row[2 * i], w.row[2 * i + 1], half == 0 ? 0x5140 : 0x7362));
      q[2 * half].word[i] = two[0], q[2 * half + 1].word[i] = two[1];
    }
    QUERN_UNROLL
    for (int m = 0; m < G.m; ++m) {
      u32x4 x = ptx::load_cached(reinterpret_cast<const u32x4*>(staged + (m * 2 + step % 2) * kChunks + step / 2));
      QUERN_UNROLL
      for (int c = 0; c < 4; ++c) {
        sum[c][m] = ptx::dp4a_ss(q[c].word[0], x.x, sum[c][m]);
        sum[c][m] = ptx::dp4a_ss(q[c].word[1], x.y, sum[c][m]);
        sum[c][m] = ptx::dp4a_ss(q[c].word[2], x.z, sum[c][m]);
        sum[c][m] = ptx::dp4a_ss(q[c].word[3], x.w, sum[c][m]);
      }
    }
  }

  // Sums over the warps; a thread then finishes some of the outputs, neighbours neighbouring columns.
  static QUERN_FN void finish(const i32 (&sum)[4][G.m], const KernelArgs& args, i64 m0, i64 n0) {
    i32* sums = reinterpret_cast<i32*>(ptx::shared_memory());  // [warp][m][column]
    ptx::barrier();                                            // nobody reads what was staged any more
    QUERN_UNROLL
    for (int c = 0; c < 4; ++c) QUERN_UNROLL
    for (int m = 0; m < G.m; ++m) sums[(ptx::warp() * G.m + m) * G.kColumns + 4 * ptx::lane() + c] = sum[c][m];
    ptx::barrier();
    for (int i = ptx::thread_x(); i < G.m * G.kColumns; i += G.threads()) {
      i32 total = 0;
      QUERN_UNROLL
      for (int w = 0; w < G.warps; ++w) total += sums[w * G.m * G.kColumns + i];
      i64 m = m0 + i / G.kColumns, n = n0 + i % G.kColumns;
      if (m < args.m && n < args.n) Epilogue::load(args, m, n).store(args, m, n, total);
    }
  }

  template <int kAlign>
  static QUERN_FN void run_aligned(const KernelArgs& args) {
    i64 blocks_n = G.blocks_n(args.n), n0 = ptx::block_x() * G.kColumns, m0 = 0;
    if (G.tiles_m > 1) n0 = ptx::block_x() % blocks_n * G.kColumns, m0 = ptx::block_x() / blocks_n * G.m;
    i64 n = n0 + 4 * ptx::lane();
    Codes codes(args);
    CodeStage<G.row_bytes, G.m, 2 * kChunks, G.threads(), Codes> stage(args, m0);
    Weights next;
    if (ptx::warp() < kSteps) load<kAlign>(next, args, n, ptx::warp());
    Chunk* staged = reinterpret_cast<Chunk*>(ptx::shared_memory());
    codes.fill(ptx::shared_memory() + G.table_offset(), G.threads());
    stage.finish(staged, codes, args, m0);
    i32 sum[4][G.m] = {};
    for (int step = ptx::warp(); step < kSteps; step += G.warps) {
      Weights now = next;
      if (step + G.warps < kSteps) load<kAlign>(next, args, n, step + G.warps);
      accumulate(sum, codes, now, staged, step);
    }
    finish(sum, args, m0, n0);
  }

  static QUERN_FN void run(const KernelArgs& args) {
    if (w_addresses(args) % 4 == 0 && args.n % 4 == 0)
      run_aligned<4>(args);
    else
      run_aligned<1>(args);
  }
};

}  // namespace quern

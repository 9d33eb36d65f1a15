// Rows of codes times rows of codes on tensor cores (mma m16n8k32), for more rows of X than DP4A should read W for. The sum is exact, so
// that its order is free: lane 4g+t loads 16 neighbouring bytes of each of its rows, where the instruction's own order would be 4 bytes at
// a time, and W and X are permuted alike. Both come straight from global memory: a block's warps share rows of X in L1.
#pragma once

#include "families/codebook.cuh"

namespace quern {

// Where the codes of both sides come from. Rows of W: a pointer, and chunk c behind it.
template <int kRowBytes>
struct Int8Operands {
  static constexpr int kPieces = 1;
  static QUERN_FN u64 addresses(const KernelArgs& args) { return w_addresses(args) | x_addresses(args); }
  QUERN_FN explicit Int8Operands(const KernelArgs&) {}
  static QUERN_FN const u8* w_row(const KernelArgs& args, i64 n) { return static_cast<const u8*>(args.w) + n * args.w_row_bytes; }
  static QUERN_FN const u8* x_row(const KernelArgs& args, i64 m) { return static_cast<const u8*>(args.x) + m * args.ldx; }
  template <int kAlign>
  static QUERN_FN Chunk load_w(const KernelArgs&, const u8* row, int c) {
    return load_chunk<kRowBytes, kAlign>(row, c);
  }
  template <int kAlign>
  static QUERN_FN Chunk load_x(const u8* row, int c, int) {
    return load_chunk<kRowBytes, kAlign>(row, c);
  }
  QUERN_FN Chunk w_piece(const Chunk& chunk, int) const { return chunk; }
};

// w4a4: W's indices looked up in registers; X as int8 codes, which the step before this one has made in the workspace. A k-major W is
// gathered byte by byte: the lanes of a fragment read neighbouring bytes, so that whole sectors are used, once per tile of X's rows.
template <int kRowBytes, bool kKMajor, bool kMultiply>
struct IndexOperands {
  static constexpr int kPieces = 2;
  RegisterCodebook<kMultiply> codebook;
  static QUERN_FN u64 addresses(const KernelArgs& args) { return kKMajor ? 1 : w_addresses(args); }
  QUERN_FN explicit IndexOperands(const KernelArgs& args) : codebook(args.w_codebook, nullptr, 0) { ptx::wait_previous(); }
  static QUERN_FN const u8* w_row(const KernelArgs& args, i64 n) {
    return static_cast<const u8*>(args.w) + n * (kKMajor ? 1 : args.w_row_bytes);
  }
  static QUERN_FN const u8* x_row(const KernelArgs& args, i64 m) { return static_cast<const u8*>(args.workspace) + m * (2 * kRowBytes); }
  template <int kAlign>
  static QUERN_FN Chunk load_w(const KernelArgs& args, const u8* row, int c) {
    if constexpr (!kKMajor) return load_chunk<kRowBytes, kAlign>(row, c);
    Chunk chunk{};
    if (c * kChunkBytes >= kRowBytes) return chunk;
    const u8* p = row + c * kChunkBytes * args.w_row_bytes;
    QUERN_UNROLL
    for (int i = 0; i < kChunkBytes; ++i)
      chunk.word[i / 4] |= static_cast<u32>(ptx::load_stream(p + i * args.w_row_bytes)) << (8 * (i % 4));
    return chunk;
  }
  // Zeros past the end of a row: what the indices there would stand for does not count.
  template <int kAlign>
  static QUERN_FN Chunk load_x(const u8* row, int c, int piece) {
    return load_chunk<2 * kRowBytes, 16>(row, 2 * c + piece);
  }
  QUERN_FN Chunk w_piece(const Chunk& chunk, int piece) const { return look_up_piece(codebook, chunk, piece); }
};

// X's indices to int8 codes in the workspace, [M,K] dense: a chunk per thread.
template <int kRowBytes, int kThreads>
QUERN_FN void expand_codes(const KernelArgs& args) {
  ptx::allow_next();
  constexpr int kChunks = kRowBytes / kChunkBytes;
  RegisterCodebook<false> codebook(args.x_codebook, nullptr, 0);
  i64 i = ptx::block_x() * kThreads + ptx::thread_x(), m = i / kChunks;
  if (m >= args.m) return;
  const u8* row = static_cast<const u8*>(args.x) + m * args.ldx;
  int c = static_cast<int>(i % kChunks);
  Chunk chunk = x_addresses(args) % 16 == 0 ? load_chunk<kRowBytes, 16>(row, c) : load_chunk<kRowBytes, 1>(row, c);
  Chunk* out = static_cast<Chunk*>(args.workspace) + 2 * i;
  QUERN_UNROLL
  for (int p = 0; p < 2; ++p) out[p] = look_up_piece(codebook, chunk, p);
}

template <class Operands, class Epilogue, CodeMmaGeometry G>
struct CodeMma {
  static constexpr int kPieces = Operands::kPieces;
  // Of one step, 64 bytes per row of W.
  struct Step {
    Chunk w[G.frags_n][2];  // rows g and g+8 of each fragment
    Chunk x[G.frags_m][kPieces];
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
      rows.w[f][h] = Operands::w_row(args, n < args.n ? n : args.n - 1);
    }
    QUERN_UNROLL
    for (int f = 0; f < G.frags_m; ++f) {
      i64 m = m0 + 8 * f + g;
      rows.x[f] = Operands::x_row(args, m < args.m ? m : args.m - 1);
    }
    return rows;
  }

  template <int kAlign>
  static QUERN_FN void load(Step& step, const KernelArgs& args, const Rows& rows, int segment) {
    int c = 4 * segment + ptx::lane() % 4;
    QUERN_UNROLL
    for (int f = 0; f < G.frags_n; ++f) QUERN_UNROLL
    for (int h = 0; h < 2; ++h) step.w[f][h] = Operands::template load_w<kAlign>(args, rows.w[f][h], c);
    QUERN_UNROLL
    for (int f = 0; f < G.frags_m; ++f) QUERN_UNROLL
    for (int p = 0; p < kPieces; ++p) step.x[f][p] = Operands::template load_x<kAlign>(rows.x[f], c, p);
  }

  static QUERN_FN void multiply(i32 (&sum)[G.frags_n][G.frags_m][4], const Operands& operands, const Step& step) {
    QUERN_UNROLL
    for (int p = 0; p < kPieces; ++p) QUERN_UNROLL
    for (int f = 0; f < G.frags_n; ++f) {
      Chunk top = operands.w_piece(step.w[f][0], p), bottom = operands.w_piece(step.w[f][1], p);
      QUERN_UNROLL
      for (int half = 0; half < 2; ++half) {
        u32 a[4] = {top.word[2 * half], bottom.word[2 * half], top.word[2 * half + 1], bottom.word[2 * half + 1]};
        QUERN_UNROLL
        for (int i = 0; i < G.frags_m; ++i) ptx::mma_s8(sum[f][i], a, step.x[i][p].word[2 * half], step.x[i][p].word[2 * half + 1]);
      }
    }
  }

  // Number e of a lane's sums.
  static QUERN_FN void store_sum(const KernelArgs& args, i64 m0, i64 n0, int e, i32 sum) {
    int f = e / (4 * G.frags_m), i = e / 4 % G.frags_m, g = ptx::lane() / 4, t = ptx::lane() % 4;
    i64 n = n0 + 16 * f + 8 * (e % 4 / 2) + g, m = m0 + 8 * i + 2 * t + e % 2;
    if (n < args.n && m < args.m) Epilogue::store(args, m, n, sum);
  }

  // Where warps share a tile each adds up some of its sums over all of them: whole numbers, in any order.
  static QUERN_FN void store(const i32 (&sum)[G.frags_n][G.frags_m][4], const KernelArgs& args, i64 m0, i64 n0, int part) {
    i32* shared = reinterpret_cast<i32*>(ptx::shared_memory());  // [tile][part][e][lane]
    int tile = ptx::warp() / G.warps_k * G.warps_k;
    QUERN_UNROLL
    for (int e = 0; e < G.sums(); ++e) {
      i32 one = sum[e / (4 * G.frags_m)][e / 4 % G.frags_m][e % 4];
      if constexpr (G.warps_k == 1)
        store_sum(args, m0, n0, e, one);
      else
        shared[((tile + part) * G.sums() + e) * kWarpLanes + ptx::lane()] = one;
    }
    if constexpr (G.warps_k > 1) {
      ptx::barrier();
      for (int e = part; e < G.sums(); e += G.warps_k) {
        i32 total = 0;
        QUERN_UNROLL
        for (int p = 0; p < G.warps_k; ++p) total += shared[((tile + p) * G.sums() + e) * kWarpLanes + ptx::lane()];
        store_sum(args, m0, n0, e, total);
      }
    }
  }

  template <int kAlign>
  static QUERN_FN void run_aligned(const KernelArgs& args) {
    i64 blocks_n = G.blocks_n(args.n), m0 = ptx::block_x() / blocks_n * G.tile_m();
    i64 n0 = ptx::block_x() % blocks_n * G.tile_n() + ptx::warp() / G.warps_k * (16 * G.frags_n);
    int part = ptx::warp() % G.warps_k;
    Rows rows = aim(args, m0, n0);
    Operands operands(args);
    i32 sum[G.frags_n][G.frags_m][4] = {};
    Step next;
    load<kAlign>(next, args, rows, part);
    QUERN_UNROLL_BY(1)  // unrolled, the bodies for odd addresses spill
    for (int s = part; s < G.segments(); s += G.warps_k) {
      Step now = next;
      if (s + G.warps_k < G.segments()) load<kAlign>(next, args, rows, s + G.warps_k);
      multiply(sum, operands, now);
    }
    store(sum, args, m0, n0, part);
  }

  static QUERN_FN void run(const KernelArgs& args) { run_by_alignment<CodeMma, CodeMma>(args, Operands::addresses(args)); }
};

}  // namespace quern

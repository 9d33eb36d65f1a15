// What the tensor cores' product of codes reads: W as planes of codes, both sides' rows, and X's codes made beforehand.
#pragma once

#include "families/codebook.cuh"

namespace quern {

// What is multiplied of a piece of W: its codes, or the two planes of magnitudes of a codebook whose halves have one sign each.
template <class Codes>
struct OnePlane {
  static constexpr int kPlanes = 1;
  const Codes& codes;
  QUERN_FN void look_up(Chunk (&planes)[1], const Chunk& chunk, int piece) const { planes[0] = codes.w_piece(chunk, piece); }
  QUERN_FN i32 total(const i32 (&sums)[1]) const { return sums[0]; }
};
template <bool kMultiply>
struct TwoPlanes {
  static constexpr int kPlanes = 2;
  decode::HalvesTable table;
  QUERN_FN void look_up(Chunk (&planes)[2], const Chunk& chunk, int piece) const {
    QUERN_UNROLL
    for (int i = 0; i < 2; ++i) {
      u32 low[2], high[2];
      decode::look_up_halves<kMultiply>(low, high, table, chunk.word[2 * piece + i]);
      planes[0].word[2 * i] = low[0], planes[0].word[2 * i + 1] = low[1];
      planes[1].word[2 * i] = high[0], planes[1].word[2 * i + 1] = high[1];
    }
  }
  QUERN_FN i32 total(const i32 (&sums)[2]) const { return table.sign[0] * sums[0] + table.sign[1] * sums[1]; }
};

// Where both sides come from. Rows of W: a pointer, and chunk c behind it. Rows of X that are not staged: codes in global memory.
template <int kRowBytes>
struct Int8Operands {
  using Codes = Int8Codes;
  static QUERN_FN u64 addresses(const KernelArgs& args, bool staged) { return w_addresses(args) | (staged ? 0 : x_addresses(args)); }
  static QUERN_FN i64 w_row_stride(const KernelArgs& args) { return args.w_row_bytes; }
  static QUERN_FN const u8* x_row(const KernelArgs& args, i64 m) { return static_cast<const u8*>(args.x) + m * args.ldx; }
  template <int kAlign, bool kWithin>
  static QUERN_FN Chunk load_w(const KernelArgs&, const u8* row, int c) {
    return load_chunk<kRowBytes, kAlign, kWithin>(row, c);
  }
  template <int kAlign>
  static QUERN_FN Chunk load_x(const u8* row, int c, int) {
    return load_chunk<kRowBytes, kAlign>(row, c);
  }
};

// w4a4: W's indices looked up in registers; X, where it is not staged, as int8 codes, which the step before this one has made in the
// workspace. A k-major W is gathered byte by byte: the lanes of a fragment read neighbouring bytes, so that whole sectors are used, once
// per tile of X's rows.
template <int kRowBytes, bool kKMajor, bool kMultiply>
struct IndexOperands {
  using Codes = IndexCodes<RegisterCodebook<kMultiply>>;
  using Halves = TwoPlanes<kMultiply>;
  static QUERN_FN u64 addresses(const KernelArgs& args, bool) { return kKMajor ? 1 : w_addresses(args); }
  static QUERN_FN i64 w_row_stride(const KernelArgs& args) { return kKMajor ? 1 : args.w_row_bytes; }
  static QUERN_FN const u8* x_row(const KernelArgs& args, i64 m) { return static_cast<const u8*>(args.workspace) + m * (2 * kRowBytes); }
  template <int kAlign, bool kWithin>
  static QUERN_FN Chunk load_w(const KernelArgs& args, const u8* row, int c) {
    if constexpr (!kKMajor) return load_chunk<kRowBytes, kAlign, kWithin>(row, c);
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
};

// X's indices to int8 codes in the workspace, [M,K] dense: a chunk per thread.
template <int kRowBytes, int kThreads>
QUERN_FN void expand_codes(const KernelArgs& args) {
  constexpr int kChunks = kRowBytes / kChunkBytes;
  RegisterCodebook<false> codebook(args.x_codebook);
  i64 i = ptx::block_x() * kThreads + ptx::thread_x(), m = i / kChunks;
  if (m >= args.m) return;
  const u8* row = static_cast<const u8*>(args.x) + m * args.ldx;
  int c = static_cast<int>(i % kChunks);
  Chunk chunk = x_addresses(args) % 16 == 0 ? load_chunk<kRowBytes, 16>(row, c) : load_chunk<kRowBytes, 1>(row, c);
  Chunk* out = static_cast<Chunk*>(args.workspace) + 2 * i;
  QUERN_UNROLL
  for (int p = 0; p < 2; ++p) out[p] = look_up_piece(codebook, chunk, p);
}

}  // namespace quern

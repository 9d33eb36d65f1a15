// Rows of integer codes: how they are loaded, and what becomes of the exact sum of their products.
#pragma once

#include "decode/view.cuh"
#include "families/element.cuh"
#include "geometry/code_rows.h"

namespace quern {

// Sixteen bytes of a row.
struct Chunk {
  u32 word[4];
};
// Chunk c of a row of kLength bytes whose address is a multiple of kAlign; what lies past the row's end is zero and not read. kWithin:
// no chunk asked for does.
template <int kLength, int kAlign, bool kWithin = false>
QUERN_FN Chunk load_chunk(const u8* row, int c) {
  constexpr int kWhole = kLength / kChunkBytes, kTail = kLength % kChunkBytes;
  Chunk chunk{};
  const u8* p = row + c * kChunkBytes;
  if (kWithin || c < kWhole) {
    load_words<kAlign>(chunk.word, p);
  } else if (kTail != 0 && c == kWhole) {
    QUERN_UNROLL
    for (int i = 0; i < kTail; ++i) chunk.word[i / 4] |= static_cast<u32>(ptx::load_stream(p + i)) << (8 * (i % 4));
  }
  return chunk;
}

// Runs the form for addresses that are multiples of 16 bytes, or the one for others: rows may start anywhere and be of any length.
template <class Aligned, class Other>
QUERN_FN void run_by_alignment(const KernelArgs& args, u64 addresses) {
  if (addresses % 16 == 0)
    Aligned::template run_aligned<16>(args);
  else if (addresses % 4 == 0)
    Other::template run_aligned<4>(args);
  else
    Other::template run_aligned<1>(args);
}
QUERN_FN u64 w_addresses(const KernelArgs& args) { return reinterpret_cast<u64>(args.w) | static_cast<u64>(args.w_row_bytes); }
QUERN_FN u64 x_addresses(const KernelArgs& args) { return reinterpret_cast<u64>(args.x) | static_cast<u64>(args.ldx); }

// Sums kCount values over the kLanes lanes of a group and leaves each total with one lane: while a lane has several, it gives half of them
// to its partner and keeps the other half, so that 32 totals over 32 lanes take 31 shuffles, where a butterfly each would take 160. The
// lane's totals are then values[0..kKept), of numbers first() and up; where lanes outnumber values only those that owns() says may write.
template <int kLanes, int kCount>
struct ScatteredSums {
  static constexpr int padded() {
    int size = 1;
    while (size < kCount) size *= 2;
    return size;
  }
  static constexpr int kPadded = padded(), kKept = kPadded > kLanes ? kPadded / kLanes : 1;
  static constexpr int kCopies = kPadded < kLanes ? kLanes / kPadded : 1;  // lanes that end with the same total
  i32 values[kPadded];

  QUERN_FN void reduce() {
    QUERN_UNROLL
    for (int mask = kLanes / 2; mask >= kCopies; mask /= 2) {
      int half = kPadded * mask / kLanes;
      bool upper = (ptx::lane() & mask) != 0;
      QUERN_UNROLL
      for (int i = 0; i < kPadded / 2; ++i) {
        if (i >= half) continue;
        i32 sent = upper ? values[i] : values[i + half], kept = upper ? values[i + half] : values[i];
        values[i] = kept + ptx::shuffle_xor(sent, mask);
      }
    }
    QUERN_UNROLL
    for (int mask = kCopies / 2; mask > 0; mask /= 2) values[0] += ptx::shuffle_xor(values[0], mask);
  }
  static QUERN_FN int first() { return ptx::lane() % kLanes / kCopies * kKept; }
  static QUERN_FN bool owns() { return ptx::lane() % kCopies == 0; }
};

// Brings rows of X into shared memory as pieces of codes [m][which of a chunk][chunk], so that lanes with neighbouring chunks read
// neighbouring pieces; kPitch chunks from row to row. What rows past the last one hold counts for nothing. What begins here comes before
// the loads of W and what ends it after: behind those, 64 KB on every multiprocessor, a few rows of X came 2 us late, and in a kernel
// of 10.
template <int kRowBytes, int kRows, int kPitch, int kThreads, class Codes>
struct CodeStage {
  static constexpr int kChunks = static_cast<int>(ceil_div(kRowBytes, kChunkBytes)), kAll = kRows * kChunks;
  static constexpr int kEach = static_cast<int>(ceil_div(kAll, kThreads)), kBatch = kEach < 8 ? kEach : 8;
  Chunk batch[kBatch];  // chunks thread_x, thread_x + kThreads, ... of all rows

  QUERN_FN CodeStage(const KernelArgs& args, i64 m0) { load(args, m0, ptx::thread_x()); }

  QUERN_FN void finish(Chunk* staged, const Codes& codes, const KernelArgs& args, i64 m0) {
    int first = ptx::thread_x();
    store(staged, codes, first);
    if constexpr (kEach > kBatch) {
      QUERN_UNROLL_BY(1)
      for (first += kBatch * kThreads; first < kAll; first += kBatch * kThreads) {
        load(args, m0, first);
        store(staged, codes, first);
      }
    }
    ptx::barrier();
  }

  QUERN_FN void load(const KernelArgs& args, i64 m0, int first) {
    const u8* x = static_cast<const u8*>(args.x);
    bool wide = x_addresses(args) % 16 == 0;
    QUERN_UNROLL
    for (int j = 0; j < kBatch; ++j) {
      int i = first + j * kThreads, c = i % kChunks;
      i64 m = m0 + i / kChunks;
      batch[j] = Chunk{};
      if (i >= kAll || m >= args.m) continue;
      if (wide)
        batch[j] = load_chunk<kRowBytes, 16>(x + m * args.ldx, c);
      else
        batch[j] = load_chunk<kRowBytes, 1>(x + m * args.ldx, c);
    }
  }
  QUERN_FN void store(Chunk* staged, const Codes& codes, int first) const {
    QUERN_UNROLL
    for (int j = 0; j < kBatch; ++j) {
      int i = first + j * kThreads;
      if (i >= kAll) continue;
      QUERN_UNROLL
      for (int p = 0; p < Codes::kPieces; ++p) staged[i / kChunks * kPitch + p * kChunks + i % kChunks] = codes.x_piece(batch[j], p);
    }
  }
};

// Codes that are what is stored.
struct Int8Codes {
  static constexpr int kPieces = 1;
  QUERN_FN explicit Int8Codes(const KernelArgs&) {}
  QUERN_FN void fill(u8*, int) {}
  QUERN_FN Chunk x_piece(const Chunk& chunk, int) const { return chunk; }
  QUERN_FN Chunk w_piece(const Chunk& chunk, int) const { return chunk; }
};

// matmul_int8_rows: three operations, each rounded once, then the bias and the output's rounding. An object holds what one output needs, as
// it was loaded: nothing waits for it before store().
template <class Y, bool kBias>
struct Int8Epilogue {
  f32 x_scale, w_scale;
  Y bias;

  static QUERN_FN Int8Epilogue load(const KernelArgs& args, i64 m, i64 n) {
    Int8Epilogue e{ptx::load_cached(args.x_scales + m), ptx::load_cached(args.w_scales + n), {}};
    if constexpr (kBias) e.bias = ptx::load_cached(static_cast<const Y*>(args.bias) + n);
    return e;
  }
  QUERN_FN void store(const KernelArgs& args, i64 m, i64 n, i32 sum) const {
    f32 value = ptx::mul(static_cast<f32>(sum), ptx::mul(x_scale, w_scale));
    if constexpr (kBias) value = ptx::add(value, ptx::to_f32(bias));
    Output<Y, false, false>::store(args, m, n, value);
  }
};

}  // namespace quern

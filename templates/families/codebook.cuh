// w4a4: packed 4-bit indices into codebooks of 16 int8 codes, three ways to look them up, and the epilogue with its two roundings. X's
// indices are few and always go through registers; how W's do is the family.
#pragma once

#include "decode/bits.cuh"
#include "families/codes.cuh"

namespace quern {

// Each looks eight indices up, in the order in which they lie: the low nibble of a byte first. fill() writes the table to kBytes of the
// block's shared memory, all `threads` of the block together: a barrier must follow it.

// Four registers, looked up by byte permutes.
template <bool kMultiply>
struct RegisterCodebook {
  static constexpr int kBytes = 0;
  decode::NibbleTable table;
  QUERN_FN explicit RegisterCodebook(const signed char* codes) {
    const u8* p = reinterpret_cast<const u8*>(codes);
    if (reinterpret_cast<u64>(p) % 4 == 0) {
      QUERN_UNROLL
      for (int i = 0; i < 4; ++i) table.word[i] = ptx::load_stream(reinterpret_cast<const u32*>(p) + i);
      return;
    }
    QUERN_UNROLL
    for (int i = 0; i < 4; ++i) {
      table.word[i] = 0;
      QUERN_UNROLL
      for (int b = 0; b < 4; ++b) table.word[i] |= static_cast<u32>(ptx::load_stream(p + 4 * i + b)) << (8 * b);
    }
  }
  QUERN_FN void fill(u8*, int) {}
  QUERN_FN void look_up(u32 (&codes)[2], u32 indices) const { decode::look_up_all<kMultiply>(codes, table, indices); }
};

// One byte per index from a table of 16 in shared memory. Its four words lie in four banks: no two lanes conflict.
struct TableCodebook {
  static constexpr int kBytes = 16;
  RegisterCodebook<false> registers;
  const u8* table = nullptr;
  QUERN_FN explicit TableCodebook(const signed char* codes) : registers(codes) {}
  QUERN_FN void fill(u8* shared, int) {
    table = shared;
    u32 codes[2], i = static_cast<u32>(ptx::thread_x());
    registers.look_up(codes, i);
    if (i < 16) shared[i] = static_cast<u8>(codes[0]);
  }
  QUERN_FN void look_up(u32 (&codes)[2], u32 indices) const {
    QUERN_UNROLL
    for (int half = 0; half < 2; ++half) {
      codes[half] = 0;
      QUERN_UNROLL
      for (int i = 0; i < 4; ++i) codes[half] |= static_cast<u32>(table[indices >> (16 * half + 4 * i) & 15]) << (8 * i);
    }
  }
};

// Two bytes per pair of indices from a table of 256 in shared memory: half the loads, which meet in banks.
struct PairCodebook {
  static constexpr int kBytes = 512;
  RegisterCodebook<false> registers;
  const u16* table = nullptr;
  QUERN_FN explicit PairCodebook(const signed char* codes) : registers(codes) {}
  QUERN_FN void fill(u8* shared, int threads) {
    table = reinterpret_cast<u16*>(shared);
    for (int i = ptx::thread_x(); i < 256; i += threads) {
      u32 codes[2];
      registers.look_up(codes, static_cast<u32>(i));
      reinterpret_cast<u16*>(shared)[i] = static_cast<u16>(codes[0]);
    }
  }
  QUERN_FN void look_up(u32 (&codes)[2], u32 indices) const {
    QUERN_UNROLL
    for (int half = 0; half < 2; ++half) {
      u32 pairs = indices >> (16 * half);
      codes[half] = table[pairs & 255] | static_cast<u32>(table[pairs >> 8 & 255]) << 16;
    }
  }
};

// Half of a chunk of indices: words 2*piece and the next.
template <class Codebook>
QUERN_FN Chunk look_up_piece(const Codebook& codebook, const Chunk& chunk, int piece) {
  Chunk codes;
  QUERN_UNROLL
  for (int i = 0; i < 2; ++i) {
    u32 eight[2];
    codebook.look_up(eight, chunk.word[2 * piece + i]);
    codes.word[2 * i] = eight[0], codes.word[2 * i + 1] = eight[1];
  }
  return codes;
}

template <class Codebook>
struct IndexCodes {
  static constexpr int kPieces = 2;
  Codebook w;
  RegisterCodebook<false> x;
  QUERN_FN explicit IndexCodes(const KernelArgs& args) : w(args.w_codebook), x(args.x_codebook) {}
  QUERN_FN void fill(u8* shared, int threads) { w.fill(shared, threads); }
  QUERN_FN Chunk x_piece(const Chunk& chunk, int piece) const { return look_up_piece(x, chunk, piece); }
  QUERN_FN Chunk w_piece(const Chunk& chunk, int piece) const { return look_up_piece(w, chunk, piece); }
};

// f32(sum) * ((x_norm * w_norm) * scale), each operation rounded once; with kFused the last product and the bias together.
template <class Y, bool kBias, bool kFused>
struct CodebookEpilogue {
  static QUERN_FN void prefetch(const KernelArgs& args, i64 n) {
    ptx::prefetch_l2(static_cast<const bf16*>(args.w_norms) + n);
    if constexpr (kBias) ptx::prefetch_l2(static_cast<const Y*>(args.bias) + n);
  }
  static QUERN_FN void store(const KernelArgs& args, i64 m, i64 n, i32 sum) {
    f32 w_norm = ptx::to_f32(ptx::load_cached(static_cast<const bf16*>(args.w_norms) + n));
    f32 factor = ptx::mul(ptx::mul(ptx::load_cached(args.x_scales + m), w_norm), args.scale);
    if constexpr (kFused) {
      f32 bias = ptx::to_f32(ptx::load_cached(static_cast<const Y*>(args.bias) + n));
      Output<Y, false, false>::store(args, m, n, ptx::fma(static_cast<f32>(sum), factor, bias));
    } else {
      Output<Y, kBias, false>::store(args, m, n, ptx::mul(static_cast<f32>(sum), factor));
    }
  }
};

}  // namespace quern

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

// f32(sum) * ((x_norm * w_norm) * scale), each operation rounded once; with kFused the last product and the bias together. An object holds
// what one output needs, as it was loaded: nothing waits for it before store().
template <class Y, bool kBias, bool kFused>
struct CodebookEpilogue {
  f32 x_norm;
  bf16 w_norm;
  Y bias;

  static QUERN_FN CodebookEpilogue load(const KernelArgs& args, i64 m, i64 n) {
    CodebookEpilogue e{ptx::load_cached(args.x_scales + m), ptx::load_cached(static_cast<const bf16*>(args.w_norms) + n), {}};
    if constexpr (kBias) e.bias = ptx::load_cached(static_cast<const Y*>(args.bias) + n);
    return e;
  }
  QUERN_FN void store(const KernelArgs& args, i64 m, i64 n, i32 sum) const {
    f32 factor = ptx::mul(ptx::mul(x_norm, ptx::to_f32(w_norm)), args.scale), value = static_cast<f32>(sum);
    if constexpr (kFused) {
      value = ptx::fma(value, factor, ptx::to_f32(bias));
    } else {
      value = ptx::mul(value, factor);
      if constexpr (kBias) value = ptx::add(value, ptx::to_f32(bias));
    }
    Output<Y, false, false>::store(args, m, n, value);
  }
};

}  // namespace quern

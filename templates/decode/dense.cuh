// Dense weights: no blocks, no scales. Fast families see virtual blocks of 128 weights, whose four slices interleave so that the lanes of a
// row read neighbouring 16-byte pieces; `element` reads a single weight for any K.
#pragma once

#include "decode/view.cuh"

namespace quern::decode {

template <class T>
struct Dense {
  static constexpr int kBlock = 1, kScales = 1, kBias = 0;
  static constexpr bool kDense = true, kSigned = true, kOffset = false;
  static constexpr int kVirtualBlock = 128, kSlices = 4;
  static constexpr int kPerPiece = 16 / static_cast<int>(sizeof(T));  // weights in 16 bytes: 8 or 4
  static constexpr int kPieces = 32 / kPerPiece;
  static constexpr int quad_k(int slice, int quad) {
    return 4 * quad / kPerPiece * (4 * kPerPiece) + slice * kPerPiece + 4 * quad % kPerPiece;
  }

  struct Slice {
    u32 q[8 * sizeof(T)];
  };
  // `block` counts virtual blocks. Rows are aligned to the type alone: 16-byte loads where the address allows.
  template <class View>
  static QUERN_FN Slice load(const View& view, int block, int slice) {
    Slice s;
    const u8* p = view.template field<0>(0) + static_cast<i64>(block * kVirtualBlock + slice * kPerPiece) * static_cast<i64>(sizeof(T));
    bool wide = (reinterpret_cast<u64>(p) & 15u) == 0;
    QUERN_UNROLL
    for (int i = 0; i < kPieces; ++i) {
      u32 words[4];
      if (wide)
        load_words<16>(words, p + 64 * i);
      else
        load_words<static_cast<int>(sizeof(T))>(words, p + 64 * i);
      QUERN_UNROLL
      for (int j = 0; j < 4; ++j) s.q[4 * i + j] = words[j];
    }
    return s;
  }
  static QUERN_FN f32 value(const Slice& s, int quad, int e) {
    int i = 4 * quad + e;
    if constexpr (sizeof(T) == 4)
      return ptx::float_from_bits(s.q[i]);
    else
      return ptx::to_f32(T{static_cast<u16>(s.q[i / 2] >> (16 * (i % 2)))});
  }
  template <class View>
  static QUERN_FN f32 element(const View& view, int k) {
    const u8* p = view.template field<0>(k);
    if constexpr (sizeof(T) == 4)
      return ptx::float_from_bits(ptx::load_stream(reinterpret_cast<const u32*>(p)));
    else
      return ptx::to_f32(T{ptx::load_stream(reinterpret_cast<const u16*>(p))});
  }
};

}  // namespace quern::decode

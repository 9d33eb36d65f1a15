// Q5_1: 32 weights, d and m (f16), 32 fifth bits and 16 bytes of low nibbles (byte j: weights j and j+16); value d * q + m.
#pragma once

#include "decode/bits.cuh"
#include "decode/view.cuh"

namespace quern::decode {

struct q5_1 {
  static constexpr auto kFields = planar::q5_1_fields;
  static constexpr int kBlock = 32, kSlices = 1, kScales = 1, kBias = 0;
  static constexpr bool kDense = false, kSigned = false, kOffset = true, kSuper = false;
  static constexpr int quad_k(int, int quad) { return 4 * quad; }

  struct Slice {
    u32 q[4];
    u32 header[1];  // d and m
    u32 high[1];
  };
  template <class View>
  static QUERN_FN Slice load(const View& view, int block, int) {
    Slice s;
    load_words<View::template alignment<0>()>(s.q, view.template field<0>(block));
    load_words<View::template alignment<1>()>(s.header, view.template field<1>(block));
    load_words<View::template alignment<2>()>(s.high, view.template field<2>(block));
    return s;
  }
  static QUERN_FN u32 quad(const Slice& s, int q) {
    return ((q < 4 ? s.q[q % 4] : s.q[q % 4] >> 4) & 0x0f0f0f0fu) | spread_bits(s.high[0] >> (4 * q)) << 4;
  }
  static QUERN_FN f32 scale(const Slice& s, int) { return f16_bits_to_f32(s.header[0] & 0xffffu); }
  static QUERN_FN f32 offset(const Slice& s, int) { return f16_bits_to_f32(s.header[0] >> 16); }
};

}  // namespace quern::decode

// Q4_1: 32 weights, d and m (f16) and 16 bytes; byte j holds weight j low and weight j+16 high; value d * q + m.
#pragma once

#include "decode/view.cuh"

namespace quern::decode {

struct q4_1 {
  static constexpr auto kFields = planar::q4_1_fields;
  static constexpr int kBlock = 32, kSlices = 1, kScales = 1, kBias = 0;
  static constexpr bool kDense = false, kSigned = false, kOffset = true, kSuper = false;
  static constexpr int quad_k(int, int quad) { return 4 * quad; }

  struct Slice {
    u32 q[4];
    u32 header[1];  // d and m
  };
  template <class View>
  static QUERN_FN Slice load(const View& view, int block, int) {
    Slice s;
    load_words<View::template alignment<0>()>(s.q, view.template field<0>(block));
    load_words<View::template alignment<1>()>(s.header, view.template field<1>(block));
    return s;
  }
  static QUERN_FN u32 quad(const Slice& s, int q) { return (q < 4 ? s.q[q % 4] : s.q[q % 4] >> 4) & 0x0f0f0f0fu; }
  static QUERN_FN f32 scale(const Slice& s, int) { return f16_bits_to_f32(s.header[0] & 0xffffu); }
  static QUERN_FN f32 offset(const Slice& s, int) { return f16_bits_to_f32(s.header[0] >> 16); }
};

}  // namespace quern::decode

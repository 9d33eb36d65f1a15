// Q5_0: 32 weights, d (f16), 32 fifth bits and 16 bytes of low nibbles (byte j: weights j and j+16); value d * (q - 16).
#pragma once

#include "decode/bits.cuh"
#include "decode/view.cuh"

namespace quern::decode {

struct q5_0 {
  static constexpr auto kFields = planar::q5_0_fields;
  static constexpr int kBlock = 32, kSlices = 1, kScales = 1, kBias = 16;
  static constexpr bool kDense = false, kSigned = false, kOffset = false, kSuper = false;
  static constexpr int quad_k(int, int quad) { return 4 * quad; }

  struct Slice {
    u32 q[4];
    u32 high[1];
    u32 d;
  };
  template <class View>
  static QUERN_FN Slice load(const View& view, int block, int) {
    Slice s;
    load_words<View::template alignment<0>()>(s.q, view.template field<0>(block));
    load_words<View::template alignment<1>()>(s.high, view.template field<1>(block));
    s.d = ptx::load_stream(reinterpret_cast<const u16*>(view.template field<2>(block)));
    return s;
  }
  static QUERN_FN u32 quad(const Slice& s, int q) {
    return ((q < 4 ? s.q[q % 4] : s.q[q % 4] >> 4) & 0x0f0f0f0fu) | spread_bits(s.high[0] >> (4 * q)) << 4;
  }
  static QUERN_FN f32 scale(const Slice& s, int) { return f16_bits_to_f32(s.d); }
  static QUERN_FN f32 offset(const Slice&, int) { return 0.0f; }
};

}  // namespace quern::decode

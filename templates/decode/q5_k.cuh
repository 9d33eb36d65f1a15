// Q5_K: Q4_K with a fifth bit: 32 bytes whose byte l holds, for each of the 8 subs, the fifth bit of that sub's weight l.
#pragma once

#include "decode/k_scales.cuh"
#include "decode/view.cuh"

namespace quern::decode {

struct q5_k {
  static constexpr auto kFields = planar::q5_k_fields;
  static constexpr int kBlock = 256, kSlices = 8, kScales = 2, kBias = 0;
  static constexpr bool kDense = false, kSigned = false, kOffset = true, kSuper = true, kDotsFit16 = false;
  static constexpr int quad_k(int slice, int quad) { return 64 * (slice / 2) + 32 * (quad / 4) + 16 * (slice % 2) + 4 * (quad % 4); }

  struct Slice {
    u32 q[4];
    u32 high[4];    // the fifth bits of all subs
    u32 header[4];  // d and dmin, then the 12 bytes
    int pair;       // c: which pair of subs
  };
  template <class View>
  static QUERN_FN Slice load(const View& view, int block, int slice) {
    Slice s;
    load_words<View::template alignment<0>()>(s.q, view.template field<0>(block) + 16 * slice);
    load_words<View::template alignment<1>()>(s.high, view.template field<1>(block) + 16 * (slice % 2));
    load_words<View::template alignment<2>()>(s.header, view.template field<2>(block));
    s.pair = slice / 2;
    return s;
  }
  static QUERN_FN u32 quad(const Slice& s, int q) {
    u32 low = s.q[q % 4], high = s.high[q % 4] >> (2 * s.pair);
    return q < 4 ? (low & 0x0f0f0f0fu) | (high & 0x01010101u) << 4 : (low >> 4 & 0x0f0f0f0fu) | (high & 0x02020202u) << 3;
  }
  static QUERN_FN u32 packed_scales(const Slice& s) { return k_packed_scales(s.header, s.pair); }
  static QUERN_FN f32 super_scale(const Slice& s) { return f16_bits_to_f32(s.header[0] & 0xffffu); }
  static QUERN_FN f32 super_offset(const Slice& s) { return f16_bits_to_f32(s.header[0] >> 16); }
  static QUERN_FN f32 scale(const Slice& s, int group) { return ptx::mul(super_scale(s), byte_to_f32(packed_scales(s), group)); }
  static QUERN_FN f32 offset(const Slice& s, int group) { return -ptx::mul(super_offset(s), byte_to_f32(packed_scales(s), 2 + group)); }
};

}  // namespace quern::decode

// Q5_K: Q4_K with a fifth bit: 32 bytes whose byte l holds, for each of the 8 subs, the fifth bit of that sub's weight l.
#pragma once

#include "decode/k_scales.cuh"
#include "decode/view.cuh"

namespace quern::decode {

struct q5_k : KScales {
  static constexpr auto kFields = planar::q5_k_fields;
  static constexpr int kBlock = 256, kSlices = 8, kScales = 2, kBias = 0;
  static constexpr bool kDense = false, kSigned = false, kOffset = true, kSuper = true, kDotsFit16 = false;

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
};

}  // namespace quern::decode

// Q4_K: 256 weights in 8 subs of 32: d and dmin (f16), 12 bytes of 6-bit scales and mins, 128 bytes of nibbles. Each 32 bytes hold sub 2c
// in their low and sub 2c+1 in their high nibbles; value (d*sc)*q - dmin*m. A slice is 16 of those bytes: half of sub 2c and of sub 2c+1.
#pragma once

#include "decode/k_scales.cuh"
#include "decode/view.cuh"

namespace quern::decode {

struct q4_k : KScales {
  static constexpr auto kFields = planar::q4_k_fields;
  static constexpr int kBlock = 256, kSlices = 8, kScales = 2, kBias = 0;
  static constexpr bool kDense = false, kSigned = false, kOffset = true, kSuper = true, kDotsFit16 = true;

  struct Slice {
    u32 q[4];
    u32 header[4];  // d and dmin, then the 12 bytes
    int pair;       // c: which pair of subs
  };
  template <class View>
  static QUERN_FN Slice load(const View& view, int block, int slice) {
    Slice s;
    load_words<View::template alignment<0>()>(s.q, view.template field<0>(block) + 16 * slice);
    load_words<View::template alignment<1>()>(s.header, view.template field<1>(block));
    s.pair = slice / 2;
    return s;
  }
  static QUERN_FN u32 quad(const Slice& s, int q) { return (q < 4 ? s.q[q % 4] : s.q[q % 4] >> 4) & 0x0f0f0f0fu; }
};

}  // namespace quern::decode

// Q1_0: 128 weights, d (f16) and 128 bits; value +d where the bit is set, else -d.
#pragma once

#include "decode/bits.cuh"
#include "decode/view.cuh"

namespace quern::decode {

struct q1_0 {
  static constexpr auto kFields = planar::q1_0_fields;
  static constexpr int kBlock = 128, kSlices = 4, kScales = 1, kBias = 1;
  static constexpr bool kDense = false, kSigned = false, kOffset = false, kSuper = false;
  static constexpr int quad_k(int slice, int quad) { return 32 * slice + 4 * quad; }

  struct Slice {
    u32 q[1];
    u32 d;
  };
  template <class View>
  static QUERN_FN Slice load(const View& view, int block, int slice) {
    Slice s;
    load_words<View::template alignment<0>()>(s.q, view.template field<0>(block) + 4 * slice);
    s.d = ptx::load_stream(reinterpret_cast<const u16*>(view.template field<1>(block)));
    return s;
  }
  static QUERN_FN u32 quad(const Slice& s, int q) { return spread_bits(s.q[0] >> (4 * q)) << 1; }  // 0 or 2
  static QUERN_FN f32 scale(const Slice& s, int) { return f16_bits_to_f32(s.d); }
  static QUERN_FN f32 offset(const Slice&, int) { return 0.0f; }
};

}  // namespace quern::decode

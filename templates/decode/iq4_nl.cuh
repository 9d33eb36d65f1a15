// IQ4_NL: 32 weights, d (f16) and 16 bytes; byte j holds weight j low and weight j+16 high; value d * level[q].
#pragma once

#include "decode/iq4.cuh"
#include "decode/view.cuh"

namespace quern::decode {

struct iq4_nl {
  static constexpr auto kFields = planar::iq4_nl_fields;
  static constexpr int kBlock = 32, kSlices = 1, kScales = 1, kBias = 0;
  static constexpr bool kDense = false, kSigned = true, kOffset = false, kSuper = false;
  static constexpr int quad_k(int, int quad) { return 4 * quad; }

  struct Slice {
    u32 q[4];
    u32 d;
  };
  template <class View>
  static QUERN_FN Slice load(const View& view, int block, int) {
    Slice s;
    load_words<View::template alignment<0>()>(s.q, view.template field<0>(block));
    s.d = ptx::load_stream(reinterpret_cast<const u16*>(view.template field<1>(block)));
    return s;
  }
  static QUERN_FN u32 quad(const Slice& s, int q) { return look_up_nibbles(kIq4Levels, s.q[q % 4], q >= 4); }
  static QUERN_FN f32 scale(const Slice& s, int) { return f16_bits_to_f32(s.d); }
  static QUERN_FN f32 offset(const Slice&, int) { return 0.0f; }
};

}  // namespace quern::decode

// IQ4_XS: 256 weights in 8 subs of 32: d (f16), the top two bits of eight scales (u16), their low nibbles (4 bytes), 16 bytes for each sub,
// split as in IQ4_NL; value (d*(sc-32)) * level[q]. A slice is a sub.
#pragma once

#include "decode/iq4.cuh"
#include "decode/view.cuh"

namespace quern::decode {

struct iq4_xs {
  static constexpr auto kFields = planar::iq4_xs_fields;
  static constexpr int kBlock = 256, kSlices = 8, kScales = 1, kBias = 0;
  static constexpr bool kDense = false, kSigned = true, kOffset = false, kSuper = false;
  static constexpr int quad_k(int slice, int quad) { return 32 * slice + 4 * quad; }

  struct Slice {
    u32 q[4];
    u32 low[1];  // nibbles of all eight scales
    u32 d, top;  // top: bit pairs of all eight scales
    int sub;
  };
  template <class View>
  static QUERN_FN Slice load(const View& view, int block, int slice) {
    Slice s;
    load_words<View::template alignment<0>()>(s.q, view.template field<0>(block) + 16 * slice);
    load_words<View::template alignment<1>()>(s.low, view.template field<1>(block));
    s.d = ptx::load_stream(reinterpret_cast<const u16*>(view.template field<2>(block)));
    s.top = ptx::load_stream(reinterpret_cast<const u16*>(view.template field<3>(block)));
    s.sub = slice;
    return s;
  }
  static QUERN_FN u32 quad(const Slice& s, int q) { return look_up_nibbles(kIq4Levels, s.q[q % 4], q >= 4); }
  static QUERN_FN f32 scale(const Slice& s, int) {
    u32 biased = (s.low[0] >> (4 * s.sub) & 15u) | (s.top >> (2 * s.sub) & 3u) << 4;
    // As byte_to_f32, less the bias of 32 as well.
    return ptx::mul(f16_bits_to_f32(s.d), ptx::sub(ptx::float_from_bits(0x4b000000u | biased), 8388608.0f + 32.0f));
  }
  static QUERN_FN f32 offset(const Slice&, int) { return 0.0f; }
};

}  // namespace quern::decode

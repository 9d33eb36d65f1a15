// Q6_K: 256 weights in 16 subs of 16: 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 signed scales, d (f16); value (d*sc)*(q-32).
// Each half of 128 weights has 64 low and 32 high bytes: weight 32t+l has nibble t/2 of low byte l + 32(t%2) and bits 2t of high byte l.
// A slice is 16 low bytes: 16 weights of quarter t = u/2 in the low nibbles and 16 of quarter t+2 in the high ones.
#pragma once

#include "decode/view.cuh"

namespace quern::decode {

struct q6_k {
  static constexpr auto kFields = planar::q6_k_fields;
  static constexpr int kBlock = 256, kSlices = 8, kScales = 2, kBias = 32;
  static constexpr bool kDense = false, kSigned = false, kOffset = false, kSuper = true, kDotsFit16 = false;
  static constexpr int quad_k(int slice, int quad) {
    return 128 * (slice / 4) + 32 * (slice % 4 / 2) + 16 * (slice % 2) + 64 * (quad / 4) + 4 * (quad % 4);
  }

  struct Slice {
    u32 low[4];
    u32 high[4];    // bit pairs of all four quarters
    u32 scales[2];  // one signed byte each
    u32 d;
    int quarter;  // 0 or 1: the quarter of the low nibbles; the high nibbles are two further on
  };
  template <class View>
  static QUERN_FN Slice load(const View& view, int block, int slice) {
    Slice s;
    int half = slice / 4, part = slice % 2;
    s.quarter = slice % 4 / 2;
    load_words<View::template alignment<0>()>(s.low, view.template field<0>(block) + 16 * slice);
    load_words<View::template alignment<1>()>(s.high, view.template field<1>(block) + 32 * half + 16 * part);
    const u8* scales = view.template field<2>(block) + 8 * half + 2 * s.quarter + part;
    s.scales[0] = ptx::load_stream(scales), s.scales[1] = ptx::load_stream(scales + 4);
    s.d = ptx::load_stream(reinterpret_cast<const u16*>(view.template field<3>(block)));
    return s;
  }
  static QUERN_FN u32 quad(const Slice& s, int q) {
    u32 low = s.low[q % 4], high = s.high[q % 4] >> (2 * s.quarter);
    return q < 4 ? (low & 0x0f0f0f0fu) | (high & 0x03030303u) << 4 : ((low >> 4) & 0x0f0f0f0fu) | (high & 0x30303030u);
  }
  static QUERN_FN u32 packed_scales(const Slice& s) { return s.scales[0] | s.scales[1] << 8; }
  static QUERN_FN f32 super_scale(const Slice& s) { return f16_bits_to_f32(s.d); }
  static QUERN_FN f32 super_offset(const Slice&) { return 0.0f; }
  static QUERN_FN f32 scale(const Slice& s, int group) { return ptx::mul(super_scale(s), signed_byte_to_f32(s.scales[group], 0)); }
  static QUERN_FN f32 offset(const Slice&, int) { return 0.0f; }
};

}  // namespace quern::decode

// Q3_K: 256 weights in 16 subs of 16: 32 bytes of third bits, 64 bytes of bit pairs, 12 bytes of 6-bit scales, d (f16). Each half of 128
// weights has 32 bytes of pairs: weight 32p+l is plane p (bits 2p) of byte l, its third bit is bit 4*half+p of third-bit byte l; value
// (d*(sc-32))*(q-4). A slice is planes r and r+2 of 16 bytes.
#pragma once

#include "decode/view.cuh"

namespace quern::decode {

struct q3_k {
  static constexpr auto kFields = planar::q3_k_fields;
  static constexpr int kBlock = 256, kSlices = 8, kScales = 2, kBias = 4;
  static constexpr bool kDense = false, kSigned = false, kOffset = false, kSuper = true, kDotsFit16 = true;
  // slice = 4 * half + 2 * (which 16 bytes) + r: neighbours read the same bytes.
  static constexpr int quad_k(int slice, int quad) {
    return 128 * (slice / 4) + 32 * (slice % 2) + 16 * (slice % 4 / 2) + 64 * (quad / 4) + 4 * (quad % 4);
  }

  struct Slice {
    u32 q[4];
    u32 high[4];  // third bits of both halves and all planes
    u32 scales[3];
    u32 d;
    int slice;
  };
  template <class View>
  static QUERN_FN Slice load(const View& view, int block, int slice) {
    Slice s;
    int part = slice % 4 / 2;
    s.slice = slice;
    load_words<View::template alignment<0>()>(s.q, view.template field<0>(block) + 32 * (slice / 4) + 16 * part);
    load_words<View::template alignment<1>()>(s.high, view.template field<1>(block) + 16 * part);
    load_words<View::template alignment<2>()>(s.scales, view.template field<2>(block));
    s.d = ptx::load_stream(reinterpret_cast<const u16*>(view.template field<3>(block)));
    return s;
  }
  static QUERN_FN u32 quad(const Slice& s, int q) {
    int plane = s.slice % 2;
    u32 pairs = s.q[q % 4] >> (2 * plane + 4 * (q / 4)), third = s.high[q % 4] >> (4 * (s.slice / 4) + plane);
    return (pairs & 0x03030303u) | (q < 4 ? (third & 0x01010101u) << 2 : third & 0x04040404u);
  }
  // The slice's two subs are number 8*half + i and i + 4, i = 2r + part. Nibbles: byte i and i+4, low for half 0, high for half 1; top two
  // bits: byte 8+i, bits 4*half and 4*half + 2.
  static QUERN_FN u32 packed_scales(const Slice& s) {
    u32 half = static_cast<u32>(s.slice) / 4, i = static_cast<u32>(s.slice) % 2 * 2 + static_cast<u32>(s.slice) % 4 / 2;
    u32 nibbles = ptx::prmt(s.scales[0], s.scales[1], 0x40u + 0x11u * i) >> (4 * half) & 0x0f0fu;
    u32 top = s.scales[2] >> (8 * i + 4 * half);
    u32 biased = nibbles | (top & 3u) << 4 | (top & 12u) << 10;
    return ((biased | 0x8080u) - 0x2020u) ^ 0x8080u;  // both bytes less 32, signed
  }
  static QUERN_FN f32 super_scale(const Slice& s) { return f16_bits_to_f32(s.d); }
  static QUERN_FN f32 super_offset(const Slice&) { return 0.0f; }
  static QUERN_FN f32 scale(const Slice& s, int group) { return ptx::mul(super_scale(s), signed_byte_to_f32(packed_scales(s), group)); }
  static QUERN_FN f32 offset(const Slice&, int) { return 0.0f; }
};

}  // namespace quern::decode

// Q2_K: 256 weights in 16 subs of 16: 16 bytes of 4-bit scales (low) and mins (high), 64 bytes of bit pairs, d and dmin (f16). Each half of
// 128 weights has 32 bytes: weight 32p+l is plane p (bits 2p) of byte l; value (d*sc)*q - dmin*m. A slice is planes r and r+2 of 16 bytes.
#pragma once

#include "decode/view.cuh"

namespace quern::decode {

struct q2_k {
  static constexpr auto kFields = planar::q2_k_fields;
  static constexpr int kBlock = 256, kSlices = 8, kScales = 2, kBias = 0;
  static constexpr bool kDense = false, kSigned = false, kOffset = true, kSuper = true, kDotsFit16 = true;
  // slice = 4 * half + 2 * (which 16 bytes) + r: neighbours read the same bytes.
  static constexpr int quad_k(int slice, int quad) {
    return 128 * (slice / 4) + 32 * (slice % 2) + 16 * (slice % 4 / 2) + 64 * (quad / 4) + 4 * (quad % 4);
  }

  struct Slice {
    u32 q[4];
    u32 scales[2];  // of the half: planes 0 and 1, planes 2 and 3
    u32 d[1];       // d and dmin
    int plane;      // r
    int sub;        // within the first two planes
  };
  template <class View>
  static QUERN_FN Slice load(const View& view, int block, int slice) {
    Slice s;
    int half = slice / 4, part = slice % 4 / 2;
    s.plane = slice % 2;
    s.sub = 2 * s.plane + part;
    load_words<View::template alignment<0>()>(s.q, view.template field<0>(block) + 32 * half + 16 * part);
    load_words<View::template alignment<1>()>(s.scales, view.template field<1>(block) + 8 * half);
    load_words<View::template alignment<2>()>(s.d, view.template field<2>(block));
    return s;
  }
  static QUERN_FN u32 quad(const Slice& s, int q) { return s.q[q % 4] >> (2 * s.plane + 4 * (q / 4)) & 0x03030303u; }
  static QUERN_FN u32 packed_scales(const Slice& s) {
    u32 both = ptx::prmt(s.scales[0], s.scales[1], 0x40u + 0x11u * static_cast<u32>(s.sub));
    return (both & 0x0f0fu) | (both & 0xf0f0u) << 12;
  }
  static QUERN_FN f32 super_scale(const Slice& s) { return f16_bits_to_f32(s.d[0] & 0xffffu); }
  static QUERN_FN f32 super_offset(const Slice& s) { return f16_bits_to_f32(s.d[0] >> 16); }
  static QUERN_FN f32 scale(const Slice& s, int group) { return ptx::mul(super_scale(s), byte_to_f32(packed_scales(s), group)); }
  static QUERN_FN f32 offset(const Slice& s, int group) { return -ptx::mul(super_offset(s), byte_to_f32(packed_scales(s), 2 + group)); }
};

}  // namespace quern::decode

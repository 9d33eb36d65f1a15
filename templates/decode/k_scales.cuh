// What Q4_K and Q5_K share: the order of their slices, and 6-bit scales and mins beside d and dmin.
#pragma once

#include "decode/view.cuh"

namespace quern::decode {

// A Slice holds `header` (d and dmin, then the 12 bytes) and `pair` (c: it is half of sub 2c and half of sub 2c+1).
struct KScales {
  static constexpr int quad_k(int slice, int quad) { return 64 * (slice / 2) + 32 * (quad / 4) + 16 * (slice % 2) + 4 * (quad % 4); }

  // Bytes: sc of subs 2c and 2c+1, m of subs 2c and 2c+1. Subs 0-3 lie in bytes 0-7 of the 12, subs 4-7 in the low and high nibbles of
  // bytes 8-11 with their top two bits in bytes 0-7.
  template <class Slice>
  static QUERN_FN u32 packed_scales(const Slice& s) {
    int shift = 16 * (s.pair & 1);
    u32 b0 = s.header[1] >> shift, b1 = s.header[2] >> shift, b2 = s.header[3] >> shift;
    u32 sc = s.pair < 2 ? b0 & 0x3f3fu : (b2 & 0x0f0fu) | ((b0 >> 2) & 0x3030u);
    u32 m = s.pair < 2 ? b1 & 0x3f3fu : ((b2 >> 4) & 0x0f0fu) | ((b1 >> 2) & 0x3030u);
    return sc | m << 16;
  }
  template <class Slice>
  static QUERN_FN f32 super_scale(const Slice& s) {
    return f16_bits_to_f32(s.header[0] & 0xffffu);
  }
  template <class Slice>
  static QUERN_FN f32 super_offset(const Slice& s) {
    return f16_bits_to_f32(s.header[0] >> 16);
  }
  template <class Slice>
  static QUERN_FN f32 scale(const Slice& s, int group) {
    return ptx::mul(super_scale(s), byte_to_f32(packed_scales(s), group));
  }
  template <class Slice>
  static QUERN_FN f32 offset(const Slice& s, int group) {
    return -ptx::mul(super_offset(s), byte_to_f32(packed_scales(s), 2 + group));
  }
};

}  // namespace quern::decode

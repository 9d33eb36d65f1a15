// TQ1_0: 256 ternary weights as base-3 digits, d (f16); value d * (digit - 1). Digit n of a byte b is ((b * 3^n mod 256) * 3) >> 8. 32
// bytes hold five digits each (weight 32n + l), 16 bytes five (160 + 16n + l), 4 bytes four (240 + 4n + l). A slice is one word of each
// region: all five digits of a word of the first, and of a word w of the second either digits 0-2 (slices 0-3) or digits 3 and 4 (slices
// 4-7, with digit w of the third region's word in the last place).
#pragma once

#include "decode/view.cuh"

namespace quern::decode {

struct tq1_0 {
  static constexpr auto kFields = planar::tq1_0_fields;
  static constexpr int kBlock = 256, kSlices = 8, kScales = 1, kBias = 1;
  static constexpr bool kDense = false, kSigned = false, kOffset = false, kSuper = false;
  static constexpr int quad_k(int slice, int quad) {
    if (quad < 5) return 32 * quad + 4 * slice;
    if (quad == 7 && slice >= 4) return 240 + 4 * (slice % 4);
    return 160 + 16 * (quad - 5 + (slice < 4 ? 0 : 3)) + 4 * (slice % 4);
  }

  struct Slice {
    u32 first[1], second[1], third[1];
    u32 d;
    int slice;
  };
  template <class View>
  static QUERN_FN Slice load(const View& view, int block, int slice) {
    Slice s;
    const u8* bytes = view.template field<0>(block);
    load_words<View::template alignment<0>()>(s.first, bytes + 4 * slice);
    load_words<View::template alignment<0>()>(s.second, bytes + 32 + 4 * (slice % 4));
    load_words<View::template alignment<1>()>(s.third, view.template field<1>(block));
    s.d = ptx::load_stream(reinterpret_cast<const u16*>(view.template field<2>(block)));
    s.slice = slice;
    return s;
  }
  // The digits of four bytes that `power` = 3^n brings to the front: even and odd bytes apart, in 16 bits each.
  static QUERN_FN u32 digits(u32 word, u32 power) {
    u32 even = (word & 0x00ff00ffu) * power & 0x00ff00ffu, odd = (word >> 8 & 0x00ff00ffu) * power & 0x00ff00ffu;
    return ptx::prmt(even * 3, odd * 3, 0x7351u);
  }
  static QUERN_FN u32 quad(const Slice& s, int q) {
    constexpr u32 kPower[5] = {1, 3, 9, 27, 81};
    if (q < 5) return digits(s.first[0], kPower[q]);
    bool early = s.slice < 4;
    if (q == 5) return digits(s.second[0], early ? 1u : 27u);
    if (q == 6) return digits(s.second[0], early ? 3u : 81u);
    u32 third = ptx::prmt(0x1b090301u, 0u, 0x4440u | (static_cast<u32>(s.slice) & 3u));  // 3^w
    return digits(early ? s.second[0] : s.third[0], early ? 9u : third);
  }
  static QUERN_FN f32 scale(const Slice& s, int) { return f16_bits_to_f32(s.d); }
  static QUERN_FN f32 offset(const Slice&, int) { return 0.0f; }
};

}  // namespace quern::decode

// IQ1_M: 256 weights in 16 subs of 16: 32 low bytes of 11-bit codebook indices (8 ternary levels g each), 32 nibbles (three top index bits
// and the sign of the shift), four words of four 3-bit scales each with d (f16) in their top nibbles; value (d*(2*sc+1)) * (g +- 1/8). A
// slice is two subs.
#pragma once

#include "decode/grid.cuh"
#include "decode/iq1.cuh"
#include "decode/view.cuh"

namespace quern::decode {

struct iq1_m {
  static constexpr auto kFields = planar::iq1_m_fields;
  static constexpr int kBlock = 256, kSlices = 8, kScales = 2, kBias = kIq1Bias;
  static constexpr bool kDense = false, kSigned = false, kOffset = false, kSuper = false;
  static constexpr int quad_k(int slice, int quad) { return 32 * slice + 4 * quad; }

  struct Slice {
    u32 q[1];
    u32 high;       // four nibbles
    u32 scales[2];  // of the block
    int slice;
  };
  template <class View>
  static QUERN_FN Slice load(const View& view, int block, int slice) {
    Slice s;
    load_words<View::template alignment<0>()>(s.q, view.template field<0>(block) + 4 * slice);
    s.high = ptx::load_stream(reinterpret_cast<const u16*>(view.template field<1>(block)) + slice);
    load_words<View::template alignment<2>()>(s.scales, view.template field<2>(block));
    s.slice = slice;
    return s;
  }
  static QUERN_FN u32 quad(const Slice& s, int q) {
    int i = q / 2;
    u32 nibble = s.high >> (4 * i), index = (s.q[0] >> (8 * i) & 0xffu) | (nibble & 7u) << 8;
    return iq1_quad(ptx::load_cached(kGridIq1 + index), q % 2 == 1, (nibble & 8u) != 0);
  }
  // d's nibbles, lowest first, are the top ones of the four words.
  static QUERN_FN f32 super_scale(const Slice& s) {
    u32 nibbles = ptx::prmt(s.scales[0], s.scales[1], 0x7531u) >> 4 & 0x0f0f0f0fu;
    u32 pairs = (nibbles | nibbles >> 4) & 0x00ff00ffu;
    return f16_bits_to_f32((pairs | pairs >> 8) & 0xffffu);
  }
  // (2*sc + 1) / 8
  static QUERN_FN f32 scale(const Slice& s, int group) {
    u32 word = (s.slice < 4 ? s.scales[0] : s.scales[1]) >> (16 * (s.slice / 2 % 2) + 6 * (s.slice % 2));
    return ptx::mul(super_scale(s), odd_scale<-2>(word >> (3 * group) & 7u));
  }
  static QUERN_FN f32 offset(const Slice&, int) { return 0.0f; }
};

}  // namespace quern::decode

// IQ1_S: 256 weights in 8 subs of 32: d (f16), 32 low bytes of 11-bit codebook indices (8 ternary levels g each), for each sub a word of
// four top index bit triples, a 3-bit scale and the sign of the shift; value (d*(2*sc+1)) * (g +- 1/8). A slice is a sub.
#pragma once

#include "decode/grid.cuh"
#include "decode/iq1.cuh"
#include "decode/view.cuh"

namespace quern::decode {

struct iq1_s {
  static constexpr auto kFields = planar::iq1_s_fields;
  static constexpr int kBlock = 256, kSlices = 8, kScales = 1, kBias = kIq1Bias;
  static constexpr bool kDense = false, kSigned = false, kOffset = false, kSuper = false;
  static constexpr int quad_k(int slice, int quad) { return 32 * slice + 4 * quad; }

  struct Slice {
    u32 q[1];
    u32 high, d;
  };
  template <class View>
  static QUERN_FN Slice load(const View& view, int block, int slice) {
    Slice s;
    load_words<View::template alignment<0>()>(s.q, view.template field<0>(block) + 4 * slice);
    s.high = ptx::load_stream(reinterpret_cast<const u16*>(view.template field<1>(block)) + slice);
    s.d = ptx::load_stream(reinterpret_cast<const u16*>(view.template field<2>(block)));
    return s;
  }
  static QUERN_FN u32 quad(const Slice& s, int q) {
    int i = q / 2;
    u32 index = (s.q[0] >> (8 * i) & 0xffu) | (s.high >> (3 * i) & 7u) << 8;
    return iq1_quad(ptx::load_cached(kGridIq1 + index), q % 2 == 1, (s.high & 0x8000u) != 0);
  }
  // (2*sc + 1) / 8
  static QUERN_FN f32 scale(const Slice& s, int) { return ptx::mul(f16_bits_to_f32(s.d), odd_scale<-2>(s.high >> 12 & 7u)); }
  static QUERN_FN f32 offset(const Slice&, int) { return 0.0f; }
};

}  // namespace quern::decode

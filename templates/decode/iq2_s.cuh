// IQ2_S: 256 weights in 16 subs of 16: d (f16), 32 low bytes of 10-bit codebook indices (8 magnitudes each), 32 bytes of signs, 8 bytes of
// the indices' top bit pairs, a scale nibble for each sub; value (d*(sc+1/2)/4) * (+-magnitude). A slice is two subs.
#pragma once

#include "decode/grid.cuh"
#include "decode/grid_iq2_s.cuh"
#include "decode/view.cuh"

namespace quern::decode {

struct iq2_s {
  static constexpr auto kFields = planar::iq2_s_fields;
  static constexpr int kBlock = 256, kSlices = 8, kScales = 2, kBias = kGridBias;
  static constexpr bool kDense = false, kSigned = false, kOffset = false, kSuper = false;
  static constexpr int quad_k(int slice, int quad) { return 32 * slice + 4 * quad; }

  struct Slice {
    u32 q[1], signs[1];
    u32 top;     // four bit pairs
    u32 scales;  // two nibbles
    u32 d;
  };
  template <class View>
  static QUERN_FN Slice load(const View& view, int block, int slice) {
    Slice s;
    load_words<View::template alignment<0>()>(s.q, view.template field<0>(block) + 4 * slice);
    load_words<View::template alignment<1>()>(s.signs, view.template field<1>(block) + 4 * slice);
    s.top = ptx::load_stream(view.template field<2>(block) + slice);
    s.scales = ptx::load_stream(view.template field<3>(block) + slice);
    s.d = ptx::load_stream(reinterpret_cast<const u16*>(view.template field<4>(block)));
    return s;
  }
  static QUERN_FN u32 quad(const Slice& s, int q) {
    int i = q / 2;
    u32 index = (s.q[0] >> (8 * i) & 0xffu) | (s.top << (8 - 2 * i) & 0x300u);
    u32x2 entry = ptx::load_cached(kGridIq2S + index);
    return sign_quad(q % 2 == 0 ? entry.x : entry.y, s.signs[0] >> (4 * q));
  }
  static QUERN_FN f32 scale(const Slice& s, int group) {
    return ptx::mul(f16_bits_to_f32(s.d), odd_scale<-2>(s.scales >> (4 * group) & 15u));
  }
  static QUERN_FN f32 offset(const Slice&, int) { return 0.0f; }
};

}  // namespace quern::decode

// IQ2_XS: 256 weights in 16 subs of 16: d (f16), 32 words of 16 bits (a 9-bit codebook index for 8 magnitudes and a 7-bit sign code), a
// scale nibble for each sub; value (d*(sc+1/2)/4) * (+-magnitude). A slice is two subs.
#pragma once

#include "decode/grid.cuh"
#include "decode/grid_iq2_xs.cuh"
#include "decode/view.cuh"

namespace quern::decode {

struct iq2_xs {
  static constexpr auto kFields = planar::iq2_xs_fields;
  static constexpr int kBlock = 256, kSlices = 8, kScales = 2, kBias = kGridBias;
  static constexpr bool kDense = false, kSigned = false, kOffset = false, kSuper = false;
  static constexpr int quad_k(int slice, int quad) { return 32 * slice + 4 * quad; }

  struct Slice {
    u32 q[2];
    u32 scales;  // two nibbles
    u32 d;
  };
  template <class View>
  static QUERN_FN Slice load(const View& view, int block, int slice) {
    Slice s;
    load_words<View::template alignment<0>()>(s.q, view.template field<0>(block) + 8 * slice);
    s.scales = ptx::load_stream(view.template field<1>(block) + slice);
    s.d = ptx::load_stream(reinterpret_cast<const u16*>(view.template field<2>(block)));
    return s;
  }
  static QUERN_FN u32 quad(const Slice& s, int q) {
    u32x2 entry = ptx::load_cached(kGridIq2Xs + (s.q[q / 4] >> (16 * (q / 2 % 2)) & 0x1ffu));
    u32 codes = ptx::prmt(s.q[0], s.q[1], 0x7531u) >> 1 & 0x7f7f7f7fu;
    return sign_quad(q % 2 == 0 ? entry.x : entry.y, even_signs(codes) >> (4 * q));
  }
  static QUERN_FN f32 scale(const Slice& s, int group) {
    return ptx::mul(f16_bits_to_f32(s.d), odd_scale<-2>(s.scales >> (4 * group) & 15u));
  }
  static QUERN_FN f32 offset(const Slice&, int) { return 0.0f; }
};

}  // namespace quern::decode

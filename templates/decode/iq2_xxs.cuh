// IQ2_XXS: 256 weights in 8 subs of 32: d (f16), for each sub four codebook indices of a byte (8 magnitudes each) and a word of four 7-bit
// sign codes and a 4-bit scale; value (d*(sc+1/2)/4) * (+-magnitude). A slice is a sub.
#pragma once

#include "decode/grid.cuh"
#include "decode/grid_iq2_xxs.cuh"
#include "decode/view.cuh"

namespace quern::decode {

struct iq2_xxs {
  static constexpr auto kFields = planar::iq2_xxs_fields;
  static constexpr int kBlock = 256, kSlices = 8, kScales = 1, kBias = kGridBias;
  static constexpr bool kDense = false, kSigned = false, kOffset = false, kSuper = false;
  static constexpr int quad_k(int slice, int quad) { return 32 * slice + 4 * quad; }

  struct Slice {
    u32 q[2];  // indices; signs and scale
    u32 d;
  };
  template <class View>
  static QUERN_FN Slice load(const View& view, int block, int slice) {
    Slice s;
    load_words<View::template alignment<0>()>(s.q, view.template field<0>(block) + 8 * slice);
    s.d = ptx::load_stream(reinterpret_cast<const u16*>(view.template field<1>(block)));
    return s;
  }
  static QUERN_FN u32 quad(const Slice& s, int q) {
    u32x2 entry = ptx::load_cached(kGridIq2Xxs + (s.q[0] >> (8 * (q / 2)) & 0xffu));
    return sign_quad(q % 2 == 0 ? entry.x : entry.y, even_signs(spread_sevens(s.q[1])) >> (4 * q));
  }
  static QUERN_FN f32 scale(const Slice& s, int) { return ptx::mul(f16_bits_to_f32(s.d), odd_scale<-2>(s.q[1] >> 28)); }
  static QUERN_FN f32 offset(const Slice&, int) { return 0.0f; }
};

}  // namespace quern::decode

// IQ3_S: 256 weights in 8 subs of 32: d (f16), 64 low bytes of 9-bit codebook indices (4 magnitudes each), 8 bytes of the indices' top
// bits, 32 bytes of signs, a scale nibble for each sub; value (d*(1+2*sc)) * (+-magnitude). A slice is a sub.
#pragma once

#include "decode/grid.cuh"
#include "decode/grid_iq3_s.cuh"
#include "decode/view.cuh"

namespace quern::decode {

struct iq3_s {
  static constexpr auto kFields = planar::iq3_s_fields;
  static constexpr int kBlock = 256, kSlices = 8, kScales = 1, kBias = kGridBias;
  static constexpr bool kDense = false, kSigned = false, kOffset = false, kSuper = false;
  static constexpr int quad_k(int slice, int quad) { return 32 * slice + 4 * quad; }

  struct Slice {
    u32 q[2], signs[1];
    u32 top;     // eight bits
    u32 scales;  // the nibbles of this sub and its neighbour
    u32 d;
    int sub;
  };
  template <class View>
  static QUERN_FN Slice load(const View& view, int block, int slice) {
    Slice s;
    load_words<View::template alignment<0>()>(s.q, view.template field<0>(block) + 8 * slice);
    load_words<View::template alignment<1>()>(s.signs, view.template field<1>(block) + 4 * slice);
    s.top = ptx::load_stream(view.template field<2>(block) + slice);
    s.scales = ptx::load_stream(view.template field<3>(block) + slice / 2);
    s.d = ptx::load_stream(reinterpret_cast<const u16*>(view.template field<4>(block)));
    s.sub = slice;
    return s;
  }
  static QUERN_FN u32 quad(const Slice& s, int q) {
    u32 index = (s.q[q / 4] >> (8 * (q % 4)) & 0xffu) | (s.top << (8 - q) & 0x100u);
    return sign_quad(ptx::load_cached(kGridIq3S + index), s.signs[0] >> (4 * q));
  }
  static QUERN_FN f32 scale(const Slice& s, int) {
    return ptx::mul(f16_bits_to_f32(s.d), odd_scale<1>(s.scales >> (4 * (s.sub % 2)) & 15u));
  }
  static QUERN_FN f32 offset(const Slice&, int) { return 0.0f; }
};

}  // namespace quern::decode

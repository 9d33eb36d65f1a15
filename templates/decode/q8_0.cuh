// Q8_0: 32 weights, d (f16) and 32 signed bytes; value d * q.
#pragma once

#include "decode/view.cuh"

namespace quern::decode {

struct q8_0 {
  static constexpr auto kFields = planar::q8_0_fields;
  static constexpr int kBlock = 32, kSlices = 1, kScales = 1, kBias = 0;
  static constexpr bool kDense = false, kSigned = true, kOffset = false, kSuper = false;
  static constexpr int quad_k(int, int quad) { return 4 * quad; }

  struct Slice {
    u32 q[8];
    u32 d;
  };
  template <class View>
  static QUERN_FN Slice load(const View& view, int block, int) {
    Slice s;
    load_words<View::template alignment<0>()>(s.q, view.template field<0>(block));
    s.d = ptx::load_stream(reinterpret_cast<const u16*>(view.template field<1>(block)));
    return s;
  }
  // The same, but `first`, 0 or 16, says with which of its bytes q begins; the other half follows.
  template <class View>
  static QUERN_FN Slice load_halves(const View& view, int block, int first) {
    Slice s;
    const u8* bytes = view.template field<0>(block);
    u32x4 a = ptx::load_stream(reinterpret_cast<const u32x4*>(bytes + first));
    u32x4 b = ptx::load_stream(reinterpret_cast<const u32x4*>(bytes + (16 - first)));
    s.q[0] = a.x, s.q[1] = a.y, s.q[2] = a.z, s.q[3] = a.w;
    s.q[4] = b.x, s.q[5] = b.y, s.q[6] = b.z, s.q[7] = b.w;
    s.d = ptx::load_stream(reinterpret_cast<const u16*>(view.template field<1>(block)));
    return s;
  }
  static QUERN_FN u32 quad(const Slice& s, int q) { return s.q[q]; }
  static QUERN_FN f32 scale(const Slice& s, int) { return f16_bits_to_f32(s.d); }
  static QUERN_FN f32 offset(const Slice&, int) { return 0.0f; }
};

}  // namespace quern::decode

// TQ2_0: 256 weights, 64 bytes of bit pairs, d (f16). Each half of 128 weights has 32 bytes: weight 32p+l is plane p (bits 2p) of byte l;
// value d * (q - 1). A slice is all four planes of 8 bytes.
#pragma once

#include "decode/view.cuh"

namespace quern::decode {

struct tq2_0 {
  static constexpr auto kFields = planar::tq2_0_fields;
  static constexpr int kBlock = 256, kSlices = 8, kScales = 1, kBias = 1;
  static constexpr bool kDense = false, kSigned = false, kOffset = false, kSuper = false;
  static constexpr int quad_k(int slice, int quad) { return 128 * (slice / 4) + 32 * (quad / 2) + 8 * (slice % 4) + 4 * (quad % 2); }

  struct Slice {
    u32 q[2];
    u32 d;
  };
  template <class View>
  static QUERN_FN Slice load(const View& view, int block, int slice) {
    Slice s;
    load_words<View::template alignment<0>()>(s.q, view.template field<0>(block) + 8 * slice);
    s.d = ptx::load_stream(reinterpret_cast<const u16*>(view.template field<1>(block)));
    return s;
  }
  static QUERN_FN u32 quad(const Slice& s, int q) { return s.q[q % 2] >> (2 * (q / 2)) & 0x03030303u; }
  static QUERN_FN f32 scale(const Slice& s, int) { return f16_bits_to_f32(s.d); }
  static QUERN_FN f32 offset(const Slice&, int) { return 0.0f; }
};

}  // namespace quern::decode

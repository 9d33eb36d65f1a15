// MXFP4: 32 weights, e (E8M0) and 16 bytes; byte j holds weight j low and weight j+16 high; value T[q] * 2^(e-128), T the doubled E2M1
// values. The smallest scales, e = 0 and 1, are f32 denormals and stay; e = 255 is 2^127.
#pragma once

#include "decode/e2m1.cuh"
#include "decode/view.cuh"

namespace quern::decode {

struct mxfp4 {
  static constexpr auto kFields = planar::mxfp4_fields;
  static constexpr int kBlock = 32, kSlices = 1, kScales = 1, kBias = kE2m1Bias;
  static constexpr bool kDense = false, kSigned = false, kOffset = false, kSuper = false;
  static constexpr int quad_k(int, int quad) { return 4 * quad; }

  struct Slice {
    u32 q[4];
    u32 e;
  };
  template <class View>
  static QUERN_FN Slice load(const View& view, int block, int) {
    Slice s;
    load_words<View::template alignment<0>()>(s.q, view.template field<0>(block));
    s.e = ptx::load_stream(view.template field<1>(block));
    return s;
  }
  static QUERN_FN u32 quad(const Slice& s, int q) { return look_up_nibbles(kBiasedE2m1, s.q[q % 4], q >= 4); }
  // Exponent bits e - 1 for the normal ones; below, one mantissa bit.
  static QUERN_FN f32 scale(const Slice& s, int) { return ptx::float_from_bits(s.e < 2 ? 0x00200000u << s.e : (s.e - 1) << 23); }
  static QUERN_FN f32 offset(const Slice&, int) { return 0.0f; }
};

}  // namespace quern::decode

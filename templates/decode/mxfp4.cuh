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

  // The scale in two factors, for kernels that sum products of integers, below 2^16, before they scale them: 2^127 times the sum would be
  // infinite where the output need not be. And such a sum does not show that a weight is infinite (from e = 253 on, T of 8, 4 and 2 and
  // more are beyond f32): then the outer factor is.
  static QUERN_FN f32 inner_scale(const Slice& s) {
    return ptx::float_from_bits(s.e < 2 ? 0x00200000u << s.e : (least(s.e, 232u) - 1) << 23);
  }
  static QUERN_FN f32 outer_scale(const Slice& s) {
    u32 infinite = 0;
    if (s.e >= 253) QUERN_UNROLL
    for (int i = 0; i < 4; ++i) infinite |= s.q[i] & (s.e == 255 ? 0x66666666u : s.e == 254 ? 0x44444444u : s.q[i] << 1 & 0x44444444u);
    return ptx::float_from_bits(infinite != 0 ? 0x7f800000u : (127u + s.e - least(s.e, 232u)) << 23);
  }
  static QUERN_FN u32 least(u32 a, u32 b) { return a < b ? a : b; }
};

}  // namespace quern::decode

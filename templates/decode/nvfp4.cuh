// NVFP4: 64 weights in 4 subs of 16: four scales (UE4M3) and 8 bytes for each sub; byte j of a sub holds its weight j low and j+8 high;
// value T[q] * scale / 2, T the doubled E2M1 values. A slice is two subs.
#pragma once

#include "decode/e2m1.cuh"
#include "decode/view.cuh"

namespace quern::decode {

struct nvfp4 {
  static constexpr auto kFields = planar::nvfp4_fields;
  static constexpr int kBlock = 64, kSlices = 2, kScales = 2, kBias = kE2m1Bias;
  static constexpr bool kDense = false, kSigned = false, kOffset = false, kSuper = false;
  static constexpr int quad_k(int slice, int quad) { return 32 * slice + 4 * quad; }

  struct Slice {
    u32 q[4];
    u32 scales[1];  // of the block
    int slice;
  };
  template <class View>
  static QUERN_FN Slice load(const View& view, int block, int slice) {
    Slice s;
    load_words<View::template alignment<0>()>(s.q, view.template field<0>(block) + 16 * slice);
    load_words<View::template alignment<1>()>(s.scales, view.template field<1>(block));
    s.slice = slice;
    return s;
  }
  static QUERN_FN u32 quad(const Slice& s, int q) { return look_up_nibbles(kBiasedE2m1, s.q[q / 4 * 2 + q % 2], q % 4 >= 2); }
  // The seven low bits of UE4M3 are the top of an f16 whose exponent bias is 8 larger: 2^8 makes it up, 1/2 is the formula's. 0x7f counts
  // as 0.
  static QUERN_FN f32 scale(const Slice& s, int group) {
    u32 bits = s.scales[0] >> (16 * s.slice + 8 * group) & 0xffu;
    return bits == 0x7fu ? 0.0f : ptx::mul(f16_bits_to_f32((bits & 0x7fu) << 7), 128.0f);
  }
  static QUERN_FN f32 offset(const Slice&, int) { return 0.0f; }
};

}  // namespace quern::decode

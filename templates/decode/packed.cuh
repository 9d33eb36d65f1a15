// Weights as packed pairs of 16-bit floats, for the tensor cores. The byte becomes a float by placing it under a constant exponent (exact),
// the bias comes off (exact), the scale multiplies: per pair one permute, one subtraction, one multiply, where conversion through f32 takes
// seven instructions. Rounding: the scale and the product once each to f16 or bf16.
#pragma once

#include "decode/slice.cuh"

namespace quern {

template <bool kBf16>
struct Packed {
  static QUERN_FN u32 pack(f32 low, f32 high) { return kBf16 ? ptx::pack_bf16x2(low, high) : ptx::pack_f16x2(low, high); }
  static QUERN_FN u32 mul(u32 a, u32 b) {
    if constexpr (kBf16)
      return ptx::mul_bf16x2(a, b);
    else
      return ptx::mul_f16x2(a, b);
  }
  static QUERN_FN u32 sub(u32 a, u32 b) {
    if constexpr (kBf16)
      return ptx::sub_bf16x2(a, b);
    else
      return ptx::sub_f16x2(a, b);
  }
  static QUERN_FN u32 fma(u32 a, u32 b, u32 c) {
    if constexpr (kBf16)
      return ptx::fma_bf16x2(a, b, c);
    else
      return ptx::fma_f16x2(a, b, c);
  }
};

// Scales and offsets of a slice, each doubled into a pair.
template <class D, bool kBf16>
struct PackedScales {
  u32 scale[D::kScales], offset[D::kScales];

  static QUERN_FN PackedScales of(const typename D::Slice& slice) {
    PackedScales p{};
    if constexpr (!D::kDense) {
      QUERN_UNROLL
      for (int g = 0; g < D::kScales; ++g) {
        f32 scale = D::scale(slice, g), offset = D::offset(slice, g);
        p.scale[g] = Packed<kBf16>::pack(scale, scale);
        p.offset[g] = D::kOffset ? Packed<kBf16>::pack(offset, offset) : 0u;
      }
    }
    return p;
  }
};

// Two bytes of a quad (`selector` 0x40 | first ...) as exact packed floats, bias removed.
template <class D, bool kBf16>
QUERN_FN u32 packed_bytes(u32 quad, u32 selector) {
  using P = Packed<kBf16>;
  if constexpr (kBf16) {
    u32 pair = ptx::prmt(quad, 0x43434343u, selector);  // 128 + low seven bits of the byte, plus 128 where its top bit is set
    if constexpr (D::kSigned)
      return P::sub(pair & 0xff7fff7fu, pair & 0xff80ff80u);  // (128 + low seven) - (128 + 128 * sign)
    else
      return P::sub(pair, (0x4300u + D::kBias) * 0x00010001u);  // 128 + bias
  } else {
    u32 pair = ptx::prmt(D::kSigned ? quad ^ 0x80808080u : quad, 0x64646464u, selector);  // 1024 + byte
    return P::sub(pair, (0x6400u + (D::kSigned ? 128 : D::kBias)) * 0x00010001u);
  }
}

// Quad `q` of a slice as two packed pairs.
template <class D, bool kBf16>
QUERN_FN void packed_quad(u32 (&pair)[2], const typename D::Slice& slice, const PackedScales<D, kBf16>& scales, int q) {
  using P = Packed<kBf16>;
  if constexpr (D::kDense) {
    pair[0] = P::pack(D::value(slice, q, 0), D::value(slice, q, 1));
    pair[1] = P::pack(D::value(slice, q, 2), D::value(slice, q, 3));
  } else {
    int group = D::kScales == 2 ? q / 4 : 0;
    u32 quad = D::quad(slice, q);
    if constexpr (D::kOffset && !kBf16) {
      // Scale and offset may cancel: rounded to f16 each, they would leave a small weight an error of the size of a large one, which a
      // short sum does not average out (Q4_K over three rows missed the class `tight` by a factor of three).
      QUERN_UNROLL
      for (int i = 0; i < 2; ++i) {
        f32 v[2];
        QUERN_UNROLL
        for (int e = 0; e < 2; ++e) v[e] = ptx::fma(D::scale(slice, group), byte_value<D>(quad, 2 * i + e), D::offset(slice, group));
        pair[i] = P::pack(v[0], v[1]);
      }
      return;
    }
    QUERN_UNROLL
    for (int i = 0; i < 2; ++i) {
      u32 bytes = packed_bytes<D, kBf16>(quad, i == 0 ? 0x4140u : 0x4342u);
      pair[i] = D::kOffset ? P::fma(bytes, scales.scale[group], scales.offset[group]) : P::mul(bytes, scales.scale[group]);
    }
  }
}

}  // namespace quern

// What the codebook types IQ1, IQ2 and IQ3 share.
//
// IQ2 and IQ3 look up magnitudes 1..62 and sign them by a bit each. A table holds 64 + magnitude, so that a quad is unsigned with kGridBias
// and a minus is 128 - byte = (byte ^ 0x7f) + 1: two operations on four bytes, without carries between them.
#pragma once

#include "decode/bits.cuh"

namespace quern::decode {

inline constexpr int kGridBias = 64;

// `entry` with the signs of the low four bits of `signs` (1: minus).
QUERN_FN u32 sign_quad(u32 entry, u32 signs) {
  u32 minus = spread_bits(signs);
  return (entry ^ minus * 127u) + minus;
}

// Four sign codes of seven bits, in bytes: the eighth makes the number of minuses even.
QUERN_FN u32 even_signs(u32 codes) {
  u32 parity = codes ^ codes >> 4;
  parity ^= parity >> 2;
  parity ^= parity >> 1;
  return codes | (parity << 7 & 0x80808080u);
}

// The low 28 bits as four codes of seven, each in its byte.
QUERN_FN u32 spread_sevens(u32 x) { return (x & 0x7fu) | (x << 1 & 0x7f00u) | (x << 2 & 0x7f0000u) | (x << 3 & 0x7f000000u); }

// (s + 1/2) * 2^kUnit for s < 2^22, exactly: s counts units of 2^kUnit above 2^(23 + kUnit).
template <int kUnit>
QUERN_FN f32 odd_scale(u32 s) {
  constexpr f32 kUnitValue = kUnit == -2 ? 0.25f : kUnit == -1 ? 0.5f : 2.0f;
  static_assert(kUnit == -2 || kUnit == -1 || kUnit == 1, "units of 1/4, 1/2 and 2");
  return ptx::sub(ptx::float_from_bits(static_cast<u32>(127 + 23 + kUnit) << 23 | s), kUnitValue * 8388607.5f);
}

}  // namespace quern::decode

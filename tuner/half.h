// Exact conversions between f32 and the two 16-bit float formats, by integer arithmetic: no hardware mode, no compiler flag changes them.
// Widening is exact. Narrowing rounds to nearest, ties to even; denormals are kept, overflow gives infinity, a NaN stays a quiet NaN.
#pragma once

#include <bit>
#include <cstdint>

namespace quern {

constexpr float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1Fu;
  const std::uint32_t mantissa = half & 0x3FFu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  // Denormal: mantissa * 2^-24, exact in f32.
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
}

constexpr std::uint16_t float_to_half(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint16_t sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<std::uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x1FFu));
  // 65520 is the tie between the largest half and the next power of two; it and all above round to infinity.
  if (magnitude >= 0x477FF000u) return static_cast<std::uint16_t>(sign | 0x7C00u);
  const bool denormal = magnitude < 0x38800000u;  // below 2^-14
  // Below 2^-25 everything rounds to zero; 2^-25 itself is a tie with zero, which is even.
  if (magnitude <= 0x33000000u) return sign;
  const std::uint32_t exponent = magnitude >> 23;
  // A denormal's shift brings the significand to units of 2^-24; a normal's drops the 13 extra bits.
  const std::uint32_t shift = denormal ? 126 - exponent : 13;
  const std::uint32_t source = denormal ? ((magnitude & 0x7FFFFFu) | 0x800000u) : magnitude - 0x38000000u;
  const std::uint32_t kept = source >> shift;
  const std::uint32_t dropped = source & ((1u << shift) - 1);
  const std::uint32_t half_unit = 1u << (shift - 1);
  const std::uint32_t up = dropped > half_unit || (dropped == half_unit && (kept & 1u)) ? 1 : 0;
  return static_cast<std::uint16_t>(sign | (kept + up));  // a carry runs into the exponent, as it should
}

constexpr float bfloat16_to_float(std::uint16_t value) { return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16); }

constexpr std::uint16_t float_to_bfloat16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace quern

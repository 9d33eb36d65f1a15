#include "tuner/oracle_blocks.h"

#include <cmath>

namespace quern::oracle {
namespace {

// E2M1 values, doubled: T in the formats' definitions.
constexpr float kDoubledE2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Element j of 32 whose nibbles are split: byte j % 16, low nibble for the first half.
unsigned split_nibble(const std::byte* qs, int j) { return (byte_at(qs, j % 16) >> (4 * (j / 16))) & 15u; }

// The fifth bit of element j: bit j of a 32-bit word.
unsigned fifth_bit(const std::byte* qh, int j) { return ((u32_at(qh, 0) >> j) & 1u) << 4; }

// Unsigned E4M3, bias 7, halved because T is doubled. 0x7F (NaN) counts as zero; the top bit is ignored.
float half_of_ue4m3(unsigned bits) {
  if (bits == 0x7F) return 0.0f;
  const int exponent = static_cast<int>((bits >> 3) & 15u);
  const float mantissa = static_cast<float>(bits & 7u);
  const float value = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(1.0f + mantissa / 8.0f, exponent - 7);
  return value * 0.5f;
}

}  // namespace

void decode_f32(const std::byte* block, float* out) { *out = std::bit_cast<float>(u32_at(block, 0)); }
void decode_f16(const std::byte* block, float* out) { *out = half_at(block, 0); }
void decode_bf16(const std::byte* block, float* out) { *out = bfloat16_to_float(static_cast<std::uint16_t>(u16_at(block, 0))); }

void decode_q4_0(const std::byte* block, float* out) {
  const float d = half_at(block, 0);
  for (int j = 0; j < 32; ++j) out[j] = d * static_cast<float>(static_cast<int>(split_nibble(block + 2, j)) - 8);
}

void decode_q4_1(const std::byte* block, float* out) {
  const float d = half_at(block, 0), m = half_at(block, 2);
  for (int j = 0; j < 32; ++j) {
    const float product = d * static_cast<float>(split_nibble(block + 4, j));
    out[j] = product + m;
  }
}

void decode_q5_0(const std::byte* block, float* out) {
  const float d = half_at(block, 0);
  for (int j = 0; j < 32; ++j) out[j] = d * static_cast<float>(static_cast<int>(split_nibble(block + 6, j) | fifth_bit(block + 2, j)) - 16);
}

void decode_q5_1(const std::byte* block, float* out) {
  const float d = half_at(block, 0), m = half_at(block, 2);
  for (int j = 0; j < 32; ++j) {
    const float product = d * static_cast<float>(split_nibble(block + 8, j) | fifth_bit(block + 4, j));
    out[j] = product + m;
  }
}

void decode_q8_0(const std::byte* block, float* out) {
  const float d = half_at(block, 0);
  for (int j = 0; j < 32; ++j) out[j] = static_cast<float>(signed_byte_at(block, 2 + j)) * d;
}

// Base-3 digits as fixed-point fractions: digit n is the integer part of 3 * frac(b/256 * 3^n).
void decode_tq1_0(const std::byte* block, float* out) {
  constexpr unsigned kPower3[5] = {1, 3, 9, 27, 81};
  const float d = half_at(block, 52);
  for (int e = 0; e < 256; ++e) {
    // 32 bytes of five planes, 16 bytes of five planes, 4 bytes of four planes.
    const int base = e < 160 ? 0 : e < 240 ? 160 : 240;
    const int width = e < 160 ? 32 : e < 240 ? 16 : 4;
    const int first_byte = e < 160 ? 0 : e < 240 ? 32 : 48;
    const int plane = (e - base) / width;
    const unsigned fraction = (byte_at(block, first_byte + (e - base) % width) * kPower3[plane]) & 255u;
    out[e] = d * static_cast<float>(static_cast<int>((fraction * 3) >> 8) - 1);
  }
}

void decode_tq2_0(const std::byte* block, float* out) {
  const float d = half_at(block, 64);
  for (int e = 0; e < 256; ++e) {
    const int half = e / 128, plane = e % 128 / 32, l = e % 32;
    out[e] = d * static_cast<float>(static_cast<int>((byte_at(block, 32 * half + l) >> (2 * plane)) & 3u) - 1);
  }
}

// The scale is 2^(e-128), half of E8M0's 2^(e-127) because T is doubled; e = 0 and 1 are f32 denormals and stay.
void decode_mxfp4(const std::byte* block, float* out) {
  const float d = std::ldexp(1.0f, static_cast<int>(byte_at(block, 0)) - 128);
  for (int j = 0; j < 32; ++j) out[j] = d * kDoubledE2m1[split_nibble(block + 1, j)];
}

void decode_nvfp4(const std::byte* block, float* out) {
  for (int e = 0; e < 64; ++e) {
    const int sub = e / 16, j = e % 16;
    const unsigned q = (byte_at(block, 4 + 8 * sub + j % 8) >> (4 * (j / 8))) & 15u;
    out[e] = half_of_ue4m3(byte_at(block, sub)) * kDoubledE2m1[q];
  }
}

void decode_q1_0(const std::byte* block, float* out) {
  const float d = half_at(block, 0);
  for (int e = 0; e < 128; ++e) out[e] = (byte_at(block, 2 + e / 8) >> (e % 8)) & 1u ? d : -d;
}

void decode_q2_0(const std::byte* block, float* out) {
  const float d = half_at(block, 0);
  for (int e = 0; e < 64; ++e) out[e] = static_cast<float>(static_cast<int>((byte_at(block, 2 + e / 4) >> (2 * (e % 4))) & 3u) - 1) * d;
}

}  // namespace quern::oracle

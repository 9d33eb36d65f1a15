#include <bit>

#include "tuner/oracle_blocks.h"

namespace quern::oracle {
namespace {

#include "tuner/oracle_grids.inc"

constexpr float kIq2Levels[4] = {8, 25, 43, 0};  // index 3 never occurs in a codebook
constexpr float kIq3XxsLevels[8] = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr float kIq3SLevels[8] = {1, 3, 5, 7, 9, 11, 13, 15};
constexpr float kIq4Levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

float iq2_level(unsigned entry, int j) { return kIq2Levels[(entry >> (2 * j)) & 3u]; }
float iq1_level(unsigned entry, int j) { return static_cast<float>(static_cast<int>((entry >> (2 * j)) & 3u) - 1); }

float sign_of(unsigned signs, int j) { return (signs >> j) & 1u ? -1.0f : 1.0f; }
// Seven stored signs; the eighth makes the number of minuses even.
unsigned even_signs(unsigned seven) { return seven | (static_cast<unsigned>(std::popcount(seven)) & 1u) << 7; }

float iq2_scale(float d, unsigned s) { return d * (0.5f + static_cast<float>(s)) * 0.25f; }

// Eight elements of an IQ2 type.
void decode_iq2_eight(float scale, unsigned entry, unsigned signs, float* out) {
  for (int j = 0; j < 8; ++j) out[j] = scale * iq2_level(entry, j) * sign_of(signs, j);
}

// Eight elements of an IQ1 type: ternary levels shifted by an eighth.
void decode_iq1_eight(float scale, unsigned entry, bool minus, float* out) {
  for (int j = 0; j < 8; ++j) out[j] = scale * (iq1_level(entry, j) + (minus ? -0.125f : 0.125f));
}

}  // namespace

// Per 32 elements: four codebook indices of a byte, then 4 x 7 sign bits and a 4-bit scale.
void decode_iq2_xxs(const std::byte* block, float* out) {
  const float d = half_at(block, 0);
  for (int i = 0; i < 32; ++i) {
    const std::byte* group = block + 2 + 8 * (i / 4);
    const std::uint32_t packed = u32_at(group, 4);
    const unsigned signs = even_signs((packed >> (7 * (i % 4))) & 127u);
    decode_iq2_eight(iq2_scale(d, packed >> 28), kIq2XxsGrid[byte_at(group, i % 4)], signs, out + 8 * i);
  }
}

void decode_iq2_xs(const std::byte* block, float* out) {
  const float d = half_at(block, 0);
  for (int i = 0; i < 32; ++i) {
    const unsigned packed = u16_at(block, 2 + 2 * i);
    decode_iq2_eight(iq2_scale(d, nibble_at(block + 66, i / 2)), kIq2XsGrid[packed & 511u], even_signs(packed >> 9), out + 8 * i);
  }
}

void decode_iq2_s(const std::byte* block, float* out) {
  const float d = half_at(block, 0);
  for (int i = 0; i < 32; ++i) {
    const unsigned high = (byte_at(block, 66 + i / 4) >> (2 * (i % 4))) & 3u;
    decode_iq2_eight(iq2_scale(d, nibble_at(block + 74, i / 2)), kIq2SGrid[byte_at(block, 2 + i) | high << 8], byte_at(block, 34 + i),
                     out + 8 * i);
  }
}

void decode_iq3_xxs(const std::byte* block, float* out) {
  const float d = half_at(block, 0);
  for (int i = 0; i < 64; ++i) {  // four elements each
    const std::uint32_t packed = u32_at(block, 66 + 4 * (i / 8));
    const unsigned signs = even_signs((packed >> (7 * (i % 8 / 2))) & 127u);
    const float scale = d * (0.5f + static_cast<float>(packed >> 28)) * 0.5f;
    const unsigned entry = kIq3XxsGrid[byte_at(block, 2 + i)];
    for (int j = 0; j < 4; ++j) out[4 * i + j] = scale * kIq3XxsLevels[(entry >> (3 * j)) & 7u] * sign_of(signs, 4 * (i % 2) + j);
  }
}

void decode_iq3_s(const std::byte* block, float* out) {
  const float d = half_at(block, 0);
  for (int i = 0; i < 64; ++i) {  // four elements each
    const unsigned high = (byte_at(block, 66 + i / 8) >> (i % 8)) & 1u;
    const unsigned entry = kIq3SGrid[byte_at(block, 2 + i) | high << 8];
    const unsigned signs = byte_at(block, 74 + i / 2);
    const float scale = d * static_cast<float>(1 + 2 * nibble_at(block + 106, i / 8));
    for (int j = 0; j < 4; ++j) out[4 * i + j] = scale * kIq3SLevels[(entry >> (3 * j)) & 7u] * sign_of(signs, 4 * (i % 2) + j);
  }
}

void decode_iq1_s(const std::byte* block, float* out) {
  const float d = half_at(block, 0);
  for (int i = 0; i < 32; ++i) {
    const unsigned qh = u16_at(block, 34 + 2 * (i / 4));
    const float scale = d * static_cast<float>(2 * ((qh >> 12) & 7u) + 1);
    const unsigned index = byte_at(block, 2 + i) | ((qh >> (3 * (i % 4))) & 7u) << 8;
    decode_iq1_eight(scale, kIq1Grid[index], qh & 0x8000u, out + 8 * i);
  }
}

// The f16 scale is spread over the top nibbles of the four scale words, lowest nibble first.
void decode_iq1_m(const std::byte* block, float* out) {
  unsigned bits = 0;
  for (int w = 0; w < 4; ++w) bits |= u16_at(block, 48 + 2 * w) >> 12 << (4 * w);
  const float d = half_to_float(static_cast<std::uint16_t>(bits));
  for (int i = 0; i < 32; ++i) {
    const int sub = i / 2;  // of 16 elements
    const unsigned s = (u16_at(block, 48 + 2 * (sub / 4)) >> (3 * (sub % 4))) & 7u;
    const unsigned qh = nibble_at(block + 32, i);
    decode_iq1_eight(d * static_cast<float>(2 * s + 1), kIq1Grid[byte_at(block, i) | (qh & 7u) << 8], qh & 8u, out + 8 * i);
  }
}

void decode_iq4_nl(const std::byte* block, float* out) {
  const float d = half_at(block, 0);
  for (int j = 0; j < 32; ++j) out[j] = d * kIq4Levels[(byte_at(block, 2 + j % 16) >> (4 * (j / 16))) & 15u];
}

void decode_iq4_xs(const std::byte* block, float* out) {
  const float d = half_at(block, 0);
  const unsigned scales_high = u16_at(block, 2);
  for (int e = 0; e < 256; ++e) {
    const int sub = e / 32, j = e % 32;
    const int scale = static_cast<int>(nibble_at(block + 4, sub) | ((scales_high >> (2 * sub)) & 3u) << 4) - 32;
    out[e] = d * static_cast<float>(scale) * kIq4Levels[(byte_at(block, 8 + 16 * sub + j % 16) >> (4 * (j / 16))) & 15u];
  }
}

}  // namespace quern::oracle

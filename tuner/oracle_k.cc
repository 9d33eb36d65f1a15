#include "tuner/oracle_blocks.h"

namespace quern::oracle {
namespace {

// Element e of 256 in the planes that Q2_K and Q3_K use: 32 bytes hold four two-bit planes of 32 elements.
struct PlanePlace {
  int half, plane, lane;
};
PlanePlace plane_place(int e) { return {e / 128, e % 128 / 32, e % 32}; }

unsigned two_bits(const std::byte* qs, const PlanePlace& p) { return (byte_at(qs, 32 * p.half + p.lane) >> (2 * p.plane)) & 3u; }

// Eight 6-bit scales and eight 6-bit mins in 12 bytes.
struct ScaleMin {
  unsigned scale, min;
};
ScaleMin scale_min(const std::byte* b, int j) {
  if (j < 4) return {byte_at(b, j) & 63u, byte_at(b, j + 4) & 63u};
  return {(byte_at(b, j + 4) & 15u) | (byte_at(b, j - 4) >> 6) << 4, (byte_at(b, j + 4) >> 4) | (byte_at(b, j) >> 6) << 4};
}

// Sixteen 6-bit scales in 12 bytes: low nibbles in bytes 0-7, the top two bits in bytes 8-11. Biased by 32.
int q3_scale(const std::byte* scales, int i) {
  const unsigned low = (byte_at(scales, i % 8) >> (4 * (i / 8))) & 15u;
  const unsigned high = (byte_at(scales, 8 + i % 4) >> (2 * (i / 4))) & 3u;
  return static_cast<int>(low | high << 4) - 32;
}

// d*scale*q - dmin*min for sub-block `sub`, each product rounded to f32.
float affine(float d, float dmin, const ScaleMin& s, unsigned q) {
  const float scale = d * static_cast<float>(s.scale);
  const float min = dmin * static_cast<float>(s.min);
  const float product = scale * static_cast<float>(q);
  return product - min;
}

// Q4_K and Q5_K: 32 bytes hold the low nibbles of sub-block 2c and, in their high nibbles, of 2c + 1.
unsigned paired_nibble(const std::byte* qs, int sub, int lane) { return (byte_at(qs, 32 * (sub / 2) + lane) >> (4 * (sub % 2))) & 15u; }

}  // namespace

void decode_q2_k(const std::byte* block, float* out) {
  const float d = half_at(block, 80), dmin = half_at(block, 82);
  for (int e = 0; e < 256; ++e) {
    const unsigned s = byte_at(block, e / 16);
    out[e] = affine(d, dmin, {s & 15u, s >> 4}, two_bits(block + 16, plane_place(e)));
  }
}

void decode_q3_k(const std::byte* block, float* out) {
  const float d = half_at(block, 108);
  for (int e = 0; e < 256; ++e) {
    const PlanePlace p = plane_place(e);
    const bool high = (byte_at(block, p.lane) >> (4 * p.half + p.plane)) & 1u;
    const int q = static_cast<int>(two_bits(block + 32, p)) - (high ? 0 : 4);
    const float scale = d * static_cast<float>(q3_scale(block + 96, e / 16));
    out[e] = scale * static_cast<float>(q);
  }
}

void decode_q4_k(const std::byte* block, float* out) {
  const float d = half_at(block, 0), dmin = half_at(block, 2);
  for (int e = 0; e < 256; ++e) out[e] = affine(d, dmin, scale_min(block + 4, e / 32), paired_nibble(block + 16, e / 32, e % 32));
}

void decode_q5_k(const std::byte* block, float* out) {
  const float d = half_at(block, 0), dmin = half_at(block, 2);
  for (int e = 0; e < 256; ++e) {
    const int sub = e / 32, lane = e % 32;
    const unsigned high = (byte_at(block, 16 + lane) >> sub) & 1u;
    out[e] = affine(d, dmin, scale_min(block + 4, sub), paired_nibble(block + 48, sub, lane) | high << 4);
  }
}

void decode_q6_k(const std::byte* block, float* out) {
  const float d = half_at(block, 208);
  for (int e = 0; e < 256; ++e) {
    const int half = e / 128, quarter = e % 128 / 32, lane = e % 32;
    const unsigned low = (byte_at(block, 64 * half + lane + 32 * (quarter & 1)) >> (4 * (quarter >> 1))) & 15u;
    const unsigned high = (byte_at(block, 128 + 32 * half + lane) >> (2 * quarter)) & 3u;
    const float scale = d * static_cast<float>(signed_byte_at(block, 192 + e / 16));
    out[e] = scale * static_cast<float>(static_cast<int>(low | high << 4) - 32);
  }
}

}  // namespace quern::oracle

#include "tuner/random_weights.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "tuner/half.h"
#include "tuner/oracle.h"

namespace quern {
namespace {

std::uint64_t splitmix64(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// The stream of one row: seeds and rows that are near each other give unrelated streams.
Random row_stream(std::uint64_t seed, std::int64_t row) {
  const std::uint64_t mixed = splitmix64(seed);
  return Random(mixed + static_cast<std::uint64_t>(row) * 0xD1342543DE82EF95u);
}

void fill_bits(Random& random, std::byte* out, std::size_t bytes) {
  std::size_t i = 0;
  for (; i + 8 <= bytes; i += 8) {
    const std::uint64_t bits = random.bits();
    std::memcpy(out + i, &bits, 8);
  }
  const std::uint64_t last = random.bits();
  std::memcpy(out + i, &last, bytes - i);
}

// How the scales of a type are made: where the f16 scales lie, and what makes the root mean square of a block 1 when the scale is
// `unit_scale` and every other bit is random.
struct ScaleRule {
  int scale_at = -1;   // byte offset of the f16 scale, -1: none in this form
  int offset_at = -1;  // byte offset of the f16 min, -1: none
  double unit_scale = 0;
  double offset_ratio = 0;   // the min is this times the scale: it centres the values
  bool either_sign = false;  // quantizers write negative scales for this type
};

ScaleRule scale_rule(WeightType type) {
  switch (type) {
    case WeightType::q4_0:
      return {.scale_at = 0, .unit_scale = 1 / 4.64, .either_sign = true};
    case WeightType::q4_1:
      return {.scale_at = 0, .offset_at = 2, .unit_scale = 1 / 4.61, .offset_ratio = -7.5};
    case WeightType::q5_0:
      return {.scale_at = 0, .unit_scale = 1 / 9.25, .either_sign = true};
    case WeightType::q5_1:
      return {.scale_at = 0, .offset_at = 2, .unit_scale = 1 / 9.23, .offset_ratio = -15.5};
    case WeightType::q8_0:
      return {.scale_at = 0, .unit_scale = 1 / 73.9};
    case WeightType::q2_k:
      return {.scale_at = 80, .offset_at = 82, .unit_scale = 1 / 13.0, .offset_ratio = 1.5};
    case WeightType::q3_k:
      return {.scale_at = 108, .unit_scale = 1 / 43.3, .either_sign = true};
    case WeightType::q4_k:
      return {.scale_at = 0, .offset_at = 2, .unit_scale = 1 / 256.0, .offset_ratio = 7.5};
    case WeightType::q5_k:
      return {.scale_at = 0, .offset_at = 2, .unit_scale = 1 / 516.0, .offset_ratio = 15.5};
    case WeightType::q6_k:
      return {.scale_at = 208, .unit_scale = 1 / 1366.0, .either_sign = true};
    case WeightType::iq2_xxs:
    case WeightType::iq2_xs:
    case WeightType::iq2_s:
      return {.scale_at = 0, .unit_scale = 1 / 56.0};
    case WeightType::iq3_xxs:
      return {.scale_at = 0, .unit_scale = 1 / 150.0};
    case WeightType::iq3_s:
      return {.scale_at = 0, .unit_scale = 1 / 165.0};
    case WeightType::iq1_s:
      return {.scale_at = 0, .unit_scale = 1 / 7.4};
    case WeightType::iq4_nl:
      return {.scale_at = 0, .unit_scale = 1 / 67.0, .either_sign = true};
    case WeightType::iq4_xs:
      return {.scale_at = 0, .unit_scale = 1 / 1240.0, .either_sign = true};
    case WeightType::tq1_0:
      return {.scale_at = 52, .unit_scale = 1.22};
    case WeightType::tq2_0:
      return {.scale_at = 64, .unit_scale = 1 / 1.22, .either_sign = true};
    case WeightType::q1_0:
      return {.scale_at = 0, .unit_scale = 1};
    case WeightType::q2_0:
      return {.scale_at = 0, .unit_scale = 1 / 1.22, .either_sign = true};
    default:
      return {};
  }
}

constexpr double kIq1MUnitScale = 1 / 7.4;
constexpr double kE2m1Rms = 5.85;  // of the doubled values

void store_half(std::byte* at, double value) {
  const std::uint16_t bits = float_to_half(static_cast<float>(value));
  std::memcpy(at, &bits, 2);
}

// Between half and one and a half times what the row's size asks for, so that blocks differ.
double jitter(Random& random) { return random.uniform(0.5f, 1.5f); }

void set_f16_scales(Random& random, const ScaleRule& rule, double size, std::byte* block) {
  double scale = rule.unit_scale * size * jitter(random);
  if (rule.either_sign && (random.bits() >> 63)) scale = -scale;
  store_half(block + rule.scale_at, scale);
  if (rule.offset_at >= 0) store_half(block + rule.offset_at, scale * rule.offset_ratio * jitter(random));
}

// The f16 scale of IQ1_M lies in the top nibbles of four words.
void set_iq1_m_scale(Random& random, double size, std::byte* block) {
  const unsigned bits = float_to_half(static_cast<float>(kIq1MUnitScale * size * jitter(random)));
  for (int w = 0; w < 4; ++w) {
    std::byte& high = block[48 + 2 * w + 1];
    high = (high & std::byte{0x0F}) | static_cast<std::byte>(((bits >> (4 * w)) & 15u) << 4);
  }
}

// Weights are T * 2^(e-128): the power of two below the size, up or down one. e = 0 and e = 255 are far from any row length.
void set_mxfp4_scale(Random& random, double size, std::byte* block) {
  const int exponent = std::ilogb(size / kE2m1Rms) + static_cast<int>(random.below(3)) - 1;
  block[0] = static_cast<std::byte>(128 + exponent);
}

// Weights are T * scale / 2: E4M3 scales in [1/8, 1/2) give a root mean square near 1.
void set_nvfp4_scales(Random& random, std::byte* block) {
  for (int sub = 0; sub < 4; ++sub) block[sub] = static_cast<std::byte>((4 + random.below(2)) << 3 | random.below(8));
}

void fill_floats(Random& random, DType type, double size, std::int64_t k, std::byte* row) {
  const float bound = static_cast<float>(size * std::sqrt(3.0));  // uniform in [-bound, bound) has a root mean square of size
  for (std::int64_t i = 0; i < k; ++i) store_element(type, row, i, random.uniform(-bound, bound));
}

void fill_row(WeightType type, Random& random, std::int64_t k, std::byte* row) {
  const double size = 1 / std::sqrt(static_cast<double>(k));
  if (type == WeightType::f32) return fill_floats(random, DType::f32, size, k, row);
  if (type == WeightType::f16) return fill_floats(random, DType::f16, size, k, row);
  if (type == WeightType::bf16) return fill_floats(random, DType::bf16, size, k, row);
  fill_bits(random, row, static_cast<std::size_t>(row_bytes(type, k)));
  if (type == WeightType::i8 || type == WeightType::code4) return;
  const ScaleRule rule = scale_rule(type);
  const WeightTypeInfo& format = info(type);
  for (std::byte* block = row; block != row + row_bytes(type, k); block += format.block_bytes) {
    if (rule.scale_at >= 0)
      set_f16_scales(random, rule, size, block);
    else if (type == WeightType::iq1_m)
      set_iq1_m_scale(random, size, block);
    else if (type == WeightType::mxfp4)
      set_mxfp4_scale(random, size, block);
    else if (type == WeightType::nvfp4)
      set_nvfp4_scales(random, block);
  }
}

}  // namespace

Random::Random(std::uint64_t seed) {
  for (auto& word : state_) word = splitmix64(seed);
}

std::uint64_t Random::bits() {
  const std::uint64_t result = std::rotl(state_[0] + state_[3], 23) + state_[0];
  const std::uint64_t t = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= t;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

std::uint64_t Random::below(std::uint64_t bound) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((static_cast<Wide>(bits()) * bound) >> 64);
}

void fill_random_weights(WeightType type, std::int64_t k, std::uint64_t seed, std::int64_t first_row, std::span<std::byte> out) {
  const std::int64_t bytes = row_bytes(type, k);
  if (bytes == 0) return;
  const std::int64_t rows = static_cast<std::int64_t>(out.size()) / bytes;
  for (std::int64_t r = 0; r < rows; ++r) {
    Random random = row_stream(seed, first_row + r);
    fill_row(type, random, k, out.data() + r * bytes);
  }
}

std::vector<std::byte> random_weights(WeightType type, std::int64_t n, std::int64_t k, std::uint64_t seed) {
  std::vector<std::byte> out(static_cast<std::size_t>(n * row_bytes(type, k)));
  fill_random_weights(type, k, seed, 0, out);
  return out;
}

void fill_random_activations(DType type, std::int64_t k, std::int64_t stride, std::uint64_t seed, std::int64_t first_row, std::int64_t rows,
                             std::span<std::byte> out) {
  constexpr std::uint64_t kNotTheWeights = 0xA5A5A5A5A5A5A5A5u;  // one seed for both must not make X follow W
  for (std::int64_t r = 0; r < rows; ++r) {
    Random random = row_stream(seed ^ kNotTheWeights, first_row + r);
    const float magnitude = std::ldexp(random.uniform(1.0f, 2.0f), static_cast<int>(random.below(4)) - 2);
    for (std::int64_t i = 0; i < k; ++i) store_element(type, out.data(), r * stride + i, magnitude * random.uniform(-1.0f, 1.0f));
  }
}

std::vector<std::byte> random_activations(DType type, std::int64_t m, std::int64_t k, std::uint64_t seed) {
  std::vector<std::byte> out(static_cast<std::size_t>(m * k * size_of(type)));
  fill_random_activations(type, k, k, seed, 0, m, out);
  return out;
}

}  // namespace quern

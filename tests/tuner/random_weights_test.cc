#include "tuner/random_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <ctime>
#include <set>

#include "tuner/oracle.h"

namespace quern {
namespace {

class RandomWeightsOfType : public ::testing::TestWithParam<WeightTypeInfo> {};

std::vector<float> decode(WeightType type, const std::vector<std::byte>& weights, std::int64_t n, std::int64_t k) {
  std::vector<float> values(static_cast<std::size_t>(n * k));
  for (std::int64_t r = 0; r < n; ++r) dequantize_row(type, weights.data() + r * row_bytes(type, k), k, values.data() + r * k);
  return values;
}

// Field case 35.
TEST_P(RandomWeightsOfType, AreFiniteAndOfTheStatedSize) {
  for (const std::int64_t k : {256, 4096, 16384}) {
    const std::int64_t n = 262144 / k;
    const auto values = decode(GetParam().type, random_weights(GetParam().type, n, k, 7), n, k);
    double squares = 0, sum = 0;
    for (const float v : values) {
      ASSERT_TRUE(std::isfinite(v));
      squares += static_cast<double>(v) * v;
      sum += v;
    }
    const double count = static_cast<double>(values.size());
    const double rms = std::sqrt(squares / count) * (GetParam().type == WeightType::nvfp4 ? 1 : std::sqrt(static_cast<double>(k)));
    EXPECT_GT(rms, 0.7) << "k = " << k;
    EXPECT_LT(rms, 1.4) << "k = " << k;
    EXPECT_LT(std::abs(sum / count), 0.25 * std::sqrt(squares / count)) << "k = " << k << ": not centred";
  }
}

TEST_P(RandomWeightsOfType, DependOnSeedAndRowAlone) {
  const WeightType type = GetParam().type;
  const std::int64_t k = 512, bytes = row_bytes(type, k);
  const auto all = random_weights(type, 9, k, 42);
  EXPECT_EQ(all, random_weights(type, 9, k, 42));
  EXPECT_NE(all, random_weights(type, 9, k, 43));
  std::vector<std::byte> part(static_cast<std::size_t>(2 * bytes));
  fill_random_weights(type, k, 42, 5, part);
  EXPECT_EQ(std::memcmp(part.data(), all.data() + 5 * bytes, part.size()), 0);
  EXPECT_NE(std::memcmp(all.data(), all.data() + bytes, static_cast<std::size_t>(bytes)), 0);
}

// Bits of a block that are no random quants: f16 scales and mins, E8M0, E4M3.
int scale_bits(WeightType type) {
  switch (type) {
    case WeightType::q4_1:
    case WeightType::q5_1:
    case WeightType::q2_k:
    case WeightType::q4_k:
    case WeightType::q5_k:
    case WeightType::nvfp4:
      return 32;
    case WeightType::mxfp4:
      return 8;
    default:
      return 16;
  }
}

// Every bit outside the scales takes both values about equally often.
TEST_P(RandomWeightsOfType, QuantBitsAreUniform) {
  const WeightTypeInfo& type = GetParam();
  if (type.block_elements == 1) GTEST_SKIP() << "no quants";
  const std::int64_t blocks = 4096;
  const auto weights = random_weights(type.type, 1, blocks * type.block_elements, 3);
  int uniform_bits = 0;
  for (int bit = 0; bit < 8 * type.block_bytes; ++bit) {
    int ones = 0;
    for (std::int64_t b = 0; b < blocks; ++b)
      ones += std::to_integer<int>(weights[static_cast<std::size_t>(b * type.block_bytes + bit / 8)] >> (bit % 8)) & 1;
    uniform_bits += std::abs(ones - blocks / 2) < 200;  // six standard deviations
  }
  EXPECT_GE(uniform_bits, 8 * type.block_bytes - scale_bits(type.type));
}

INSTANTIATE_TEST_SUITE_P(AllTypes, RandomWeightsOfType, ::testing::ValuesIn(kWeightTypes),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(RandomWeights, AreMadeFasterThan30MBPerCpuSecond) {
#if defined(QUERN_SANITIZE) || !defined(NDEBUG)
  GTEST_SKIP() << "only an optimized build states a speed";
#endif
  for (const auto& type : kWeightTypes) {
    double best = 0;  // of three, and in CPU time: the machine may be busy
    for (int attempt = 0; attempt < 3; ++attempt) {
      std::vector<std::byte> out(static_cast<std::size_t>(1024 * row_bytes(type.type, 4096)));
      const std::clock_t start = std::clock();
      fill_random_weights(type.type, 4096, 1, 0, out);
      const double seconds = static_cast<double>(std::clock() - start + 1) / CLOCKS_PER_SEC;
      best = std::max(best, static_cast<double>(out.size()) / 1e6 / seconds);
    }
    EXPECT_GT(best, 30) << type.name;
    RecordProperty(std::string(type.name), static_cast<int>(best));
  }
}

TEST(RandomActivations, RowsHaveDifferentMagnitudesAndGapsStayUntouched) {
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    const std::int64_t k = 1000, stride = 1003, rows = 16;
    std::vector<std::byte> out(static_cast<std::size_t>(rows * stride * size_of(type)), std::byte{0xAB});
    fill_random_activations(type, k, stride, 11, 0, rows, out);
    std::set<float> magnitudes;
    for (std::int64_t r = 0; r < rows; ++r) {
      float largest = 0;
      for (std::int64_t i = 0; i < k; ++i) largest = std::max(largest, std::abs(load_element(type, out.data(), r * stride + i)));
      EXPECT_GE(largest, 0.24f);
      EXPECT_LE(largest, 4.0f);
      magnitudes.insert(largest);
      for (std::int64_t b = (r * stride + k) * size_of(type); b < (r + 1) * stride * size_of(type); ++b)
        ASSERT_EQ(out[static_cast<std::size_t>(b)], std::byte{0xAB});
    }
    EXPECT_GE(magnitudes.size(), 15u);
    EXPECT_GT(*magnitudes.rbegin() / *magnitudes.begin(), 4.0f);
  }
  std::vector<std::byte> one(4000);
  fill_random_activations(DType::f32, 1000, 1000, 5, 3, 1, one);
  const auto all = random_activations(DType::f32, 4, 1000, 5);
  EXPECT_EQ(std::memcmp(one.data(), all.data() + 3 * 4000, 4000), 0);
}

// One seed for W and X must not make them follow each other.
TEST(RandomActivations, AreIndependentOfWeightsOfTheSameSeed) {
  const std::int64_t k = 65536;
  const auto w = random_weights(WeightType::f32, 1, k, 9);
  const auto x = random_activations(DType::f32, 1, k, 9);
  const OutputIndex output[] = {{0, 0}};
  for (std::int64_t shift = 0; shift < 4; ++shift) {  // X may draw a few numbers before its first element
    const ActivationRows row{DType::f32, x.data(), 1, k - shift, k};
    const auto y = mul_mat_reference({WeightType::f32, w.data() + 4 * shift, 1, k - shift, 4 * k}, row, nullptr, DType::f32, output)[0];
    EXPECT_LT(std::abs(y.value), 6 * std::sqrt(y.square_sum)) << "shift " << shift;
  }
}

}  // namespace
}  // namespace quern

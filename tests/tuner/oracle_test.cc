#include "tuner/oracle.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "tuner/half.h"

namespace quern {
namespace {

// One file of tests/data/dequant_vectors, as scripts/make_vectors.py describes it.
struct Vectors {
  std::uint32_t k = 0;
  std::vector<std::vector<std::byte>> rows;
  std::vector<std::vector<float>> values;
};

Vectors read_vectors(const WeightTypeInfo& type) {
  const std::string path = std::string(QUERN_TEST_DATA) + "/dequant_vectors/" + std::string(type.name) + ".bin";
  std::ifstream stream(path, std::ios::binary);
  const std::string file{std::istreambuf_iterator<char>(stream), {}};
  Vectors vectors;
  if (file.size() < 20 || file.substr(0, 4) != "QDV1") return vectors;
  std::uint32_t head[4];
  std::memcpy(head, file.data() + 4, 16);
  EXPECT_EQ(head[0], static_cast<std::uint32_t>(type.type));
  vectors.k = head[1];
  const auto row_size = static_cast<std::size_t>(row_bytes(type.type, vectors.k));
  EXPECT_EQ(file.size(), 20 + head[2] * (row_size + 4 * vectors.k)) << path;
  std::size_t at = 20;
  for (std::uint32_t r = 0; r < head[2] && at + row_size + 4 * vectors.k <= file.size(); ++r) {
    const auto* bytes = reinterpret_cast<const std::byte*>(file.data()) + at;
    vectors.rows.emplace_back(bytes, bytes + row_size);
    vectors.values.emplace_back(vectors.k);
    std::memcpy(vectors.values.back().data(), bytes + row_size, 4 * vectors.k);
    at += row_size + 4 * vectors.k;
  }
  return vectors;
}

class OracleOfType : public ::testing::TestWithParam<WeightTypeInfo> {};

TEST_P(OracleOfType, DequantizesBitForBitLikeTheFormatsReference) {
  const Vectors vectors = read_vectors(GetParam());
  ASSERT_GE(vectors.rows.size(), 1u) << "no vectors";
  for (std::size_t r = 0; r < vectors.rows.size(); ++r) {
    std::vector<float> out(vectors.k);
    dequantize_row(GetParam().type, vectors.rows[r].data(), vectors.k, out.data());
    for (std::uint32_t i = 0; i < vectors.k; ++i)
      ASSERT_EQ(std::bit_cast<std::uint32_t>(out[i]), std::bit_cast<std::uint32_t>(vectors.values[r][i]))
          << "row " << r << " element " << i << ": " << out[i] << " instead of " << vectors.values[r][i];
  }
}

INSTANTIATE_TEST_SUITE_P(AllTypes, OracleOfType, ::testing::ValuesIn(kWeightTypes),
                         [](const auto& test) { return std::string(test.param.name); });

std::vector<std::byte> splitmix64_bytes(std::size_t count) {
  std::vector<std::byte> bytes((count + 7) / 8 * 8);
  for (std::uint64_t i = 0; i < bytes.size() / 8; ++i) {
    std::uint64_t z = (i + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    std::memcpy(bytes.data() + 8 * i, &z, 8);
  }
  return bytes;
}

// Where the high bytes of a block's f16 scales are.
std::vector<int> scale_high_bytes(WeightType type) {
  switch (type) {
    case WeightType::q4_1:
    case WeightType::q5_1:
    case WeightType::q4_k:
    case WeightType::q5_k:
      return {1, 3};
    case WeightType::q2_k:
      return {81, 83};
    case WeightType::q3_k:
      return {109};
    case WeightType::q6_k:
      return {209};
    case WeightType::tq1_0:
      return {53};
    case WeightType::tq2_0:
      return {65};
    case WeightType::iq1_m:
      return {55};
    case WeightType::mxfp4:
    case WeightType::nvfp4:
      return {};
    default:
      return {1};
  }
}

// A quarter of a million elements of every type, so that every codebook entry occurs; digests as scripts/make_vectors.py describes them.
TEST(Oracle, DigestsOfManyRandomBlocksMatchTheFormatsReference) {
  std::ifstream stream(std::string(QUERN_TEST_DATA) + "/dequant_vectors/digests.txt");
  std::string name;
  std::int64_t blocks = 0;
  std::uint64_t expected = 0;
  int types = 0;
  while (stream >> name >> std::dec >> blocks >> std::hex >> expected) {
    const auto type = weight_type_from_name(name);
    ASSERT_TRUE(type) << name;
    const std::int64_t k = blocks * info(*type).block_elements;
    auto row = splitmix64_bytes(static_cast<std::size_t>(row_bytes(*type, k)));
    for (std::int64_t b = 0; b < blocks; ++b)
      for (const int at : scale_high_bytes(*type)) row[static_cast<std::size_t>(b * info(*type).block_bytes + at)] &= std::byte{0xBF};
    std::vector<float> out(static_cast<std::size_t>(k));
    dequantize_row(*type, row.data(), k, out.data());
    std::uint64_t digest = 0;
    for (std::size_t i = 0; i < out.size(); ++i) digest += std::bit_cast<std::uint32_t>(out[i]) * (2 * std::uint64_t{i} + 1);
    EXPECT_EQ(digest, expected) << name;
    ++types;
  }
  EXPECT_EQ(types, 25);
}

TEST(Oracle, RowsMayStartAtAnyAddress) {
  for (const auto& type : kWeightTypes) {
    const Vectors vectors = read_vectors(type);
    ASSERT_GE(vectors.rows.size(), 1u);
    std::vector<std::byte> shifted(vectors.rows[0].size() + 1);
    std::copy(vectors.rows[0].begin(), vectors.rows[0].end(), shifted.begin() + 1);
    std::vector<float> out(vectors.k);
    dequantize_row(type.type, shifted.data() + 1, vectors.k, out.data());
    EXPECT_EQ(std::memcmp(out.data(), vectors.values[0].data(), 4 * vectors.k), 0) << type.name;
  }
}

std::vector<std::byte> as_bytes(DType type, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * static_cast<std::size_t>(size_of(type)));
  for (std::size_t i = 0; i < values.size(); ++i) store_element(type, bytes.data(), static_cast<std::int64_t>(i), values[i]);
  return bytes;
}

TEST(Oracle, MulMatGivesTheSumsOfTheChosenOutputs) {
  // W = [[1, 2], [3, -4]] in rows of 12 bytes, X = [[1, 10], [100, 1000]] with a gap of one element.
  const auto w = as_bytes(DType::f32, {1, 2, 99, 3, -4, 99});
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    const auto x = as_bytes(type, {1, 10, 99, 100, 1000, 99});
    const auto bias = as_bytes(DType::f16, {0.5f, -2});
    const WeightRows rows{WeightType::f32, w.data(), 2, 2, 12};
    const ActivationRows activations{type, x.data(), 2, 2, 3};
    const OutputIndex outputs[] = {{1, 1}, {0, 0}, {0, 1}};
    const auto plain = mul_mat_reference(rows, activations, nullptr, DType::f32, outputs);
    ASSERT_EQ(plain.size(), 3u);
    const double x11 = 1000;  // exact in all three types
    EXPECT_EQ(plain[0].value, 300 - 4 * x11);
    EXPECT_EQ(plain[0].absolute_sum, 300 + 4 * x11);
    EXPECT_EQ(plain[0].square_sum, 300.0 * 300 + 16 * x11 * x11);
    EXPECT_EQ(plain[1].value, 21);
    EXPECT_EQ(plain[2].value, -37);
    const auto with_bias = mul_mat_reference(rows, activations, bias.data(), DType::f16, outputs);
    EXPECT_EQ(with_bias[0].value, plain[0].value - 2);
    EXPECT_EQ(with_bias[1].value, 21.5);
    EXPECT_EQ(with_bias[1].absolute_sum, 21);
    EXPECT_EQ(with_bias[2].value, -39);
  }
}

TEST(Oracle, MulMatMultipliesInDouble) {
  const auto value = as_bytes(DType::f32, {1 + 0x1p-23f});
  const OutputIndex output[] = {{0, 0}};
  const auto y =
      mul_mat_reference({WeightType::f32, value.data(), 1, 1, 4}, {DType::f32, value.data(), 1, 1, 1}, nullptr, DType::f32, output)[0];
  EXPECT_EQ(y.value, 1 + 0x1p-22 + 0x1p-46);
}

TEST(Oracle, MulMatAddsInDouble) {
  // In f32 the small terms would vanish beside 2^24.
  const std::vector<float> w = {16777216.0f, 1, 1, -16777216.0f};
  const auto bytes = as_bytes(DType::f32, w);
  const auto x = as_bytes(DType::f32, {1, 1, 1, 1});
  const OutputIndex output[] = {{0, 0}};
  EXPECT_EQ(
      mul_mat_reference({WeightType::f32, bytes.data(), 1, 4, 16}, {DType::f32, x.data(), 1, 4, 4}, nullptr, DType::f32, output)[0].value,
      2);
}

}  // namespace
}  // namespace quern

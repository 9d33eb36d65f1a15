#include "tuner/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace quern {
namespace {

// The definition, by ldexp.
double half_value(int exponent, int mantissa) {
  return exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
}

TEST(Half, WidensByDefinitionAndComesBack) {
  for (std::uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const double expected = half_value(static_cast<int>(bits >> 10), static_cast<int>(bits & 0x3FF));
    ASSERT_EQ(half_to_float(half), expected) << bits;
    ASSERT_EQ(half_to_float(half | 0x8000), -expected) << bits;
    ASSERT_EQ(float_to_half(half_to_float(half)), half);
    ASSERT_EQ(float_to_half(half_to_float(half | 0x8000)), half | 0x8000);
  }
}

// Between any two neighbours: the tie goes to the even one, anything off the tie to the nearer one. With monotonicity this is every float.
TEST(Half, RoundsToNearestEvenEverywhere) {
  for (std::uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const float low = half_to_float(static_cast<std::uint16_t>(bits));
    const float high = bits + 1 == 0x7C00 ? 65536.0f : half_to_float(static_cast<std::uint16_t>(bits + 1));
    const float tie = low + (high - low) / 2;  // exact: at most 12 significant bits
    ASSERT_EQ(float_to_half(tie), bits + (bits & 1)) << bits;
    ASSERT_EQ(float_to_half(std::nextafter(tie, low)), bits) << bits;
    ASSERT_EQ(float_to_half(std::nextafter(tie, high)), bits + 1) << bits;
    ASSERT_EQ(float_to_half(-tie), 0x8000 | (bits + (bits & 1))) << bits;
  }
}

TEST(Half, InfinityNanAndTheEnds) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(float_to_half(infinity), 0x7C00);
  EXPECT_EQ(float_to_half(-infinity), 0xFC00);
  EXPECT_EQ(float_to_half(std::numeric_limits<float>::max()), 0x7C00);
  EXPECT_EQ(float_to_half(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(float_to_half(-0.0f), 0x8000);
  EXPECT_EQ(half_to_float(0x7C00), infinity);
  for (std::uint32_t bits = 0x7C01; bits < 0x8000; ++bits) ASSERT_TRUE(std::isnan(half_to_float(static_cast<std::uint16_t>(bits))));
  for (const std::uint32_t bits : {0x7F800001u, 0x7FC00000u, 0x7FFFFFFFu, 0xFF800001u}) {
    const std::uint16_t half = float_to_half(std::bit_cast<float>(bits));
    EXPECT_EQ(half & 0x7E00, 0x7E00) << bits;  // NaN, quiet
    EXPECT_EQ(half >> 15, bits >> 31);
  }
}

TEST(Bfloat16, RoundsToNearestEvenEverywhere) {
  for (std::uint32_t bits = 0; bits < 0x7F80; ++bits) {
    const auto value = static_cast<std::uint16_t>(bits);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(bfloat16_to_float(value)), bits << 16);
    const std::uint32_t tie = (bits << 16) + 0x8000;
    ASSERT_EQ(float_to_bfloat16(bfloat16_to_float(value)), bits);
    ASSERT_EQ(float_to_bfloat16(std::bit_cast<float>(tie)), bits + (bits & 1));
    ASSERT_EQ(float_to_bfloat16(std::bit_cast<float>(tie - 1)), bits);
    ASSERT_EQ(float_to_bfloat16(std::bit_cast<float>(tie + 1)), bits + 1);
    ASSERT_EQ(float_to_bfloat16(std::bit_cast<float>(0x80000000u | tie)), 0x8000 | (bits + (bits & 1)));
  }
}

TEST(Bfloat16, InfinityAndNan) {
  EXPECT_EQ(float_to_bfloat16(std::numeric_limits<float>::infinity()), 0x7F80);
  EXPECT_EQ(float_to_bfloat16(std::numeric_limits<float>::max()), 0x7F80);
  for (const std::uint32_t bits : {0x7F800001u, 0x7FFFFFFFu, 0xFF800001u})
    EXPECT_TRUE(std::isnan(bfloat16_to_float(float_to_bfloat16(std::bit_cast<float>(bits)))));
}

}  // namespace
}  // namespace quern

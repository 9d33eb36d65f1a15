// The hardware header's arithmetic on the host, against computations that share nothing with it: values in double (or exact 128-bit
// integers) and a search for the nearest 16-bit float.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>

#include "tests/runtime/host/host_kernel.h"

namespace quern::test {
namespace {

using std::uint32_t;

enum Operation : int {
  kF16ToF32,
  kF32ToF16,
  kBf16ToF32,
  kF32ToBf16,
  kMulF16,
  kSubF16,
  kFmaF16,
  kMulBf16,
  kSubBf16,
  kFmaBf16,
  kPackF16,
  kPackBf16,
  kDp4aSs,
  kDp4aUs,
  kPrmt,
  kFunnel,
  kRoundEven,
  kFma,
  kMul,
  kAdd,
  kSub,
  kDiv,
  kSqrt
};

// y[i] = operation(x[3i], x[3i+1], x[3i+2]); the operation is args.k.
const char* const kBody = R"(
  i64 i = ptx::block_x() * 128 + ptx::thread_x();
  if (i >= args.n) return;
  const u32* x = static_cast<const u32*>(args.x) + 3 * i;
  u32 a = x[0], b = x[1], c = x[2], r = 0;
  f32 fa = ptx::float_from_bits(a), fb = ptx::float_from_bits(b), fc = ptx::float_from_bits(c);
  switch (args.k) {
    case 0: r = ptx::bits_of(ptx::to_f32(f16{static_cast<u16>(a)})); break;
    case 1: r = ptx::from_f32<f16>(fa).bits; break;
    case 2: r = ptx::bits_of(ptx::to_f32(bf16{static_cast<u16>(a)})); break;
    case 3: r = ptx::from_f32<bf16>(fa).bits; break;
    case 4: r = ptx::mul_f16x2(a, b); break;
    case 5: r = ptx::sub_f16x2(a, b); break;
    case 6: r = ptx::fma_f16x2(a, b, c); break;
    case 7: r = ptx::mul_bf16x2(a, b); break;
    case 8: r = ptx::sub_bf16x2(a, b); break;
    case 9: r = ptx::fma_bf16x2(a, b, c); break;
    case 10: r = ptx::pack_f16x2(fa, fb); break;
    case 11: r = ptx::pack_bf16x2(fa, fb); break;
    case 12: r = static_cast<u32>(ptx::dp4a_ss(a, b, static_cast<i32>(c))); break;
    case 13: r = static_cast<u32>(ptx::dp4a_us(a, b, static_cast<i32>(c))); break;
    case 14: r = ptx::prmt(a, b, c & 0x7777u); break;
    case 15: r = ptx::funnel_right(a, b, c & 31u); break;
    case 16: r = static_cast<u32>(ptx::round_even(fa)); break;
    case 17: r = ptx::bits_of(ptx::fma(fa, fb, fc)); break;
    case 18: r = ptx::bits_of(ptx::mul(fa, fb)); break;
    case 19: r = ptx::bits_of(ptx::add(fa, fb)); break;
    case 20: r = ptx::bits_of(ptx::sub(fa, fb)); break;
    case 21: r = ptx::bits_of(ptx::div(fa, fb)); break;
    case 22: r = ptx::bits_of(ptx::sqrt(fa)); break;
  }
  static_cast<u32*>(args.y)[i] = r;
)";

struct Operands {
  uint32_t a, b, c;
};

std::vector<uint32_t> compute(Operation operation, const std::vector<Operands>& x) {
  static const HostKernel kernel = HostKernel::make(kBody);
  std::vector<uint32_t> y(x.size());
  KernelArgs args{};
  args.x = x.data();
  args.y = y.data();
  args.n = static_cast<long long>(x.size());
  args.k = operation;
  const Status status = kernel.launch({static_cast<uint32_t>((x.size() + 127) / 128), 128, 0}, args);
  if (!status) ADD_FAILURE() << status.error().message;
  return y;
}

float as_float(uint32_t bits) { return std::bit_cast<float>(bits); }

// A 16-bit float format, by its definition.
struct Format {
  int mantissa;  // stored bits
  int bias;
  int exponent_bits() const { return 15 - mantissa; }
  bool is_nan(uint32_t bits) const { return (bits & 0x7fffu) > infinity(); }
  uint32_t infinity() const { return 0x7fffu >> mantissa << mantissa; }
  // Finite patterns only; the pattern of infinity gives what its value would be if it were finite.
  double finite(uint32_t bits) const {
    const int exponent = static_cast<int>((bits & 0x7fffu) >> mantissa);
    const double fraction = bits & ((1u << mantissa) - 1);
    const double value =
        exponent == 0 ? std::ldexp(fraction, 1 - bias - mantissa) : std::ldexp(fraction + (1 << mantissa), exponent - bias - mantissa);
    return (bits & 0x8000u) != 0 ? -value : value;
  }
  double value(uint32_t bits) const {
    if (is_nan(bits)) return std::numeric_limits<double>::quiet_NaN();
    if ((bits & 0x7fffu) == infinity()) return (bits & 0x8000u) != 0 ? -INFINITY : INFINITY;
    return finite(bits);
  }
};
constexpr Format kHalf{10, 15};
constexpr Format kBrain{7, 127};

// An exact real number: high + low, where low is smaller than anything the formats can tell apart unless high is a tie.
struct Exact {
  long double high;
  long double low = 0;
};

// The nearest pattern to a real number, ties to the even one, by bisection over the ordered patterns.
uint32_t nearest(const Format& format, const Exact& exact, bool negative_zero) {
  if (std::isnan(exact.high)) return 0x7fffu;
  const bool negative = exact.high < 0 || (exact.high == 0 && (exact.low < 0 || (exact.low == 0 && negative_zero)));
  const long double high = negative ? -exact.high : exact.high, low = negative ? -exact.low : exact.low;
  uint32_t below = 0, above = format.infinity();  // finite(below) <= value < finite(above), unless at or past infinity
  if (std::isinf(high) || high >= format.finite(above)) return (negative ? 0x8000u : 0u) | above;
  while (above - below > 1) {
    const uint32_t middle = (below + above) / 2;
    const long double difference = high - format.finite(middle);
    (difference > 0 || (difference == 0 && low >= 0) ? below : above) = middle;
  }
  // Halves of 16-bit neighbours are exact in long double.
  const long double tie = (static_cast<long double>(format.finite(below)) + format.finite(above)) / 2;
  const long double difference = high - tie;
  const bool up = difference > 0 || (difference == 0 && (low > 0 || (low == 0 && (below & 1u) != 0)));
  return (negative ? 0x8000u : 0u) | (up ? above : below);
}

// a*b + c: the product of two 16-bit floats is exact in long double; the sum is split into itself and its tail.
Exact fused(double a, double b, double c) {
  const long double product = static_cast<long double>(a) * b, addend = c;
  const long double sum = product + addend;
  if (!std::isfinite(sum)) return {sum};
  const long double part = sum - product;
  return {sum, (product - (sum - part)) + (addend - part)};
}

std::vector<Operands> random_operands(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Operands> x(count);
  for (auto& one : x) one = {static_cast<uint32_t>(random()), static_cast<uint32_t>(random()), static_cast<uint32_t>(random())};
  return x;
}

TEST(HostArithmetic, EveryF16AndBf16PatternWidensToItsValue) {
  std::vector<Operands> x(65536);
  for (uint32_t i = 0; i < 65536; ++i) x[i] = {i, 0, 0};
  const auto half = compute(kF16ToF32, x), brain = compute(kBf16ToF32, x);
  for (uint32_t i = 0; i < 65536; ++i) {
    if (kHalf.is_nan(i)) {
      ASSERT_EQ(half[i], 0x7fffffffu) << i;
    } else {
      ASSERT_EQ(half[i], std::bit_cast<uint32_t>(static_cast<float>(kHalf.value(i)))) << i;
    }
    ASSERT_EQ(brain[i], i << 16) << i;
  }
}

TEST(HostArithmetic, EveryF16AndBf16PatternAndItsSurroundingsNarrowToTheNearest) {
  for (const auto& [format, operation] : {std::pair{kHalf, kF32ToF16}, std::pair{kBrain, kF32ToBf16}}) {
    std::vector<Operands> x;
    for (uint32_t i = 0; i < format.infinity(); ++i) {
      // The value, the tie to the next one, and the floats beside both.
      const auto value = std::bit_cast<uint32_t>(static_cast<float>(format.finite(i)));
      const auto tie = std::bit_cast<uint32_t>(static_cast<float>((format.finite(i) + format.finite(i + 1)) / 2));
      for (uint32_t bits : {value, value + 1, value - 1, tie - 1, tie, tie + 1}) {
        x.push_back({bits, 0, 0});
        x.push_back({bits ^ 0x80000000u, 0, 0});
      }
    }
    for (uint32_t bits : {0x7f800000u, 0xff800000u, 0x7f800001u, 0xffc00000u, 0x7f7fffffu, 1u, 0x80000001u}) x.push_back({bits, 0, 0});
    for (const auto& one : random_operands(200000, 1)) x.push_back(one);
    const auto y = compute(operation, x);
    for (std::size_t i = 0; i < x.size(); ++i)
      ASSERT_EQ(y[i], nearest(format, {as_float(x[i].a)}, (x[i].a >> 31) != 0)) << std::hex << x[i].a << " mantissa " << format.mantissa;
  }
}

uint32_t each_half(const Operands& x, const std::function<uint32_t(uint32_t, uint32_t, uint32_t)>& f) {
  return f(x.a & 0xffffu, x.b & 0xffffu, x.c & 0xffffu) | f(x.a >> 16, x.b >> 16, x.c >> 16) << 16;
}

// Operands that make ties: halves of all exponents with few mantissa bits, so that a product lands on a tie and a tiny addend decides.
std::vector<Operands> tie_operands(const Format& format, std::size_t count) {
  std::mt19937 random(3);
  const auto half = [&]() -> uint32_t {
    const auto exponent = static_cast<uint32_t>(random()) % (1u << format.exponent_bits());
    const uint32_t mantissa = (static_cast<uint32_t>(random()) % 16) << (format.mantissa - 4) | (random() % 4 == 0 ? 1u : 0u);
    return (static_cast<uint32_t>(random()) & 1u) << 15 | exponent << format.mantissa | mantissa;
  };
  std::vector<Operands> x(count);
  for (auto& one : x) one = {half() | half() << 16, half() | half() << 16, half() | half() << 16};
  return x;
}

void check_packed(const Format& format, Operation mul, Operation sub, Operation fma) {
  auto x = random_operands(100000, 2);
  for (const auto& one : tie_operands(format, 300000)) x.push_back(one);
  const auto products = compute(mul, x), differences = compute(sub, x), fused_sums = compute(fma, x);
  const auto negative = [](double v) { return std::signbit(v); };
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto product = each_half(x[i], [&](uint32_t a, uint32_t b, uint32_t) {
      const double v = format.value(a) * format.value(b);
      return nearest(format, {v}, negative(v));
    });
    ASSERT_EQ(products[i], product) << std::hex << x[i].a << " * " << x[i].b;
    const auto difference = each_half(x[i], [&](uint32_t a, uint32_t b, uint32_t) {
      const double v = format.value(a) - format.value(b);
      return nearest(format, fused(format.value(b), -1.0, format.value(a)), negative(v));
    });
    ASSERT_EQ(differences[i], difference) << std::hex << x[i].a << " - " << x[i].b;
    const auto sum = each_half(x[i], [&](uint32_t a, uint32_t b, uint32_t c) {
      const double v = format.value(a) * format.value(b) + format.value(c);
      return nearest(format, fused(format.value(a), format.value(b), format.value(c)), negative(v));
    });
    ASSERT_EQ(fused_sums[i], sum) << std::hex << x[i].a << " * " << x[i].b << " + " << x[i].c;
  }
}

TEST(HostArithmetic, PackedF16RoundsOnce) { check_packed(kHalf, kMulF16, kSubF16, kFmaF16); }
TEST(HostArithmetic, PackedBf16RoundsOnce) { check_packed(kBrain, kMulBf16, kSubBf16, kFmaBf16); }

// A product on a tie, decided by 2^-120: far below what double holds beside 1.
TEST(HostArithmetic, FmaOfBf16SeesAnAddendFarBelowDoublePrecision) {
  const uint32_t a = 0x3f88, b = 0x3f88;  // 1.0625 * 1.0625 = 1.12890625: a tie between 0x3f90 and 0x3f91
  const uint32_t tiny = 0x0380, minus_tiny = 0x8380;
  const auto y = compute(kFmaBf16, {{a, b, tiny}, {a, b, 0}, {a, b, minus_tiny}});
  EXPECT_EQ(y[0] & 0xffffu, 0x3f91u);
  EXPECT_EQ(y[1] & 0xffffu, 0x3f90u);
  EXPECT_EQ(y[2] & 0xffffu, 0x3f90u);
}

TEST(HostArithmetic, PacksPutTheFirstOperandLow) {
  const auto x = random_operands(50000, 4);
  const auto half = compute(kPackF16, x), brain = compute(kPackBf16, x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto narrow = [&](const Format& format, uint32_t bits) { return nearest(format, {as_float(bits)}, (bits >> 31) != 0); };
    ASSERT_EQ(half[i], narrow(kHalf, x[i].a) | narrow(kHalf, x[i].b) << 16);
    ASSERT_EQ(brain[i], narrow(kBrain, x[i].a) | narrow(kBrain, x[i].b) << 16);
  }
}

TEST(HostArithmetic, IntegerInstructions) {
  const auto x = random_operands(100000, 5);
  const auto ss = compute(kDp4aSs, x), us = compute(kDp4aUs, x), prmt = compute(kPrmt, x), funnel = compute(kFunnel, x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    std::int8_t sa[4], sb[4];
    std::uint8_t ua[4], bytes[8], picked[4];
    std::memcpy(sa, &x[i].a, 4), std::memcpy(ua, &x[i].a, 4), std::memcpy(sb, &x[i].b, 4);
    std::memcpy(bytes, &x[i].a, 4), std::memcpy(bytes + 4, &x[i].b, 4);
    std::int64_t signed_sum = static_cast<std::int32_t>(x[i].c), unsigned_sum = signed_sum;
    for (int j = 0; j < 4; ++j) {
      signed_sum += sa[j] * sb[j];
      unsigned_sum += ua[j] * sb[j];
      picked[j] = bytes[x[i].c >> (4 * j) & 7u];
    }
    ASSERT_EQ(ss[i], static_cast<uint32_t>(signed_sum));
    ASSERT_EQ(us[i], static_cast<uint32_t>(unsigned_sum));
    uint32_t permuted = 0;
    std::memcpy(&permuted, picked, 4);
    ASSERT_EQ(prmt[i], permuted);
    uint32_t shifted = 0;
    for (uint32_t bit = 0; bit < 32; ++bit) {
      const uint32_t from = bit + (x[i].c & 31u);
      shifted |= (from < 32 ? x[i].a >> from & 1u : x[i].b >> (from - 32) & 1u) << bit;
    }
    ASSERT_EQ(funnel[i], shifted);
  }
}

TEST(HostArithmetic, RoundEvenSaturatesAndTakesNanToZero) {
  const std::vector<std::pair<float, std::int32_t>> cases = {{0.5f, 0},
                                                             {1.5f, 2},
                                                             {2.5f, 2},
                                                             {-0.5f, 0},
                                                             {-1.5f, -2},
                                                             {-2.5f, -2},
                                                             {0.50000006f, 1},
                                                             {8388607.5f, 8388608},
                                                             {16777217.0f, 16777216},
                                                             {2147483520.0f, 2147483520},
                                                             {2147483648.0f, INT32_MAX},
                                                             {1e30f, INT32_MAX},
                                                             {-2147483648.0f, INT32_MIN},
                                                             {-1e30f, INT32_MIN},
                                                             {INFINITY, INT32_MAX},
                                                             {-INFINITY, INT32_MIN},
                                                             {NAN, 0},
                                                             {1e-40f, 0},
                                                             {126.5f, 126},
                                                             {127.49999f, 127}};
  std::vector<Operands> x;
  for (const auto& [value, expected] : cases) x.push_back({std::bit_cast<uint32_t>(value), 0, 0});
  const auto y = compute(kRoundEven, x);
  for (std::size_t i = 0; i < cases.size(); ++i) EXPECT_EQ(static_cast<std::int32_t>(y[i]), cases[i].second) << cases[i].first;
}

// Sums and products of floats are exact in long double or, with their tail, decided by it; what is compared is one correctly rounded
// operation.
TEST(HostArithmetic, FloatOperationsRoundOnceAndNeverContract) {
  auto x = random_operands(200000, 6);
  std::mt19937 random(7);
  for (int i = 0; i < 100000; ++i) {  // exponents near one, where sums interact
    const auto near_one = [&] { return 0x3f000000u + (static_cast<uint32_t>(random()) & 0x80ffffffu); };
    x.push_back({near_one(), near_one(), near_one()});
  }
  const auto fma = compute(kFma, x), mul = compute(kMul, x), add = compute(kAdd, x), sub = compute(kSub, x), div = compute(kDiv, x),
             sqrt = compute(kSqrt, x);
  const auto same = [](uint32_t bits, float expected) {
    return std::isnan(expected) ? std::isnan(as_float(bits)) : bits == std::bit_cast<uint32_t>(expected);
  };
  for (std::size_t i = 0; i < x.size(); ++i) {
    volatile float a = as_float(x[i].a), b = as_float(x[i].b), c = as_float(x[i].c);
    volatile float product = a * b, sum = a + b, difference = a - b, quotient = a / b;
    ASSERT_TRUE(same(fma[i], std::fma(a, b, c))) << a << " " << b << " " << c;
    ASSERT_TRUE(same(mul[i], product));
    ASSERT_TRUE(same(add[i], sum));
    ASSERT_TRUE(same(sub[i], difference));
    ASSERT_TRUE(same(div[i], quotient));
    ASSERT_TRUE(same(sqrt[i], std::sqrt(a)));
  }
}

// A product that feeds a sum must be rounded first: with contraction the difference would be the rounding error, not zero.
TEST(HostArithmetic, AProductAndASumAreTwoRoundings) {
  const auto kernel = HostKernel::make(R"(
    const f32* x = static_cast<const f32*>(args.x);
    static_cast<f32*>(args.y)[ptx::thread_x()] = ptx::sub(ptx::mul(x[0], x[0]), x[1]);
  )");
  const float a = 1.0f + 0x1p-23f;
  volatile float square = a * a;
  const auto y = kernel.run<float>({1, 32}, std::vector<float>{a, square}, 32);
  EXPECT_EQ(y[0], 0.0f);
  EXPECT_NE(std::fma(a, a, -square), 0.0f);
}

}  // namespace
}  // namespace quern::test

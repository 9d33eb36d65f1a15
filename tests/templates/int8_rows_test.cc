// The integer row ops on the host target, bit for bit, where random data would not look.
#include <cstdint>

#include "tests/templates/host_products.h"

namespace quern {
namespace {

class Int8Rows : public test::HostTarget {
 protected:
  // y[m][n] of codes and scales, f32.
  std::vector<float> multiply(std::int64_t m, std::int64_t n, std::int64_t k, const std::vector<std::int8_t>& x,
                              const std::vector<float>& xs, const std::vector<std::int8_t>& w, const std::vector<float>& ws,
                              const std::vector<float>& bias) {
    Problem p{
        .op = Op::matmul_int8_rows, .type = WeightType::i8, .m = m, .n = n, .k = k, .bias = !bias.empty(), .accuracy = Accuracy::exact};
    const Family* family = find_family("int8_dot");
    auto kernel = load(p, family->space(p, Target{}).default_config());
    EXPECT_TRUE(kernel) << kernel.error().message;
    std::vector<float> y(static_cast<std::size_t>(m * n), -1.0f);
    KernelArgs args{};
    args.w = w.data(), args.x = x.data(), args.y = y.data(), args.bias = bias.empty() ? nullptr : bias.data();
    args.m = m, args.n = n, args.k = k, args.ldx = k, args.ldy = n, args.w_row_bytes = k;
    args.x_scales = xs.data(), args.w_scales = ws.data();
    EXPECT_TRUE((*kernel)->run(args));
    return y;
  }
};

// -128 is no code that quantize_rows_int8 makes, but legal in both operands; with the longest rows the sum is 2^14 short of 2^31.
TEST_F(Int8Rows, TheLargestSumFits) {
  const std::int64_t k = 131071;
  const std::vector<std::int8_t> lowest(static_cast<std::size_t>(k), -128);
  std::vector<std::int8_t> highest(static_cast<std::size_t>(k), 127);
  const std::vector<float> one{1.0f};
  EXPECT_EQ(multiply(1, 1, k, lowest, one, lowest, one, {})[0], static_cast<float>(16384LL * k));
  EXPECT_EQ(multiply(1, 1, k, lowest, one, highest, one, {})[0], static_cast<float>(-16256LL * k));
}

// sum * (xs * ws) is rounded before the bias is added, and xs * ws before it multiplies: with these numbers a fused multiply-add, and the
// other order of the products, give other results.
TEST_F(Int8Rows, EveryOperationIsRoundedByItself) {
  const float xs = 0.021f, ws = 0.098f, bias = -9.685f;
  const std::int32_t sum = 125 * 126 + 37;
  volatile float scale = xs * ws, product = static_cast<float>(sum) * scale, other = static_cast<float>(sum) * xs;
  other = other * ws;
  const float right = product + bias;
  ASSERT_NE(right, std::fma(static_cast<float>(sum), scale, bias));
  ASSERT_NE(right, other + bias);
  std::vector<std::int8_t> x(16, 0), w(16, 0);
  x[3] = 125, w[3] = 126, x[9] = 37, w[9] = 1;
  EXPECT_EQ(multiply(1, 1, 16, x, {xs}, w, {ws}, {bias})[0], right);
}

// Field case 19: the rows of output heads, and a row that is no whole number of words.
TEST_F(Int8Rows, FieldCase19VocabulariesOfAnySize) {
  std::vector<Problem> problems;
  const auto add = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
    problems.push_back({.op = Op::matmul_int8_rows, .type = WeightType::i8, .m = m, .n = n, .k = k, .accuracy = Accuracy::exact});
  };
  for (std::int64_t m = 1; m <= 8; ++m) add(m, 777, 2046);
  for (const std::int64_t n : {32769, 51865, 151644}) add(1, n, 62), add(8, n, 64);
  for_each_kernel(problems, false, [&](const Problem& p, const Config& c) { return verify_random(p, c); });
}

// Every byte of a row counts, at every length: a row that is all zeros but for one place.
TEST_F(Int8Rows, EveryPlaceOfARowCounts) {
  for (const std::int64_t k : {1, 2, 3, 4, 15, 16, 17, 31, 33, 47, 500, 529}) {
    const std::int64_t n = 2 * k;
    std::vector<std::int8_t> x(static_cast<std::size_t>(k)), w(static_cast<std::size_t>(n * k), 0);
    for (std::int64_t i = 0; i < k; ++i) x[static_cast<std::size_t>(i)] = static_cast<std::int8_t>(i % 251 - 125);
    for (std::int64_t i = 0; i < k; ++i) w[static_cast<std::size_t>(i * k + i)] = 1, w[static_cast<std::size_t>((k + i) * k + i)] = -128;
    const auto y = multiply(1, n, k, x, {1.0f}, w, std::vector<float>(static_cast<std::size_t>(n), 1.0f), {});
    for (std::int64_t i = 0; i < k; ++i) {
      EXPECT_EQ(y[static_cast<std::size_t>(i)], x[static_cast<std::size_t>(i)]) << "k=" << k << " i=" << i;
      EXPECT_EQ(y[static_cast<std::size_t>(k + i)], -128 * x[static_cast<std::size_t>(i)]) << "k=" << k << " i=" << i;
    }
  }
}

// Rows of zeros have the least scale, halves go to the even code, and what an infinity leaves of its row is zero.
TEST_F(Int8Rows, QuantizedRowsAtTheEdges) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> x{0,         0, 0,      0,       127, 0.5f,   1.5f, -2.5f, infinity, 1,
                             -infinity, 3, 1e-13f, -1e-13f, 0,   5e-14f, 254,  1.0f,  -3.0f,    253.0f};
  const std::int64_t m = static_cast<std::int64_t>(x.size()) / 4;
  Problem p{.op = Op::quantize_rows_int8, .type = WeightType::i8, .m = m, .n = 0, .k = 4, .accuracy = Accuracy::exact};
  auto kernel = load(p, find_family("quantize_rows")->space(p, Target{}).default_config());
  ASSERT_TRUE(kernel) << kernel.error().message;
  std::vector<std::int8_t> codes(x.size(), 99);
  std::vector<float> scales(static_cast<std::size_t>(m), -1.0f);
  KernelArgs args{};
  args.x = x.data(), args.y = codes.data(), args.y_scales = scales.data();
  args.m = m, args.k = 4, args.ldx = args.ldy = 4;
  ASSERT_TRUE((*kernel)->run(args));
  EXPECT_EQ(scales, (std::vector<float>{1e-12f / 127.0f, 1.0f, infinity, 1e-12f / 127.0f, 2.0f}));
  EXPECT_EQ(codes, (std::vector<std::int8_t>{0, 0, 0, 0, 127, 0, 2, -2, 0, 0, 0, 0, 13, -13, 0, 6, 127, 0, -2, 126}));
}

}  // namespace
}  // namespace quern

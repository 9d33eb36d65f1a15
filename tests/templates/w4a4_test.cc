// w4a4 on the host target, bit for bit, where random data would not look: every family, row-major and k-major.
#include <cstdint>

#include "tests/templates/host_products.h"

namespace quern {
namespace {

constexpr const char* kFamilies[] = {"w4a4_pairs", "w4a4_table", "w4a4_register", "w4a4_mma"};

struct Operands {
  std::vector<std::uint8_t> x, w;  // dense, w in the problem's order
  std::vector<std::int8_t> x_codebook, w_codebook;
  std::vector<float> x_norms, bias;
  std::vector<std::uint16_t> w_norms;  // bf16
  float scale = 1;
};

constexpr std::uint16_t kOne = 0x3F80;  // 1.0 in bf16

class W4a4 : public test::HostTarget {
 protected:
  // y[m][n], f32.
  std::vector<float> multiply(const Problem& p, const char* family, const Operands& o) {
    return multiply(p, find_family(family)->space(p, Target{}).default_config(), o);
  }
  std::vector<float> multiply(const Problem& p, const Config& config, const Operands& o) {
    auto kernel = load(p, config);
    EXPECT_TRUE(kernel) << kernel.error().message;
    return multiply(p, **kernel, o);
  }
  static std::vector<float> multiply(const Problem& p, LoadedKernel& kernel, const Operands& o) {
    std::vector<float> y(static_cast<std::size_t>(p.m * p.n), -1.0f);
    std::vector<std::byte> workspace(kernel.source().workspace_bytes + 1);
    KernelArgs args{};
    args.w = o.w.data(), args.x = o.x.data(), args.y = y.data(), args.bias = o.bias.empty() ? nullptr : o.bias.data();
    args.workspace = workspace.data();
    args.m = p.m, args.n = p.n, args.k = p.k, args.ldx = p.k / 2, args.ldy = p.n, args.w_row_bytes = w_stored(p).columns;
    args.x_scales = o.x_norms.data(), args.w_norms = o.w_norms.data(), args.scale = o.scale;
    args.x_codebook = reinterpret_cast<const signed char*>(o.x_codebook.data());
    args.w_codebook = reinterpret_cast<const signed char*>(o.w_codebook.data());
    EXPECT_TRUE(kernel.run(args));
    return y;
  }

  // Every family that takes the problem, in both orders of W; W's nibbles all alike or set by `fill`.
  void for_each(Problem p, const std::function<void(const Problem&, const char*)>& check) {
    for (const bool k_major : {false, true}) {
      p.k_major = k_major;
      for (const char* family : kFamilies)
        if (find_family(family)->supports(p, Target{})) check(p, family);
    }
  }
};

Problem problem(std::int64_t m, std::int64_t n, std::int64_t k) {
  return {.op = Op::w4a4, .type = WeightType::code4, .m = m, .n = n, .k = k, .accuracy = Accuracy::exact};
}

Operands constant(const Problem& p, std::int8_t x_code, std::int8_t w_code) {
  Operands o;
  o.x.assign(static_cast<std::size_t>(p.m * p.k / 2), 0x55), o.w.assign(static_cast<std::size_t>(p.n * p.k / 2), 0xAA);
  o.x_codebook.assign(16, 99), o.w_codebook.assign(16, 99);
  o.x_codebook[5] = x_code, o.w_codebook[10] = w_code;
  o.x_norms.assign(static_cast<std::size_t>(p.m), 1.0f), o.w_norms.assign(static_cast<std::size_t>(p.n), kOne);
  return o;
}

// With the longest rows the sum is less than 2^31 by one step of 64 products.
TEST_F(W4a4, TheLargestSumFits) {
  const std::int64_t k = 131008;
  for_each(problem(1, 4, k), [&](const Problem& p, const char* family) {
    const SearchSpace space = find_family(family)->space(p, Target{});
    if (!space.check(space.default_config())) return;
    EXPECT_EQ(multiply(p, family, constant(p, -128, -128))[3], static_cast<float>(16384LL * k)) << family;
    EXPECT_EQ(multiply(p, family, constant(p, -128, 127))[3], static_cast<float>(-16256LL * k)) << family;
  });
}

// Field case 18: exact off multiples of 256, and off multiples of 64 an explicit limit.
TEST_F(W4a4, FieldCase18LengthsOffMultiplesOf256) {
  std::vector<Problem> problems;
  for (const std::int64_t k : {1664, 960})
    for (const std::int64_t m : {1, 8, 33})
      for (const bool k_major : {false, true}) {
        problems.push_back(problem(m, 129, k));
        problems.back().k_major = k_major;
      }
  for_each_kernel(problems, false, [&](const Problem& p, const Config& c) { return verify_random(p, c); });
  const Status refused = validate(problem(1, 129, 1824));
  ASSERT_FALSE(refused);
  for (const char* number : {"1824", "64"}) EXPECT_NE(refused.error().message.find(number), std::string::npos) << refused.error().message;
}

// Each nibble of a row meets its own partner: W's row i is all zeros but for a place, and X's codes tell the places of a byte and the bytes
// apart.
TEST_F(W4a4, EveryPlaceOfARowCounts) {
  for (const std::int64_t k : {64, 192})
    for (const std::int64_t m : {3, 9}) {
      Operands o = constant(problem(m, k, k), 0, 0);
      for (int i = 0; i < 16; ++i) o.x_codebook[static_cast<std::size_t>(i)] = static_cast<std::int8_t>(7 * i - 50);
      o.w_codebook.assign(16, 0), o.w_codebook[3] = 1;
      const auto x_index = [&](std::int64_t row, std::int64_t place) { return static_cast<unsigned>(place * 5 + place / 16 + row) % 16; };
      for (std::int64_t row = 0; row < m; ++row)
        for (std::int64_t b = 0; b < k / 2; ++b)
          o.x[static_cast<std::size_t>(row * k / 2 + b)] = static_cast<std::uint8_t>(x_index(row, 2 * b) | x_index(row, 2 * b + 1) << 4);
      for_each(problem(m, k, k), [&](const Problem& p, const char* family) {
        Operands placed = o;
        placed.w.assign(placed.w.size(), 0);
        for (std::int64_t n = 0; n < k; ++n)
          placed.w[static_cast<std::size_t>(p.k_major ? n / 2 * k + n : n * k / 2 + n / 2)] =
              static_cast<std::uint8_t>(n % 2 == 0 ? 0x03 : 0x30);
        const auto y = multiply(p, family, placed);
        for (std::int64_t row = 0; row < m; ++row)
          for (std::int64_t n = 0; n < k; ++n)
            EXPECT_EQ(y[static_cast<std::size_t>(row * k + n)], 7 * static_cast<int>(x_index(row, n)) - 50)
                << family << " " << to_string(p) << " row " << row << " n " << n;
      });
    }
}

// With numbers for which the two roundings differ, and so do other orders of the products.
TEST_F(W4a4, BothRoundingsAreWhatTheySay) {
  const std::int64_t k = 64;
  const float x_norm = 0.0213f, scale = 1.37f;
  const std::uint16_t w_norm_bits = 0x3DC9;  // 0.09814453125
  const float w_norm = 0.09814453125f;
  const std::int32_t sum = static_cast<std::int32_t>(k) * 125 * 117;
  volatile float factor = x_norm * w_norm;
  factor = factor * scale;
  volatile float product = static_cast<float>(sum) * factor, other = w_norm * scale;
  other = x_norm * other;
  other = static_cast<float>(sum) * other;
  float bias = -96.5f, added = 0, fused = 0;
  for (int i = 0; i < 1000 && added == fused; ++i, bias -= 1.37f)
    added = product + bias, fused = std::fma(static_cast<float>(sum), static_cast<float>(factor), bias);
  bias += 1.37f;
  ASSERT_NE(added, fused);
  ASSERT_NE(product, other);
  Problem plain = problem(1, 4, k);
  plain.bias = true;
  for (const bool is_fused : {false, true}) {
    plain.fused = is_fused;
    for_each(plain, [&](const Problem& p, const char* family) {
      Operands o = constant(p, 125, 117);
      o.x_norms = {x_norm}, o.w_norms.assign(4, w_norm_bits), o.bias.assign(4, bias), o.scale = scale;
      EXPECT_EQ(multiply(p, family, o)[2], is_fused ? fused : added) << family << " fused " << is_fused;
    });
  }
  plain.bias = plain.fused = false;
  for_each(plain, [&](const Problem& p, const char* family) {
    Operands o = constant(p, 125, 117);
    o.x_norms = {x_norm}, o.w_norms.assign(4, w_norm_bits), o.scale = scale;
    EXPECT_EQ(multiply(p, family, o)[2], product) << family;
  });
}

// Where each half of a codebook has one sign its look-ups are two planes of magnitudes; one entry that does not fit, and they are not.
TEST_F(W4a4, CodebooksWithAndWithoutASignPerHalf) {
  const std::vector<std::vector<std::int8_t>> codebooks{
      {-127, -96, -75, -58, -44, -31, -18, -6, 6, 18, 31, 44, 58, 75, 96, 127},  // sorted
      {-128, -96, -75, -58, -44, -31, -18, -6, 6, 18, 31, 44, 58, 75, 96, 127},  // -128 has no magnitude in a byte
      {0, 1, 2, 3, 4, 5, 6, 127, 8, 9, 10, 11, 12, 13, 14, 126},                 // all positive
      {-1, -2, -3, -4, -5, -6, -7, -127, -9, -10, -11, -12, -13, -14, -15, 0},   // all negative
      {7, 6, 5, 4, 3, 2, 1, 0, -1, -2, -3, -4, -5, -6, -7, -8},                  // falling
      {-3, 0, -2, 0, -1, 0, -127, 0, 0, 1, 0, 2, 0, 3, 0, 127},                  // zeros among both
      {-3, 0, -2, 0, 1, 0, -127, 0, 0, 1, 0, 2, 0, 3, 0, 127},                   // one stray in the lower half
      {-3, 0, -2, 0, -1, 0, -127, 0, 0, 1, 0, 2, 0, 3, -4, 127},                 // one in the upper half
      {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, -128},                 // -128 in the upper half
      {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
      {-128, 127, -128, 127, -128, 127, -128, 127, 127, -128, 127, -128, 127, -128, 127, -128}};
  // Steps through shared memory and through registers, in flight within a tile and across tiles; the last block has fewer tiles, the last
  // tile fewer rows. The larger ones meet every third codebook.
  struct Form {
    const char* config;
    std::int64_t n, k;
  };
  for (const Form& form :
       {Form{"w4a4_mma:warps=1,warps_k=1,frags_n=1,frags_m=1,staged=1,stages=2,passes=1,multiply=0,halves=1", 24, 64},
        Form{"w4a4_mma:warps=1,warps_k=2,frags_n=1,frags_m=1,staged=1,stages=3,passes=3,multiply=1,halves=1", 200, 320},
        Form{"w4a4_mma:warps=2,warps_k=1,frags_n=2,frags_m=1,staged=0,stages=1,passes=1,multiply=0,halves=1", 40, 64},
        Form{"w4a4_mma:warps=1,warps_k=2,frags_n=1,frags_m=1,staged=1,stages=1,passes=2,multiply=0,halves=0", 136, 320}}) {
    const auto config = parse_config(form.config);
    ASSERT_TRUE(config) << config.error().message;
    const Problem p = problem(3, form.n, form.k);
    auto kernel = load(p, *config);
    ASSERT_TRUE(kernel) << kernel.error().message;
    for (std::size_t i = 0; i<codebooks.size(); i += form.n> 100 ? 3 : 1) {
      Operands o = constant(p, -5, 0);
      o.w_codebook = codebooks[i];
      for (std::int64_t n = 0; n < p.n; ++n) std::fill_n(o.w.begin() + n * p.k / 2, p.k / 2, static_cast<std::uint8_t>(n % 16 * 0x11));
      const auto y = multiply(p, **kernel, o);
      for (std::int64_t m = 0; m < p.m; ++m)
        for (std::int64_t n = 0; n < p.n; ++n)
          EXPECT_EQ(y[static_cast<std::size_t>(m * p.n + n)], static_cast<float>(-5 * codebooks[i][static_cast<std::size_t>(n % 16)] * p.k))
              << form.config << " row " << m << " n " << n << " codebook " << i;
    }
  }
}

}  // namespace
}  // namespace quern

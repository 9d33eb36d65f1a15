// rpbh_quantize on the host target, bit for bit, against numbers worked out by hand and where random data would not look.
#include <bit>
#include <cstdint>
#include <limits>
#include <numeric>

#include "tests/templates/host_products.h"

namespace quern {
namespace {

// Columns in their own order, unsigned; code i is i.
struct Operands {
  explicit Operands(std::int64_t k)
      : permutation(static_cast<std::size_t>(k)), signs(static_cast<std::size_t>(k), 1), boundaries(15), codebook(16) {
    std::iota(permutation.begin(), permutation.end(), 0);
    std::iota(codebook.begin(), codebook.end(), std::int8_t{0});
  }
  std::vector<std::int32_t> permutation;
  std::vector<std::int8_t> signs;
  std::vector<float> boundaries;
  std::vector<std::int8_t> codebook;
  float epsilon = 0;
};

struct Rows {
  std::vector<std::int8_t> codes;
  std::vector<float> norms;
};

class Rpbh : public test::HostTarget {
 protected:
  static Problem problem(WeightType type, std::int64_t m, std::int64_t k, std::int64_t block) {
    return {.op = Op::rpbh_quantize, .type = type, .m = m, .n = 0, .k = k, .accuracy = Accuracy::exact, .block = block};
  }
  static SearchSpace space(const Problem& p) { return find_family("rpbh_quantize")->space(p, Target{}); }

  Rows quantize(const Problem& p, const Config& config, const std::vector<float>& x, const Operands& o) {
    auto kernel = load(p, config);
    EXPECT_TRUE(kernel) << kernel.error().message << kernel.error().log;
    const std::int64_t columns = y_extent(p).columns;
    Rows rows{std::vector<std::int8_t>(static_cast<std::size_t>(p.m * columns), 99),
              std::vector<float>(static_cast<std::size_t>(p.m), -1.0f)};
    KernelArgs args{};
    args.x = x.data(), args.y = rows.codes.data(), args.y_scales = rows.norms.data();
    args.m = p.m, args.k = args.ldx = p.k, args.ldy = columns;
    args.permutation = o.permutation.data(), args.signs = reinterpret_cast<const signed char*>(o.signs.data());
    args.boundaries = o.boundaries.data(), args.epsilon = o.epsilon;
    args.x_codebook = p.type == WeightType::i8 ? reinterpret_cast<const signed char*>(o.codebook.data()) : nullptr;
    EXPECT_TRUE((*kernel)->run(args));
    return rows;
  }
  // The codes of one row.
  std::vector<std::int8_t> codes(WeightType type, std::int64_t block, const std::vector<float>& x, const Operands& o) {
    const Problem p = problem(type, 1, static_cast<std::int64_t>(x.size()), block);
    return quantize(p, space(p).default_config(), x, o).codes;
  }
  void set_boundaries(Operands& o, float unit, float first) {
    for (std::size_t i = 0; i < 15; ++i) o.boundaries[i] = (static_cast<float>(i) + first) * unit;
  }
};

// 1 + 4 + 16 + 100 = 11 * 11. The values are 4, -1, 10 and 2 elevenths between boundaries at -4.5, -3.5, ... 9.5.
TEST_F(Rpbh, ColumnsArePermutedThenSigned) {
  Operands o(4);
  o.permutation = {2, 0, 3, 1}, o.signs = {1, -1, 1, 1};
  set_boundaries(o, 1.0f / 11, -4.5f);
  EXPECT_EQ(codes(WeightType::i8, 1, {1, 2, 4, 10}, o), (std::vector<std::int8_t>{9, 4, 15, 7}));
  EXPECT_EQ(codes(WeightType::code4, 1, {1, 2, 4, 10}, o), (std::vector<std::int8_t>{0x49, 0x7f}));
  o.codebook = {-128, 1, 2, 3, 44, 5, 6, 77, 8, -99, 10, 11, 12, 13, 14, 127};
  EXPECT_EQ(codes(WeightType::i8, 1, {1, 2, 4, 10}, o), (std::vector<std::int8_t>{-99, 44, 127, 77}));
}

// {1,2,4,10} becomes {3,-1,14,-6}, {17,-7,-11,5} and half of that; {4,4,4,0} becomes {8,0,4,4}, {12,4,4,-4} and half of that. The norm
// is 13.
TEST_F(Rpbh, EveryBlockOfFourIsTurnedByItself) {
  Operands o(8);
  set_boundaries(o, 1.0f / 13, -4.75f);
  EXPECT_EQ(codes(WeightType::i8, 4, {1, 2, 4, 10, 4, 4, 4, 0}, o), (std::vector<std::int8_t>{14, 2, 0, 8, 11, 7, 7, 3}));
  EXPECT_EQ(codes(WeightType::code4, 4, {1, 2, 4, 10, 4, 4, 4, 0}, o),
            (std::vector<std::int8_t>{0x2e, static_cast<std::int8_t>(0x80), 0x7b, 0x37}));
}

// A one in column j becomes row j of the Hadamard matrix: 1/sqrt(block), negative where c and j share an odd number of bits. Seven
// boundaries are the negative value itself, which does not exceed them, and eight the f32 below the positive one.
TEST_F(Rpbh, AOneBecomesARowOfTheMatrix) {
  for (std::int64_t block = 1; block <= 4096; block *= 2) {
    const std::int64_t k = 3 * block;
    const auto factor = static_cast<float>(1 / std::sqrt(static_cast<double>(block)));
    Operands o(k);
    std::fill(o.boundaries.begin(), o.boundaries.begin() + 7, -factor);
    std::fill(o.boundaries.begin() + 7, o.boundaries.end(), std::nextafter(factor, 0.0f));
    const std::int64_t columns[] = {0, block / 2, block - 1, block * 5 / 7};
    const Problem p = problem(WeightType::i8, 4, k, block);
    std::vector<float> x(static_cast<std::size_t>(4 * k), 0.0f);
    for (std::int64_t m = 0; m < 4; ++m) x[static_cast<std::size_t>(m * k + block + columns[m])] = 1;
    const auto found = quantize(p, space(p).default_config(), x, o).codes;
    for (std::int64_t m = 0; m < 4; ++m)
      for (std::int64_t c = 0; c < k; ++c) {
        const bool negative = std::popcount(static_cast<std::uint64_t>((c - block) & columns[m])) % 2 == 1;
        const int right = c < block || c >= 2 * block ? 7 : negative ? 0 : 15;
        ASSERT_EQ(found[static_cast<std::size_t>(m * k + c)], right) << "block=" << block << " j=" << columns[m] << " c=" << c;
      }
  }
}

// The boundary belongs to the lower index, and a value that exceeds all has the last one.
TEST_F(Rpbh, AValueOnABoundaryGoesDown) {
  Operands o(2);
  set_boundaries(o, 0.01f, 0);
  o.boundaries[13] = 3.0f / 5.0f, o.boundaries[14] = std::nextafter(4.0f / 5.0f, 0.0f);
  EXPECT_EQ(codes(WeightType::i8, 1, {3, 4}, o), (std::vector<std::int8_t>{13, 15}));
  o.boundaries[13] = std::nextafter(3.0f / 5.0f, 0.0f), o.boundaries[14] = 4.0f / 5.0f;
  EXPECT_EQ(codes(WeightType::i8, 1, {3, 4}, o), (std::vector<std::int8_t>{14, 14}));
}

// 3 / (5 + 2) is another f32 than 3 * (1 / (5 + 2)): it lies between these two boundaries, on the upper one.
TEST_F(Rpbh, DividesByTheNormPlusEpsilon) {
  const float quotient = 3.0f / 7.0f;
  ASSERT_NE(quotient, 3.0f * (1.0f / 7.0f));
  Operands o(2);
  o.epsilon = 2;
  std::fill(o.boundaries.begin(), o.boundaries.end(), 2.0f);
  o.boundaries[0] = std::nextafter(quotient, 0.0f), o.boundaries[1] = quotient;
  EXPECT_EQ(codes(WeightType::i8, 1, {3, 4}, o), (std::vector<std::int8_t>{1, 2}));
}

// With epsilon a row of zeros is zeros, without it 0/0: no boundary is exceeded.
TEST_F(Rpbh, RowsWithoutANormAndRowsWithoutANumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> x{0, 0, 0, 0, 3, nan, 4, 0, 3, -infinity, 4, 0, 3, 0, -4, 0};
  for (const float epsilon : {0.0f, 1e-10f}) {
    Operands o(4);
    o.epsilon = epsilon, o.codebook[0] = -5;
    set_boundaries(o, 0.1f, -6.5f);
    const Problem p = problem(WeightType::i8, 4, 4, 1);
    const Rows rows = quantize(p, space(p).default_config(), x, o);
    EXPECT_EQ(rows.norms[0], 0);
    EXPECT_TRUE(std::isnan(rows.norms[1]));
    EXPECT_EQ(rows.norms[2], infinity);
    EXPECT_EQ(rows.norms[3], 5);
    const std::int8_t zero = epsilon == 0 ? -5 : 7;
    EXPECT_EQ(rows.codes, (std::vector<std::int8_t>{zero, zero, zero, zero, -5, -5, -5, -5, 7, -5, 7, 7, 13, 7, -5, 7})) << epsilon;
    const Problem turned = problem(WeightType::code4, 4, 4, 4);
    const Rows packed = quantize(turned, space(turned).default_config(), x, o);
    EXPECT_EQ(std::vector<std::int8_t>(packed.codes.begin() + 2, packed.codes.begin() + 6), (std::vector<std::int8_t>{0, 0, 0, 0}));
  }
}

TEST_F(Rpbh, AnIndexOutsideTheRowIsTheLastOne) {
  Operands o(4);
  o.permutation = {-1, 4, 1, std::numeric_limits<std::int32_t>::min()};
  set_boundaries(o, 1.0f / 4, -1.5f);
  // 10, 10, 2 and 10 over the root of 304.
  for (const std::int64_t staged : {0, 1}) {
    const Problem p = problem(WeightType::i8, 1, 4, 1);
    const Rows rows = quantize(p, {"rpbh_quantize", {{"threads", 32}, {"staged", staged}}}, {1, 2, 4, 10}, o);
    EXPECT_EQ(rows.norms[0], std::sqrt(304.0f));
    EXPECT_EQ(rows.codes, (std::vector<std::int8_t>{4, 4, 2, 4})) << staged;
  }
}

// 2^24 and ones: added up one by one every one is lost. In the definition's order those of columns 1, 257, 513, ... meet in a partial sum,
// those of columns 1, 33, 65, ... in the tree, and both come to 2^24 as 8; those of columns 1, 2, 4, ... come to it singly, and are lost.
// The squares of 0.1 and 0.2 are added by a fused multiply-add.
TEST_F(Rpbh, TheSumOfSquaresHasOneOrderForEveryConfig) {
  const std::int64_t k = 2048;
  std::vector<float> x(k, 0.0f), tree(k, 0.0f), sparse(k, 0.0f), fused(k, 0.0f);
  x[0] = tree[0] = sparse[0] = 4096;
  for (std::size_t i = 0; i < 8; ++i) x[1 + 256 * i] = 1;
  for (std::size_t i = 0; i < 8; ++i) tree[1 + 32 * i] = 1;
  for (std::size_t i = 1; i < 256; i *= 2) sparse[i] = 1;
  fused[0] = 0.1f, fused[256] = 0.2f;
  std::vector<float> all = x;
  all.insert(all.end(), tree.begin(), tree.end());
  all.insert(all.end(), sparse.begin(), sparse.end());
  all.insert(all.end(), fused.begin(), fused.end());
  const Problem p = problem(WeightType::code4, 4, k, 64);
  const std::vector<float> right{std::sqrt(0x1p24f + 8), std::sqrt(0x1p24f + 8), 4096, std::sqrt(std::fma(0.2f, 0.2f, 0.1f * 0.1f))};
  ASSERT_NE(right[0], 4096);
  volatile float square = 0.2f * 0.2f;
  ASSERT_NE(right[3], std::sqrt(square + 0.1f * 0.1f));
  const auto configs = space(p).enumerate();
  ASSERT_EQ(configs.size(), 10u);
  for (const Config& config : configs) EXPECT_EQ(quantize(p, config, all, Operands(k)).norms, right) << to_string(config);
}

// Random rows: lengths that are no multiple of a warp's or a block's threads, codes and signs at any byte, gaps.
TEST_F(Rpbh, RandomRowsByTheDefinition) {
  struct Shape {
    WeightType type;
    std::int64_t m, k, block;
  };
  constexpr auto i8 = WeightType::i8, code4 = WeightType::code4;
  std::int64_t turn = 0;
  for (const Shape& s : {Shape{i8, 3, 7, 1},
                         {code4, 2, 2, 2},
                         {code4, 1, 48, 16},
                         {i8, 3, 36, 4},
                         {code4, 2, 96, 32},
                         {i8, 2, 320, 64},
                         {code4, 1, 768, 256},
                         {code4, 2, 3072, 1024}}) {
    Problem p = problem(s.type, s.m, s.k, s.block);
    p.x_type = DType(turn % 3);
    DataOptions options;
    options.offset = turn % 4, options.seed = static_cast<std::uint64_t>(100 + turn++);
    options.x_gap = options.y_gap = turn % 2 * 3;
    for (const Config& config : test::some_configs(*find_family("rpbh_quantize"), p, Target{}))
      EXPECT_EQ(verify_random(p, config, options), "") << to_string(p) << " " << to_string(config);
  }
}

}  // namespace
}  // namespace quern

// The number policy (docs/decisions/0007-numbers.md): scales that no quantizer writes, and activations at the ends of their types, in every
// type and family that is there. A result is a finite number within its class where double precision has one, and none where it has none.
#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "tests/templates/host_products.h"

namespace quern::test {
namespace {

constexpr Layout kLayouts[] = {Layout::gguf, Layout::planar};

// Offsets of the f16 scales (and mins) of a block; empty where scales are something else.
std::vector<int> half_scales(WeightType type) {
  switch (type) {
    case WeightType::q4_1:
    case WeightType::q5_1:
    case WeightType::q4_k:
    case WeightType::q5_k:
      return {0, 2};
    case WeightType::q2_k:
      return {80, 82};
    case WeightType::q3_k:
      return {108};
    case WeightType::q6_k:
      return {208};
    case WeightType::tq1_0:
      return {52};
    case WeightType::tq2_0:
      return {64};
    case WeightType::f32:
    case WeightType::f16:
    case WeightType::bf16:
    case WeightType::iq1_m:
    case WeightType::mxfp4:
    case WeightType::nvfp4:
      return {};
    default:
      return {0};
  }
}

// Bits for one scale, or for one weight of a dense type: infinities, a NaN, a denormal, negative zero, a large and a negative
// number.
std::vector<std::uint32_t> special_bits(WeightType type) {
  switch (type) {
    case WeightType::mxfp4:
      return {255, 254, 253, 0, 1, 2, 240};
    case WeightType::nvfp4:
      return {0x7F, 0xFF, 0x7E, 0x01, 0x00, 0x80, 0x07};
    case WeightType::bf16:
      return {0x7F80, 0xFF80, 0x7FC0, 0x0040, 0x8000, 0x7180, 0xBF00};
    case WeightType::f32:
      return {0x7F800000, 0xFF800000, 0x7FC00000, 0x00400000, 0x80000000, 0x71800000, 0xBF000000};
    default:
      return {0x7C00, 0xFC00, 0x7E00, 0x0001, 0x8000, 0x7BFF, 0xB800};
  }
}

constexpr std::int64_t kLargeScale = 5;  // its place among them

void store_bits(std::byte* at, std::uint32_t bits, std::size_t bytes) { std::memcpy(at, &bits, bytes); }

// `field` turns over the scales of a block that has several.
void set_scale(WeightType type, std::byte* block, std::uint32_t bits, std::size_t field) {
  if (const auto offsets = half_scales(type); !offsets.empty())
    store_bits(block + offsets[field % offsets.size()], bits, 2);
  else if (type == WeightType::mxfp4)
    store_bits(block, bits, 1);
  else if (type == WeightType::nvfp4)
    store_bits(block + field % 4, bits, 1);
  else if (type == WeightType::iq1_m)
    for (int w = 0; w < 4; ++w) {
      std::byte& high = block[48 + 2 * w + 1];
      high = (high & std::byte{0x0F}) | static_cast<std::byte>((bits >> (4 * w) & 15u) << 4);
    }
  else
    store_bits(block, bits, static_cast<std::size_t>(info(type).block_bytes));
}
void set_every_scale(WeightType type, std::byte* block, std::uint32_t bits) {
  for (std::size_t field = 0; field < 4; ++field) set_scale(type, block, bits, field);
}

// Blocks of a row, or for dense types runs of 128 weights: fast families take no less.
std::int64_t weights_per_unit(WeightType type) { return info(type).block_elements == 1 ? 128 : info(type).block_elements; }

// Lines of the matrix, rows for mul_mat and block columns for out_prod, which never meet in one output: two for each special number, in one
// place of the line and in all of them, and three ordinary ones.
struct Crafted {
  std::int64_t n = 0, k = 0;
  std::vector<std::byte> rows;
};
Crafted craft(WeightType type, bool columns) {
  const auto bits = special_bits(type);
  const std::int64_t unit = weights_per_unit(type), lines = 2 * std::ssize(bits) + 3, across = columns ? 19 : unit > 64 ? 3 : 7;
  Crafted w;
  w.n = columns ? across : lines, w.k = unit * (columns ? lines : across);
  w.rows = random_weights(type, w.n, w.k, 71);
  const std::int64_t block = info(type).block_bytes, blocks_per_unit = unit / info(type).block_elements;
  for (std::int64_t line = 0; line < lines; ++line)
    for (std::int64_t at = 0; at < across; ++at) {
      const std::int64_t n = columns ? at : line, first = (columns ? line : at) * blocks_per_unit;
      const auto special = static_cast<std::size_t>(line / 2);
      if (special >= bits.size()) continue;
      for (std::int64_t b = first; b < first + blocks_per_unit; ++b) {
        std::byte* p = w.rows.data() + n * row_bytes(type, w.k) + b * block;
        if (line % 2 == 1)
          set_every_scale(type, p, bits[special]);
        else if (at == line % across && b % 128 == first % 128)
          set_scale(type, p, bits[special], special);
      }
    }
  return w;
}

Problem problem(Op op, WeightType type, Layout layout, std::int64_t m, const Crafted& w, Accuracy accuracy) {
  return {.op = op, .type = type, .layout = layout, .m = m, .n = w.n, .k = w.k, .accuracy = accuracy};
}

std::vector<OutputReference> right_answers(const Problem& p, std::span<const std::byte> rows, std::span<const std::byte> x) {
  const WeightRows w{p.type, rows.data(), p.n, p.k, row_bytes(p.type, p.k)};
  const Extent given = x_extent(p), made = y_extent(p);
  const ActivationRows activations{p.x_type, x.data(), given.rows, given.columns, given.columns};
  std::vector<OutputIndex> places;
  for (std::int64_t m = 0; m < made.rows; ++m)
    for (std::int64_t column = 0; column < made.columns; ++column) places.push_back({m, column});
  if (p.op != Op::out_prod) return mul_mat_reference(w, activations, nullptr, DType::f32, places);
  std::vector<OutputReference> sums(places.size());
  add_out_prod_reference(w, activations, 0, p.n, places, sums);
  return sums;
}

// Kernels with f16 operands: what a weight may lose below f16's least normal number, in units of its byte's scale. Types whose scale is an
// f16 times an integer lose nothing.
double f16_loss(WeightType type) {
  switch (type) {
    case WeightType::f32:
    case WeightType::bf16:
      return 0x1p-25;
    case WeightType::mxfp4:
    case WeightType::iq1_s:
    case WeightType::iq1_m:
    case WeightType::iq2_xxs:
    case WeightType::iq2_xs:
    case WeightType::iq2_s:
    case WeightType::iq3_xxs:
    case WeightType::iq3_s:
      return 0x1p-25 * 64;
    default:
      return 0;
  }
}

const char* kind_of(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isfinite(value)) return "finite";
  return value > 0 ? "+Inf" : "-Inf";
}

// Empty when every output is of the right kind, and within the class's bar where it is finite.
std::string compare_kinds(const Problem& p, std::span<const OutputReference> right, const float* y, double sum_of_x, Accuracy accuracy) {
  const double worst = accuracy_bars(accuracy).worst;
  const Extent made = y_extent(p), given = x_extent(p);
  const std::int64_t unit = weights_per_unit(p.type);
  // Finite weights near 2^127 make f32 sums pass its end, unless activations are small.
  const bool sums_overflow = p.type == WeightType::mxfp4 && sum_of_x > 1e-3 * static_cast<double>(given.rows * given.columns);
  std::size_t finite = 0, other = 0;
  for (std::size_t i = 0; i < right.size(); ++i) {
    const double needed = right[i].value, got = y[i];
    (std::isfinite(needed) ? finite : other) += 1;
    const std::string at = "y[" + std::to_string(i / static_cast<std::size_t>(made.columns)) + "," +
                           std::to_string(i % static_cast<std::size_t>(made.columns)) + "] is " + std::to_string(got) + ", needed " +
                           std::to_string(needed);
    if (accuracy <= Accuracy::f32 && !sums_overflow && std::string_view(kind_of(static_cast<float>(needed))) != kind_of(got)) return at;
    if (!std::isfinite(static_cast<float>(needed))) {
      if (std::isfinite(got)) return at + " or another that is no number";
      continue;
    }
    double allowed = worst * right[i].absolute_sum + std::abs(needed) * 0x1p-24 + 0x1p-149 * static_cast<double>(p.k);
    if (accuracy == Accuracy::tight) {
      const std::int64_t column = static_cast<std::int64_t>(i) % made.columns, line = p.op == Op::out_prod ? column / unit : column;
      if (!std::isfinite(got) && (p.type == WeightType::mxfp4 || line / 2 == kLargeScale)) continue;  // beyond f16
      allowed += f16_loss(p.type) * sum_of_x;
    }
    if (!(std::abs(got - needed) <= allowed)) return at + " within " + std::to_string(allowed);
  }
  // Every scale of NVFP4 is a number.
  return finite > 0 && (other > 0) == (p.type != WeightType::nvfp4) ? "" : "the case holds only numbers, or none";
}

class Numbers : public HostTarget {
 protected:
  // Runs a kernel on crafted weights. Raw blocks start at their natural alignment and no better.
  std::string check(const Problem& p, const Config& c, const Crafted& w, std::span<const std::byte> x) {
    const auto image = in_layout(p, w.rows);
    const Extent made = y_extent(p);
    std::vector<float> y(static_cast<std::size_t>(made.rows * made.columns), -2.6e36f);
    auto kernel = load(p, c);
    if (!kernel) return kernel.error().message + kernel.error().log;
    const std::size_t natural = p.layout == Layout::planar ? 16 : natural_alignment(p.type);
    std::vector<std::byte> room(image.size() + 64);
    std::byte* start = room.data() + (32 - reinterpret_cast<std::uintptr_t>(room.data()) % 16) % 16 + natural;
    std::copy(image.begin(), image.end(), start);
    const Status status = (*kernel)->run(dense_args(p, start, x.data(), y.data(), (*kernel)->workspace()));
    if (!status) return status.error().message;
    double sum_of_x = 0;
    for (std::int64_t i = 0; i < p.m * x_extent(p).columns; ++i) sum_of_x += std::abs(load_element(p.x_type, x.data(), i));
    return compare_kinds(p, right_answers(p, w.rows, x), y.data(), sum_of_x, (*kernel)->source().accuracy);
  }

 private:
  static std::size_t natural_alignment(WeightType type) {
    const auto bytes = static_cast<std::size_t>(info(type).block_bytes);
    return std::min<std::size_t>(bytes & (~bytes + 1), 16);
  }
};

// `dequantize` meets every bit pattern in tests/tuner/decoder_test.cc. The layouts and the operands' class turn over the types, so that
// each type meets all of its families in few kernels.
class NumbersOfType : public Numbers, public testing::WithParamInterface<WeightType> {};

TEST_P(NumbersOfType, FieldCase11ScalesThatNoQuantizerWritesAreOfOneKindInEveryFamily) {
  const WeightType type = GetParam();
  const Crafted rows = craft(type, false), columns = craft(type, true);
  const auto turn = static_cast<std::size_t>(type) % 2;
  const Layout one = kLayouts[turn], other = kLayouts[1 - turn];
  std::vector<Problem> problems;
  for (const Layout layout : kLayouts) problems.push_back(problem(Op::mul_mat, type, layout, 1, rows, Accuracy::normal));
  problems.push_back(problem(Op::mul_mat, type, one, 9, rows, Accuracy::tight));
  problems.push_back(problem(Op::mul_mat, type, one, 64, rows, Accuracy::tight));
  problems.push_back(problem(Op::mul_mat, type, other, 64, rows, Accuracy::normal));
  problems.push_back(problem(Op::out_prod, type, one, 64, columns, Accuracy::tight));
  problems.push_back(problem(Op::out_prod, type, other, 64, columns, Accuracy::normal));
  for_each_kernel(problems, false, [&](const Problem& p, const Config& c) -> std::string {
    // The generic kernel is the same for every M.
    if (c.family == "generic" && p.op == Op::mul_mat && p.m > 1) return {};
    return check(p, c, p.op == Op::out_prod ? columns : rows, random_activations(p.x_type, p.m, x_extent(p).columns, 72));
  });
}

std::vector<WeightType> every_type() {
  std::vector<WeightType> types;
  for (const auto& type : kWeightTypes) types.push_back(type.type);
  return types;
}
INSTANTIATE_TEST_SUITE_P(Types, NumbersOfType, testing::ValuesIn(every_type()),
                         [](const auto& type) { return std::string(to_string(type.param)); });

// e = 255 stands for 2^127, where a doubled value of 2 and more is infinite; e = 0 and 1 are denormals, which stay. Rows: weights of
// +-2^127 and 0; one infinite weight that meets the group's smallest activation; denormals alone.
TEST_F(Numbers, FieldCase12MxFp4ExponentsAtBothEndsAreOfOneKindInEveryFamily) {
  constexpr std::int64_t kBlocks = 8, kK = 32 * kBlocks;
  const std::int64_t row = row_bytes(WeightType::mxfp4, kK);
  Crafted w{20, kK, random_weights(WeightType::mxfp4, 20, kK, 73)};
  Random random(74);
  for (std::int64_t n = 0; n < w.n; ++n)
    for (std::int64_t b = 0; b < kBlocks; ++b) {
      std::byte* block = w.rows.data() + n * row + b * 17;
      if (n % 5 == 4) continue;
      block[0] = std::byte{n % 5 < 2 ? std::uint8_t{255} : n % 5 == 2 ? std::uint8_t{0} : std::uint8_t{1}};
      if (n % 5 > 1) continue;
      for (int j = 1; j <= 16; ++j) {
        constexpr unsigned kSmall[] = {0, 1, 8, 9};  // 0, 1, -0, -1
        block[j] = n % 5 == 1 ? std::byte{0} : static_cast<std::byte>(kSmall[random.below(4)] | kSmall[random.below(4)] << 4);
      }
      if (n % 5 == 1 && b == n % kBlocks) block[1] = std::byte{0x02};
    }
  std::vector<Problem> problems;
  for (Layout layout : kLayouts) problems.push_back(problem(Op::mul_mat, WeightType::mxfp4, layout, 1, w, Accuracy::normal));
  for (Accuracy accuracy : {Accuracy::normal, Accuracy::tight}) {
    problems.push_back(problem(Op::mul_mat, WeightType::mxfp4, Layout::planar, 40, w, accuracy));
    problems.push_back(problem(Op::out_prod, WeightType::mxfp4, Layout::gguf, 9, w, accuracy));
  }
  for_each_kernel(problems, false, [&](const Problem& p, const Config& c) {
    // The first activation of each 32 is a hundredth of the largest; sums of 2^127 stay below the end of f32.
    std::vector<float> x(static_cast<std::size_t>(p.m * x_extent(p).columns));
    Random values(75);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = i % 32 == 0 ? 1e-5f : values.uniform(-1e-3f, 1e-3f);
    return check(p, c, w, std::as_bytes(std::span(x)));
  });
}

// A row of X that holds a NaN or an infinity is lost, and no other.
TEST_F(Numbers, AnActivationThatIsNoNumberReachesItsRowAlone) {
  std::vector<Problem> problems;
  for (WeightType type : {WeightType::q4_0, WeightType::q6_k, WeightType::f16})
    for (std::int64_t m : {1, 8, 40})
      for (Accuracy accuracy : {Accuracy::normal, Accuracy::tight})
        problems.push_back({.op = m == 8 ? Op::out_prod : Op::mul_mat,
                            .type = type,
                            .layout = kLayouts[m == 40],
                            .m = m,
                            .n = 40,
                            .k = 256,
                            .accuracy = accuracy});
  for (Layout layout : kLayouts)
    problems.push_back({.op = Op::mul_mat, .type = WeightType::q4_k, .layout = layout, .m = 8, .n = 40, .k = 256});
  for_each_kernel(problems, false, [&](const Problem& p, const Config& c) -> std::string {
    const auto rows = random_weights(p.type, p.n, p.k, 81), image = in_layout(p, rows);
    auto x = random_activations(p.x_type, p.m, x_extent(p).columns, 82);
    auto kernel = load(p, c);
    if (!kernel) return kernel.error().message;
    for (float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
      const std::int64_t columns = x_extent(p).columns, lost = p.m / 2;
      store_element(p.x_type, x.data(), lost * columns + 17, bad);
      std::vector<float> y(static_cast<std::size_t>(p.m * y_extent(p).columns), -2.6e36f);
      const Status status = (*kernel)->run(dense_args(p, image.data(), x.data(), y.data(), (*kernel)->workspace()));
      if (!status) return status.error().message;
      for (std::int64_t i = 0; i < std::ssize(y); ++i)
        if (std::isfinite(y[static_cast<std::size_t>(i)]) != (i / y_extent(p).columns != lost))
          return "y[" + std::to_string(i) + "] is " + std::to_string(y[static_cast<std::size_t>(i)]) + ", row " + std::to_string(lost) +
                 " of X holds " + std::to_string(bad);
    }
    return {};
  });
}

// Small activations meet large weights: neither 1e-36 nor an f32 denormal is zero. Against bf16 operands, whose denormals have seven bits
// less, 1e-39 is too small.
TEST_F(Numbers, SmallActivationsAreNotFlushed) {
  std::vector<Problem> problems;
  for (std::int64_t m : {1, 8, 40})
    for (Accuracy accuracy : {Accuracy::normal, Accuracy::tight})
      problems.push_back(
          {.op = Op::mul_mat, .type = WeightType::q8_0, .layout = kLayouts[m == 8], .m = m, .n = 20, .k = 256, .accuracy = accuracy});
  problems.push_back({.op = Op::out_prod, .type = WeightType::q8_0, .m = 3, .n = 20, .k = 256});
  for_each_kernel(problems, false, [&](const Problem& p, const Config& c) -> std::string {
    auto kernel = load(p, c);
    if (!kernel) return kernel.error().message;
    Crafted w{p.n, p.k, random_weights(p.type, p.n, p.k, 83)};
    for (std::int64_t b = 0; b < p.n * p.k / 32; ++b) set_scale(p.type, w.rows.data() + 34 * b, 0x5800, 0);  // 128
    const auto image = in_layout(p, w.rows);
    for (float large : {1e-35f, 1e-36f, 1e-38f, 1e-40f}) {
      if (large < 1e-38f && (*kernel)->source().accuracy == Accuracy::normal && c.family != "gemv_q8") continue;
      std::vector<float> x(static_cast<std::size_t>(p.m * x_extent(p).columns));
      Random random(84);
      for (float& v : x) v = random.uniform(-large, large);
      std::vector<float> y(static_cast<std::size_t>(p.m * y_extent(p).columns), -2.6e36f);
      const Status status = (*kernel)->run(dense_args(p, image.data(), x.data(), y.data(), (*kernel)->workspace()));
      if (!status) return status.error().message;
      const auto right = right_answers(p, w.rows, std::as_bytes(std::span(x)));
      for (std::size_t i = 0; i < y.size(); ++i)
        if (!(std::abs(y[i] - right[i].value) <= 2e-2 * right[i].absolute_sum))
          return "y[" + std::to_string(i) + "] is " + std::to_string(y[i] / large) + " times the largest x of " +
                 std::to_string(large * 1e30f) + "e-30, needed " + std::to_string(right[i].value / large);
    }
    return {};
  });
}

// The tensor scale of NVFP4 files, as an argument.
TEST_F(Numbers, FieldCase13AWeightScaleMultipliesInEveryOpAndFamily) {
  std::vector<Problem> problems;
  for (Layout layout : kLayouts) {
    Problem p{.type = WeightType::nvfp4, .layout = layout, .n = 40, .k = 320, .scale = true};
    for (std::int64_t m : {1, 9, 64}) {
      p.op = Op::mul_mat, p.m = m, p.bias = m == 9;
      problems.push_back(p);
    }
    p.op = Op::out_prod, p.m = 9, p.bias = false;
    problems.push_back(p);
    p.op = Op::mul_mat_id, p.m = 5, p.experts = 4, p.used = 2;
    problems.push_back(p);
    p.experts = p.used = 1;
    p.op = Op::dequantize, p.m = 1, p.accuracy = Accuracy::exact;
    problems.push_back(p);
  }
  for_each_kernel(problems, false, [&](const Problem& p, const Config& c) { return verify_random(p, c); });
}

TEST_F(Numbers, AnIdOutsideTheExpertsGivesARowOfNaNs) {
  std::vector<Problem> problems;
  for (std::int64_t m : {1, 40})
    problems.push_back(
        {.op = Op::mul_mat_id, .type = WeightType::q4_0, .layout = kLayouts[m == 1], .m = m, .n = 40, .k = 256, .experts = 3, .used = 2});
  for_each_kernel(problems, false, [&](const Problem& p, const Config& c) -> std::string {
    auto kernel = load(p, c);
    auto data = BenchData::make(p, *device_, {});
    if (!kernel || !data) return (kernel ? data.error() : kernel.error()).message;
    std::vector<int> ids(static_cast<std::size_t>(p.m * p.used));
    constexpr int kIds[] = {0, -1, 3, 2, 1 << 30, std::numeric_limits<int>::min(), 1};
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = kIds[i % 7];
    KernelArgs args = (*data)->args(0, (*kernel)->workspace());
    args.ids = ids.data(), args.ids_stride = p.used;
    std::vector<float> y(ids.size() * static_cast<std::size_t>(p.n));
    args.y = y.data();
    const Status status = (*kernel)->run(args);
    if (!status) return status.error().message;
    const AccuracyBars bars = accuracy_bars((*kernel)->source().accuracy);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const bool named = ids[i] >= 0 && ids[i] < p.experts;
      std::vector<OutputIndex> places;
      for (std::int64_t n = 0; n < p.n; ++n) places.push_back({static_cast<std::int64_t>(i), n});
      const WeightRows w{p.type, (*data)->weights().data() + (named ? ids[i] : 0) * p.n * row_bytes(p.type, p.k), p.n, p.k,
                         row_bytes(p.type, p.k)};
      const auto right = mul_mat_reference(w, {p.x_type, (*data)->x().data(), p.m * p.used, p.k, p.k}, nullptr, DType::f32, places);
      for (std::size_t n = 0; n < right.size(); ++n) {
        const float got = y[i * right.size() + n];
        if (named ? !(std::abs(got - right[n].value) <= bars.worst * right[n].absolute_sum + 1e-6) : !std::isnan(got))
          return "row " + std::to_string(i) + " of id " + std::to_string(ids[i]) + " holds " + std::to_string(got);
      }
    }
    return {};
  });
}

TEST(NumberPolicy, NothingAsksForDenormalsToBeFlushed) {
  for (Op op : kOps)
    for (const Family* family : families()) {
      Problem p{.op = op, .layout = op == Op::to_planar ? Layout::gguf : Layout::planar, .m = is_product(op) ? 64 : 1, .n = 64, .k = 256};
      const Target target{Target::Kind::cuda, 90, true};
      if (!is_product(op)) p.accuracy = Accuracy::exact;
      if (!family->supports(p, target)) p.m = 1;
      if (!family->supports(p, target)) continue;
      const auto source = family->render(p, target, family->space(p, target).default_config());
      ASSERT_TRUE(source) << source.error().message;
      std::string all = source->text;
      for (const auto& header : source->headers) all += header.text;
      for (const auto& option : source->options) all += option + "\n";
      for (const char* word : {"ftz", "fast_math", "fast-math", "__fdividef", "approx"})
        EXPECT_EQ(all.find(word), std::string::npos) << family->name() << " " << word;
    }
}

}  // namespace
}  // namespace quern::test

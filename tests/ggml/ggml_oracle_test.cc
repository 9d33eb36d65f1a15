// quern against ggml's own CPU back end, on the same bytes. ggml quantizes f32 activations to 8 bits before it multiplies, so that the two
// differ from each other about as much as each does from double precision. One line of a table per weight type and case:
//   ggml       normalized mean squared error of ggml against quern's double-precision oracle
//   quern      that of quern's default kernel on the host target; it has to be within the class that the kernel states
//   apart      quern against ggml: at most 5e-4, what ggml's own tests allow a back end
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <memory>
#include <new>

#include "ggml_ops.h"
#include "operands.h"
#include "quern/context.h"
#include "tuner/oracle.h"
#include "tuner/random_weights.h"
#include "tuner/verify.h"

namespace quern::test {
namespace {

constexpr double kGgmlBar = 5e-4;

struct Case {
  const char* name;
  Problem problem;  // the weight type is filled in
  std::int64_t gap = 0;
};

// 72 rows of W are four planar tiles and a short one. ggml broadcasts W over X in mul_mat; in out_prod only where W is f32.
const Case kCases[] = {
    {"mul_mat m=1", {.op = Op::mul_mat, .layout = Layout::gguf, .m = 1, .n = 72, .k = 512}},
    {"mul_mat m=7 gapped", {.op = Op::mul_mat, .m = 7, .n = 72, .k = 512}, 24},
    {"mul_mat m=40", {.op = Op::mul_mat, .m = 40, .n = 72, .k = 512}},
    {"mul_mat 4x2 over 2x1", {.op = Op::mul_mat, .m = 3, .n = 72, .k = 512, .batch2 = 4, .batch3 = 2, .ratio2 = 2, .ratio3 = 2}, 8},
    {"out_prod m=5", {.op = Op::out_prod, .m = 5, .n = 72, .k = 512}},
    {"out_prod 2x3 gapped", {.op = Op::out_prod, .layout = Layout::gguf, .m = 3, .n = 72, .k = 512, .batch2 = 2, .batch3 = 3}, 24},
    {"out_prod transposed", {.op = Op::out_prod, .m = 5, .n = 72, .k = 512, .x_transposed = true}, 3},
    {"out_prod 4x2 over 2x1", {.op = Op::out_prod, .m = 3, .n = 72, .k = 512, .batch2 = 4, .batch3 = 2, .ratio2 = 2, .ratio3 = 2}, 8},
    {"mul_mat_id", {.op = Op::mul_mat_id, .m = 9, .n = 72, .k = 512, .experts = 6, .used = 2}, 8},
    {"mul_mat_id broadcast",
     {.op = Op::mul_mat_id, .layout = Layout::gguf, .m = 9, .n = 72, .k = 512, .experts = 6, .used = 3, .x_broadcast = true}},
};

// sum((y - r)^2) / sum(r^2), and infinite where y is not finite.
template <class Y, class R>
double nmse(const std::vector<Y>& y, const std::vector<R>& r) {
  double error = 0, energy = 0;
  for (std::size_t i = 0; i < r.size(); ++i) {
    const double off = static_cast<double>(y[i]) - static_cast<double>(r[i]);
    error += off * off, energy += static_cast<double>(r[i]) * static_cast<double>(r[i]);
  }
  return std::isfinite(error) ? error / energy : INFINITY;
}

struct Workspace {
  explicit Workspace(std::size_t size) : bytes(size), data(::operator new (size + 1, std::align_val_t{256})) {}
  ~Workspace() { ::operator delete (data, std::align_val_t{256}); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  std::size_t bytes;
  void* data;
};

struct Product {
  std::vector<float> y;
  Accuracy accuracy = Accuracy::exact;
  std::string family;
};

// NaN: ggml does not have the op for these operands.
struct Errors {
  double ggml = 0, quern = 0, apart = 0;
};

class AgainstGgml : public ::testing::TestWithParam<WeightType> {
 protected:
  static void SetUpTestSuite() {
    ContextOptions options = from_environment();
    options.device = "host";
    auto context = Context::open(options);
    if (context)
      context_ = std::make_unique<Context>(*context);
    else
      why_not_ = context.error().message;
    std::string missing;
    for (const auto& entry : kWeightTypes)
      if (!ggml_knows(entry.type)) missing.append(" ").append(entry.name);
    std::printf("ggml %s; types that it lacks:%s\n", ggml_version_text().c_str(), missing.empty() ? " none" : missing.c_str());
    std::printf("%-8s %-22s %-10s %-7s %9s %9s %9s\n", "type", "case", "family", "class", "ggml", "quern", "apart");
  }
  static void TearDownTestSuite() { context_.reset(); }

  void SetUp() override {
    if (!context_) GTEST_SKIP() << why_not_;
    if (!ggml_knows(GetParam())) GTEST_SKIP() << "ggml " << ggml_version_text() << " does not have " << to_string(GetParam());
  }

  // All matrices of W in the problem's layout.
  static Result<std::vector<std::byte>> prepared(const Operands& o) {
    const Problem& p = o.problem;
    if (p.layout == Layout::gguf) return o.w;
    QUERN_ASSIGN(const auto repack, context_->plan_prepare_weights(p.type, p.n, p.k));
    Workspace scratch(repack.workspace_bytes());
    std::vector<std::byte> planar(o.w.size());
    for (std::size_t at = 0; at < o.w.size(); at += static_cast<std::size_t>(o.matrix_bytes()))
      QUERN_TRY(context_->prepare_weights(nullptr, repack, o.w.data() + at, planar.data() + at, scratch.data, scratch.bytes));
    return planar;
  }

  static Result<Product> quern_product(const Operands& o) {
    const Problem& p = o.problem;
    QUERN_ASSIGN(const auto w, prepared(o));
    QUERN_ASSIGN(const auto plan, context_->plan(p));
    Workspace workspace(plan.workspace_bytes());
    const Extent extent = y_extent(p);
    const Batches w_count = w_batches(p), y_count = xy_batches(p);
    Product product{.accuracy = plan.accuracy(), .family = plan.config().family};
    product.y.assign(static_cast<std::size_t>(extent.rows * extent.columns * y_count.count()), NAN);
    const std::int64_t y_matrix = extent.rows * extent.columns;
    QUERN_TRY(plan.launch(nullptr, {.w = {.data = w.data(), .stride2 = o.matrix_bytes(), .stride3 = o.matrix_bytes() * w_count.dim2},
                                    .x = {.data = o.x.data(), .row_stride = o.row_stride, .stride2 = o.stride2, .stride3 = o.stride3},
                                    .y = {.data = product.y.data(), .stride2 = y_matrix, .stride3 = y_matrix * y_count.dim2},
                                    .workspace = workspace.data,
                                    .workspace_bytes = workspace.bytes,
                                    .ids = {.data = o.ids.empty() ? nullptr : o.ids.data()}}));
    return product;
  }

  static void print_row(const Case& c, WeightType type, const Product& quern, const Errors& errors) {
    std::printf("%-8s %-22s %-10s %-7s", std::string(to_string(type)).c_str(), c.name, quern.family.c_str(),
                std::string(to_string(quern.accuracy)).c_str());
    for (const double value : {errors.ggml, errors.quern, errors.apart}) {
      if (std::isnan(value))
        std::printf(" %9s", "-");
      else
        std::printf(" %9.2e", value);
    }
    std::printf("\n");
  }

  static void compare(const Case& c, WeightType type) {
    Problem problem = c.problem;
    problem.type = type;
    const Operands operands = make_operands(problem, c.gap);
    const auto right = reference(operands);
    const auto ggml = ggml_product(operands);
    const auto quern = quern_product(operands);
    ASSERT_TRUE(quern) << quern.error().message << "\n" << quern.error().log;
    ASSERT_EQ(quern->y.size(), right.size());
    ASSERT_TRUE(!ggml || ggml->size() == right.size());
    const Errors errors{
        .ggml = ggml ? nmse(*ggml, right) : NAN, .quern = nmse(quern->y, right), .apart = ggml ? nmse(quern->y, *ggml) : NAN};
    print_row(c, type, *quern, errors);
    EXPECT_LE(errors.quern, accuracy_bars(quern->accuracy).nmse) << "quern's kernel is outside its class, " << to_string(quern->accuracy);
    if (!ggml) return;
    EXPECT_LE(errors.ggml, kGgmlBar) << "ggml is further from double precision than its own tests allow";
    EXPECT_LE(errors.apart, kGgmlBar) << "quern and ggml are further apart than ggml's own tests allow";
  }

  static std::unique_ptr<Context> context_;
  static std::string why_not_;
};
std::unique_ptr<Context> AgainstGgml::context_;
std::string AgainstGgml::why_not_;

TEST_P(AgainstGgml, Products) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    compare(c, GetParam());
  }
}

bool same(float a, float b) { return std::isnan(a) ? std::isnan(b) : std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b); }

void expect_same_values(WeightType type, const std::vector<std::byte>& blocks) {
  const auto ggml = ggml_dequantize(type, blocks);
  std::vector<float> quern(ggml.size());
  dequantize_row(type, blocks.data(), static_cast<std::int64_t>(quern.size()), quern.data());
  std::size_t differing = 0, first = 0;
  for (std::size_t i = 0; i < quern.size(); ++i)
    if (!same(quern[i], ggml[i]) && differing++ == 0) first = i;
  EXPECT_EQ(differing, 0u) << "of " << quern.size() << " weights; the first is " << first << ": quern's oracle has " << quern[first]
                           << ", ggml " << ggml[first];
}

TEST_P(AgainstGgml, TheOracleDecodesToTheSameBits) { expect_same_values(GetParam(), random_weights(GetParam(), 64, 1280, 3)); }

// Every bit is random, so that scales are also infinite, NaN, denormal and negative zero.
TEST_P(AgainstGgml, TheOracleDecodesBytesOfNoQuantizerToTheSameBits) {
  std::vector<std::byte> blocks(static_cast<std::size_t>(4096 * info(GetParam()).block_bytes));
  Random random(5);
  for (auto& b : blocks) b = static_cast<std::byte>(random.below(256));
  expect_same_values(GetParam(), blocks);
}

std::vector<WeightType> all_types() {
  std::vector<WeightType> types;
  for (const auto& entry : kWeightTypes) types.push_back(entry.type);
  return types;
}

INSTANTIATE_TEST_SUITE_P(Types, AgainstGgml, ::testing::ValuesIn(all_types()),
                         [](const auto& test) { return std::string(to_string(test.param)); });

}  // namespace
}  // namespace quern::test

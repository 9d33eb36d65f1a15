// Faults that people met in kernels of this kind, each as the smallest input that would show the same kind of fault here. On the host
// target: the templates are those that a GPU runs.
#include <gtest/gtest.h>

#include "quern/context.h"
#include "tests/templates/host_products.h"

namespace quern::test {
namespace {

class FieldCase : public HostTarget {
 protected:
  // Runs every kernel of the problems on activations that `fill` makes.
  void expect_right(const std::vector<Problem>& problems, const std::function<void(const Problem&, std::vector<float>&)>& fill) {
    for_each_kernel(problems, false, [&](const Problem& p, const Config& c) -> std::string {
      const auto rows = random_weights(p.type, p.n, p.k, 47), image = in_layout(p, rows);
      std::vector<float> values(static_cast<std::size_t>(p.m * p.k));
      fill(p, values);
      std::vector<std::byte> x(values.size() * static_cast<std::size_t>(size_of(p.x_type)));
      for (std::size_t i = 0; i < values.size(); ++i) store_element(p.x_type, x.data(), static_cast<std::int64_t>(i), values[i]);
      auto kernel = load(p, c);
      if (!kernel) return kernel.error().message;
      std::vector<float> y(static_cast<std::size_t>(p.m * p.n), -2.6e36f);
      const Status status = (*kernel)->run(dense_args(p, image.data(), x.data(), y.data(), (*kernel)->workspace()));
      if (!status) return status.error().message;
      return compare(p, rows, x, y.data(), (*kernel)->source().accuracy);
    });
  }
};

Problem product(WeightType type, Layout layout, std::int64_t m, std::int64_t n, std::int64_t k, Accuracy accuracy = Accuracy::normal) {
  return {.op = Op::mul_mat, .type = type, .layout = layout, .m = m, .n = n, .k = k, .accuracy = accuracy};
}

constexpr Layout kLayouts[] = {Layout::gguf, Layout::planar};

TEST_F(FieldCase, KNeedNotBeAMultipleOf128) {
  std::vector<Problem> problems;
  for (std::int64_t k : {64, 192, 320})
    problems.push_back(product(WeightType::q8_0, k == 192 ? Layout::gguf : Layout::planar, 128, 256, k));
  for_each_kernel(problems, false, [&](const Problem& p, const Config& c) { return verify_random(p, c); });
}

TEST_F(FieldCase, KNeedNotBeAMultipleOf256) {
  std::vector<Problem> problems;
  int turn = 0;
  for (WeightType type : {WeightType::q4_0, WeightType::q5_0})
    for (std::int64_t k : {96, 224, 288, 480}) problems.push_back(product(type, kLayouts[++turn % 2], 23, 50, k));
  // The families for fewer and for more rows of X.
  problems.push_back(product(WeightType::q4_0, Layout::planar, 3, 50, 96));
  problems.push_back(product(WeightType::q4_0, Layout::gguf, 40, 50, 224));
  problems.push_back(product(WeightType::q5_0, Layout::gguf, 3, 50, 288));
  problems.push_back(product(WeightType::q5_0, Layout::planar, 40, 50, 480));
  for_each_kernel(problems, false, [&](const Problem& p, const Config& c) { return verify_random(p, c); });
}

// Poison that no kernel writes stands where a floor for a ceiling would leave the last rows out.
TEST_F(FieldCase, EveryOutputIsWrittenForAnyNumberOfRows) {
  const auto check = [&](const Problem& p, const Config& c) { return verify_random(p, c); };
  for_each_kernel({product(WeightType::q4_0, Layout::planar, 2, 96, 1024)}, true, check);
  for_each_kernel({product(WeightType::q4_0, Layout::gguf, 2, 32, 1024), product(WeightType::q4_0, Layout::planar, 65, 32, 1024),
                   product(WeightType::q4_0, Layout::gguf, 65, 96, 1024)},
                  false, check);
}

// What lies around W decides nothing: the results are the same bits.
TEST_F(FieldCase, BytesAroundTheWeightsAreNotRead) {
  const std::vector<Problem> problems{
      product(WeightType::q6_k, Layout::gguf, 1, 3, 3328), product(WeightType::q6_k, Layout::gguf, 40, 3, 3328),
      product(WeightType::q6_k, Layout::planar, 1, 3, 3328), product(WeightType::q4_0, Layout::gguf, 1, 3, 3328),
      product(WeightType::q4_0, Layout::planar, 40, 3, 3328)};
  for_each_kernel(problems, false, [&](const Problem& p, const Config& c) -> std::string {
    const auto rows = random_weights(p.type, p.n, p.k, 7), x = random_activations(p.x_type, p.m, p.k, 8), image = in_layout(p, rows);
    auto kernel = load(p, c);
    if (!kernel) return kernel.error().message;
    constexpr std::size_t kAround = 4096;
    std::vector<std::vector<float>> y;
    for (int filler : {0x00, 0xFF}) {
      SparseBytes memory(kAround + image.size() + kAround);
      std::memset(memory.data(), filler, kAround + image.size() + kAround);
      std::memcpy(memory.data() + kAround, image.data(), image.size());
      y.emplace_back(p.m * p.n);
      const Status status = (*kernel)->run(dense_args(p, memory.data() + kAround, x.data(), y.back().data(), (*kernel)->workspace()));
      if (!status) return status.error().message;
    }
    if (std::memcmp(y[0].data(), y[1].data(), y[0].size() * 4) != 0) return "the result depends on the bytes around W";
    return compare(p, rows, x, y[0].data(), (*kernel)->source().accuracy);
  });
}

// Every buffer ends at a page that faults: a tile of activations or weights read past its last row ends the test.
TEST_F(FieldCase, NothingIsReadPastTheLastRow) {
  const auto check = [&](const Problem& p, const Config& c) -> std::string {
    const auto rows = random_weights(p.type, p.n, p.k, 17), values = random_activations(p.x_type, p.m, p.k, 18);
    auto kernel = load(p, c);
    if (!kernel) return kernel.error().message;
    const ExactBytes w(in_layout(p, rows), p.layout == Layout::planar ? 16 : 2), x(values, 4), y(std::size_t(p.m * p.n * 4), 4);
    const ExactBytes workspace((*kernel)->source().workspace_bytes, 256);
    const Status status = (*kernel)->run(dense_args(p, w.data(), x.data(), y.data(), workspace.data()));
    if (!status) return status.error().message;
    return compare(p, rows, values, reinterpret_cast<const float*>(y.data()), (*kernel)->source().accuracy);
  };
  for_each_kernel({product(WeightType::q4_0, Layout::gguf, 5, 21, 768), product(WeightType::q4_0, Layout::planar, 37, 21, 256)}, true,
                  check);
  for_each_kernel({product(WeightType::q6_k, Layout::gguf, 5, 21, 768), product(WeightType::q6_k, Layout::planar, 37, 21, 256),
                   product(WeightType::f16, Layout::gguf, 5, 21, 384), product(WeightType::q5_0, Layout::planar, 5, 21, 96)},
                  false, check);
}

// Q4_0 [256,32] as every other row of [512,32].
TEST_F(FieldCase, AViewOfRowsThatAreApartIsHonoured) {
  DataOptions apart;
  apart.w_gap = row_bytes(WeightType::q4_0, 32);
  for_each_kernel({product(WeightType::q4_0, Layout::gguf, 2, 256, 32), product(WeightType::q4_0, Layout::gguf, 40, 256, 32)}, false,
                  [&](const Problem& p, const Config& c) { return verify_random(p, c, apart); });
}

TEST_F(FieldCase, MoreThan65535RowsAndBatches) {
  for_each_kernel({product(WeightType::q4_0, Layout::planar, 1, 125696, 32), product(WeightType::q8_0, Layout::gguf, 1, 250880, 32)}, false,
                  [&](const Problem& p, const Config& c) { return verify_random(p, c); });
  Problem batch = product(WeightType::q4_0, Layout::gguf, 1, 3, 32, Accuracy::f32);
  batch.batch2 = 65536, batch.ratio2 = 4;
  for_each_kernel({batch}, false, [&](const Problem& p, const Config& c) { return verify_random(p, c); });
}

// Blocks from `first` on, as if the launch had started there.
KernelSource shifted(KernelSource source, std::int64_t first) {
  const std::string_view from = "return quern_host_lane()->block_x;";
  for (SourceHeader& header : source.headers) {
    const std::size_t at = header.text.find(from);
    if (header.name == "ptx/host.cuh" && at != std::string::npos)
      header.text.replace(at, from.size(), "return quern_host_lane()->block_x + " + std::to_string(first) + "ll;");
  }
  return source;
}

// 2^21 + 3 rows of 2304 bytes: byte offsets pass 2^32 and element offsets 2^33. Only the last 19 rows hold weights, and only the blocks
// that meet them run.
TEST_F(FieldCase, TheLastRowsOfAMatrixBeyond4GiB) {
  constexpr std::int64_t kRows = (std::int64_t{1} << 21) + 3, kReal = 19, kK = 4096;
  for (Layout layout : kLayouts)
    for (std::int64_t m : {1, 40}) {
      const Problem p = product(WeightType::q4_0, layout, m, kRows, kK, Accuracy::loose);
      Problem last = p;
      last.n = kReal;
      const auto rows = random_weights(p.type, kReal, kK, 27), x = random_activations(p.x_type, m, kK, 28), image = in_layout(last, rows);
      const std::int64_t row = row_bytes(p.type, kK);
      const SparseBytes w(static_cast<std::size_t>(kRows * row)), y(static_cast<std::size_t>(m * kRows * 4));
      ASSERT_TRUE(w.ok() && y.ok());
      std::memcpy(w.data() + (kRows - kReal) * row, image.data(), image.size());
      for (const Family* family : families_for(p, Target{})) {
        // Outputs of the generic family are numbered row by row of Y: its last blocks hold the last rows of the last token only.
        if (family->name() == "generic" && m != 1) continue;
        SCOPED_TRACE(to_string(p) + " " + std::string(family->name()));
        const auto source = render(p, Target{}, family->space(p, Target{}).default_config());
        ASSERT_TRUE(source) << source.error().message;
        const std::size_t main = source->steps.size() - 1;
        const std::uint32_t count = std::min(source->steps[main].grid.x, 24u);
        auto prepare = load(*source), work = load(shifted(*source, std::int64_t{source->steps[main].grid.x} - count));
        ASSERT_TRUE(prepare && work) << (prepare ? work : prepare).error().message;
        const KernelArgs args = dense_args(p, w.data(), x.data(), y.data(), (*prepare)->workspace());
        for (std::size_t s = 0; s <= main; ++s) {
          Launch launch = (s < main ? *prepare : *work)->launches(args)[s];
          if (s == main) launch.step.grid.x = count;
          const Status status = device_->launch(launch.function, launch.step, launch.args, nullptr);
          ASSERT_TRUE(status) << status.error().message;
        }
        std::vector<float> got;
        for (std::int64_t i = 0; i < m; ++i) {
          float* tail = reinterpret_cast<float*>(y.data()) + (i + 1) * kRows - kReal;
          got.insert(got.end(), tail, tail + kReal);
          std::fill(tail, tail + kReal, 0.0f);
        }
        EXPECT_EQ(compare(last, rows, x, got.data(), source->accuracy), "");
      }
    }
}

TEST_F(FieldCase, RowsOfActivationsAndOutputsBeyond4GiB) {
  constexpr std::int64_t kStride = std::int64_t{1} << 30;  // elements: five rows pass 2^32
  for (std::int64_t m : {5, 34}) {
    const Problem p = product(WeightType::q8_0, Layout::planar, m, 17, 64);
    const auto rows = random_weights(p.type, p.n, p.k, 37), values = random_activations(p.x_type, m, p.k, 38), image = in_layout(p, rows);
    const SparseBytes x(static_cast<std::size_t>(m * kStride * 4)), y(static_cast<std::size_t>(m * kStride * 4));
    ASSERT_TRUE(x.ok() && y.ok());
    for (std::int64_t i = 0; i < m; ++i)
      std::memcpy(x.data() + i * kStride * 4, values.data() + i * p.k * 4, static_cast<std::size_t>(p.k * 4));
    for (const Family* family : families_for(p, Target{})) {
      SCOPED_TRACE(to_string(p) + " " + std::string(family->name()));
      auto kernel = load(p, family->space(p, Target{}).default_config());
      ASSERT_TRUE(kernel) << kernel.error().message;
      KernelArgs args = dense_args(p, image.data(), x.data(), y.data(), (*kernel)->workspace());
      args.ldx = args.ldy = kStride;
      const Status status = (*kernel)->run(args);
      ASSERT_TRUE(status) << status.error().message;
      std::vector<float> got;
      for (std::int64_t i = 0; i < m; ++i) {
        float* line = reinterpret_cast<float*>(y.data() + i * kStride * 4);
        got.insert(got.end(), line, line + p.n);
        std::fill(line, line + p.n, 0.0f);
      }
      EXPECT_EQ(compare(p, rows, values, got.data(), (*kernel)->source().accuracy), "");
    }
  }
}

// The sum of a block's activations, 96000, is beyond f16.
TEST_F(FieldCase, ABlockSumBeyondF16IsFiniteAndRight) {
  std::vector<Problem> problems;
  for (std::int64_t m : {1, 8, 40})
    for (Accuracy accuracy : {Accuracy::normal, Accuracy::tight})
      problems.push_back(product(WeightType::q4_k, kLayouts[m % 2], m, 24, 512, accuracy));
  expect_right(problems, [](const Problem& p, std::vector<float>& x) {
    // 32 of them in one row, all of them in the next.
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = i / static_cast<std::size_t>(p.k) % 2 == 0 ? (i % static_cast<std::size_t>(p.k) < 32 ? 3000.0f : 0.0f) : 3000.0f;
  });
}

// 7e4 is no f16; kernels whose operands are f16 scale each row.
TEST_F(FieldCase, AnActivationBeyondF16IsFiniteAndRight) {
  std::vector<Problem> problems;
  for (std::int64_t m : {1, 63, 64})
    for (Accuracy accuracy : {Accuracy::normal, Accuracy::tight}) {
      problems.push_back(product(WeightType::q8_0, kLayouts[m % 2], m, 20, 256, accuracy));
      if (m == 63) problems.back().x_type = DType::bf16;
    }
  expect_right(problems, [](const Problem& p, std::vector<float>& x) {
    Random random(5);
    for (float& v : x) v = random.uniform(-1, 1);
    for (std::int64_t m = 0; m < p.m; ++m) x[static_cast<std::size_t>(m * p.k + m * 37 % p.k)] = m % 2 == 0 ? 7e4f : -7e4f;
  });
}

// The row's scale is taken from its largest activation, whatever that is.
TEST_F(FieldCase, ActivationsNearTheEndOfF32AreFiniteAndRight) {
  for (float large : {5e37f, 1e-30f})
    expect_right({product(WeightType::q8_0, Layout::planar, 34, 20, 256, Accuracy::tight)}, [large](const Problem&, std::vector<float>& x) {
      Random random(6);
      for (float& v : x) v = random.uniform(-large, large);
    });
}

TEST_F(FieldCase, LengthsThatAFastKernelRefused) {
  std::vector<Problem> problems;
  for (std::int64_t k : {10944, 7392})
    for (std::int64_t m : {2, 33}) problems.push_back(product(WeightType::q8_0, Layout::planar, m, 5, k));
  for_each_kernel(problems, false, [&](const Problem& p, const Config& c) { return verify_random(p, c); });
}

// Field case 18: lengths that are multiples of 32, but not of 128 or 256.
TEST_F(FieldCase, FieldCase18EveryTypeOfBlocksOf32TakesEveryWholeNumberOfThem) {
  std::vector<Problem> problems;
  int turn = 0;
  for (const auto& type : kWeightTypes)
    for (std::int64_t k : {1664, 1824, 960}) {
      if (type.block_elements != 32) continue;
      problems.push_back(product(type.type, kLayouts[++turn % 2], 1, 20, k));
      problems.push_back(product(type.type, kLayouts[turn / 2 % 2], 40, 20, k));
      problems.push_back(product(type.type, kLayouts[turn / 3 % 2], 5, 20, k));
      problems.back().op = Op::out_prod;
    }
  for_each_kernel(problems, false, [&](const Problem& p, const Config& c) { return verify_random(p, c); });
}

// Field case 19: the rows of output heads.
TEST_F(FieldCase, FieldCase19VocabulariesOfAnySize) {
  std::vector<Problem> problems;
  for (std::int64_t m = 1; m <= 8; ++m) problems.push_back(product(WeightType::q8_0, kLayouts[m % 2], m, 777, 64));
  problems.push_back(product(WeightType::q8_0, Layout::planar, 4, 32769, 64));
  problems.push_back(product(WeightType::q8_0, Layout::gguf, 1, 51865, 64));
  problems.push_back(product(WeightType::q8_0, Layout::planar, 2, 151644, 64));
  problems.push_back(product(WeightType::q8_0, Layout::gguf, 8, 151644, 64));
  for_each_kernel(problems, false, [&](const Problem& p, const Config& c) { return verify_random(p, c); });
}

// Field case 20: blocks whose bytes are no multiple of a word. A row of three blocks starts at the least alignment that its type may have,
// and the target refuses a load that is not naturally aligned.
TEST_F(FieldCase, FieldCase20EveryDecoderLoadsLegallyFromOddBlocks) {
  for (const auto& type : kWeightTypes) {
    const std::int64_t n = 3, k = 3 * (type.block_elements == 1 ? 43 : type.block_elements);
    Problem p = product(type.type, Layout::gguf, 1, n, k, Accuracy::exact);
    p.op = Op::dequantize;
    const auto rows = random_weights(p.type, n, k, 57);
    auto kernel = load(p, families_for(p, Target{}).back()->space(p, Target{}).default_config());
    ASSERT_TRUE(kernel) << kernel.error().message;
    const int alignment = std::min(type.block_bytes & -type.block_bytes, 16);
    std::vector<float> y(static_cast<std::size_t>(n * k), -2.6e36f), right(static_cast<std::size_t>(k));
    const auto run = [&](int offset) {
      const ExactBytes room(rows.size() / 16 * 16 + 32);
      std::byte* w = room.data() + offset;
      std::memcpy(w, rows.data(), rows.size());
      return (*kernel)->run(dense_args(p, w, nullptr, y.data(), (*kernel)->workspace()));
    };
    const Status status = run(alignment);
    ASSERT_TRUE(status) << type.name << ": " << status.error().message;
    for (std::int64_t row = 0; row < n; ++row) {
      dequantize_row(p.type, rows.data() + row * row_bytes(p.type, k), k, right.data());
      EXPECT_EQ(std::memcmp(right.data(), y.data() + row * k, right.size() * 4), 0) << type.name << " row " << row;
    }
    if (alignment == 1) continue;
    const Status odd = run(alignment + alignment / 2);
    ASSERT_FALSE(odd) << type.name << ": a load at half its alignment was let through";
    EXPECT_NE(odd.error().message.find("misaligned"), std::string::npos) << odd.error().message;
  }
}

class ContextFieldCase : public testing::Test {
 protected:
  void SetUp() override {
    ContextOptions options;
    options.device = "host";
    options.host_plugin = QUERN_HOST_PLUGIN_PATH;
    auto context = Context::open(options);
    ASSERT_TRUE(context) << context.error().message;
    context_ = std::make_unique<Context>(*context);
  }
  std::unique_ptr<Context> context_;
};

// A layout swapped by the caller: activations of length N.
TEST_F(ContextFieldCase, AnActivationOfTheWrongLengthNamesBothDimensions) {
  const auto plan = context_->plan(product(WeightType::q8_0, Layout::gguf, 1, 96, 64));
  ASSERT_TRUE(plan) << plan.error().message;
  const auto w = random_weights(WeightType::q8_0, 96, 64, 1), x = random_activations(DType::f32, 1, 96, 2);
  std::vector<float> y(96, 1.0f);
  const SparseBytes workspace(1 << 16);
  LaunchArgs args{.w = {.data = w.data()},
                  .x = {.data = x.data(), .columns = 96},
                  .y = {.data = y.data()},
                  .workspace = workspace.data(),
                  .workspace_bytes = 1 << 16};
  const Status swapped = plan->launch(nullptr, args);
  ASSERT_FALSE(swapped);
  EXPECT_EQ(swapped.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(swapped.error().message.find("96"), std::string::npos) << swapped.error().message;
  EXPECT_NE(swapped.error().message.find("K = 64"), std::string::npos) << swapped.error().message;
  EXPECT_EQ(y, std::vector<float>(96, 1.0f));
  args.x.columns = 64;
  const Status right = plan->launch(nullptr, args);
  EXPECT_TRUE(right) << right.error().message;
  EXPECT_NE(y, std::vector<float>(96, 1.0f));
}

// Field case 19 again: what no kernel could accept is refused by its numbers.
TEST_F(ContextFieldCase, FieldCase19ALengthThatIsNoWholeNumberOfBlocksNamesBoth) {
  const auto plan = context_->plan(product(WeightType::q8_0, Layout::gguf, 1, 777, 2046));
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(plan.error().message.find("2046"), std::string::npos) << plan.error().message;
  EXPECT_NE(plan.error().message.find("32"), std::string::npos) << plan.error().message;
}

// Field case 13: an absent weight scale is 1.
TEST_F(ContextFieldCase, FieldCase13AWeightScaleIsOptional) {
  Problem p = product(WeightType::nvfp4, Layout::gguf, 3, 96, 128);
  const auto w = random_weights(p.type, p.n, p.k, 1), x = random_activations(DType::f32, p.m, p.k, 2);
  const SparseBytes workspace(1 << 16);
  const auto run = [&](const float* scale) {
    p.scale = scale != nullptr;
    std::vector<float> y(static_cast<std::size_t>(p.m * p.n), -1.0f);
    const auto plan = context_->plan(p);
    EXPECT_TRUE(plan) << plan.error().message;
    const Status status = plan->launch(nullptr, {.w = {.data = w.data(), .scale = scale},
                                                 .x = {.data = x.data()},
                                                 .y = {.data = y.data()},
                                                 .workspace = workspace.data(),
                                                 .workspace_bytes = 1 << 16});
    EXPECT_TRUE(status) << status.error().message;
    return y;
  };
  const float one = 1.0f, half = 0.5f;
  const auto absent = run(nullptr), with_one = run(&one), with_half = run(&half);
  EXPECT_EQ(absent, with_one);
  for (std::size_t i = 0; i < absent.size(); ++i) EXPECT_EQ(with_half[i], 0.5f * absent[i]);
}

TEST_F(ContextFieldCase, ZeroTokensOrRowsLaunchNothingWhateverThePointers) {
  for (auto [m, n] : {std::pair{0, 96}, {3, 0}, {0, 0}}) {
    const auto plan = context_->plan(product(WeightType::q8_0, Layout::planar, m, n, 64));
    ASSERT_TRUE(plan) << plan.error().message;
    const Status status = plan->launch(nullptr, {});
    EXPECT_TRUE(status) << status.error().message;
  }
}

}  // namespace
}  // namespace quern::test

// Every op through libquern.so and through the C++ interface, on the host target: the same bytes.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "quern/context.h"
#include "quern/quern.h"
#include "tests/runtime/take.h"
#include "tuner/random_weights.h"

namespace quern {
namespace {

// Aligned memory of a given size.
class Bytes {
 public:
  explicit Bytes(std::size_t size) : size_(size), storage_(size + 256) {}
  explicit Bytes(const std::vector<std::byte>& from) : Bytes(from.size()) { std::memcpy(data(), from.data(), from.size()); }
  std::byte* data() { return reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(storage_.data()) + 255) / 256 * 256); }
  std::size_t size() const { return size_; }
  std::vector<std::byte> copy() { return {data(), data() + size_}; }

 private:
  std::size_t size_;
  std::vector<std::byte> storage_;
};

// Operands of a problem; what it does not have stays unused.
struct Operands {
  explicit Operands(const Problem& p)
      : w(weights(p)), x(inputs(p)), bias(std::vector<std::byte>(4 * 4096, std::byte{0x3F})), ids(4096), scales(8192), rotated(2048) {
    for (std::int32_t i = 0; i < 1024; ++i) reinterpret_cast<std::int32_t*>(ids.data())[i] = i % 3;
    for (int i = 0; i < 2048; ++i) x_scales()[i] = 0.001f * static_cast<float>(i % 29 + 1);
    for (int i = 0; i < 256; ++i) permutation()[i] = (i * 5 + 3) % static_cast<int>(p.k);
    for (int i = 0; i < 256; ++i) signs()[i] = i % 3 == 0 ? std::int8_t{-1} : std::int8_t{1};
    for (int i = 0; i < 15; ++i) boundaries()[i] = 0.03f * static_cast<float>(i - 7);
    for (int i = 0; i < 16; ++i) codebook()[i] = static_cast<std::int8_t>(i * 17 - 128);
  }
  static std::vector<std::byte> weights(const Problem& p) { return random_weights(p.type, p.n * w_batches(p).count(), p.k, 11); }
  static std::vector<std::byte> inputs(const Problem& p) {
    const Extent shape = has_rows(p.op) ? x_extent(p) : Extent{1, 1};
    return random_activations(p.x_type, shape.rows * xy_batches(p).count(), shape.columns, 12);
  }
  static std::size_t output_bytes(const Problem& p) {
    if (is_repack(p.op)) return static_cast<std::size_t>(p.n * row_bytes(p.type, p.k));
    const Extent shape = y_extent(p);
    return static_cast<std::size_t>(shape.rows * shape.columns * xy_batches(p).count() * y_element_bytes(p));
  }
  // Behind the output.
  static std::size_t output_scales(const Problem& p) { return has_code_output(p.op) ? static_cast<std::size_t>(p.m) * sizeof(float) : 0; }
  float* x_scales() { return reinterpret_cast<float*>(scales.data()); }
  float* w_scales() { return x_scales() + 1024; }
  std::int32_t* permutation() { return reinterpret_cast<std::int32_t*>(rotated.data()); }
  std::int8_t* signs() { return reinterpret_cast<std::int8_t*>(rotated.data() + 1024); }
  float* boundaries() { return reinterpret_cast<float*>(rotated.data() + 1280); }
  std::int8_t* codebook() { return reinterpret_cast<std::int8_t*>(rotated.data() + 1340); }
  Bytes w, x, bias, ids, scales, rotated;
};

std::vector<std::byte> by_cpp(const Problem& p, Operands& operands) {
  ContextOptions options = from_environment();
  options.device = "host";
  const Context context = test::take(Context::open(options));
  const Plan plan = test::take(context.plan(p));
  Bytes y(Operands::output_bytes(p) + Operands::output_scales(p)), workspace(plan.workspace_bytes());
  LaunchArgs args{
      .w = {.data = operands.w.data()}, .y = {.data = y.data()}, .workspace = workspace.data(), .workspace_bytes = workspace.size()};
  if (has_rows(p.op)) args.x.data = operands.x.data();
  if (has_code_input(p.op)) args.x.row_scales = operands.x_scales(), args.w.row_scales = operands.w_scales();
  if (has_code_output(p.op)) args.y.row_scales = reinterpret_cast<float*>(y.data() + Operands::output_bytes(p));
  if (p.bias) args.bias = operands.bias.data();
  if (p.op == Op::rpbh_quantize)
    args.rotation = {
        .permutation = operands.permutation(), .signs = operands.signs(), .boundaries = operands.boundaries(), .epsilon = 1e-6f};
  if (p.op == Op::rpbh_quantize && p.type == WeightType::i8) args.rotation.codebook = operands.codebook();
  if (p.op == Op::mul_mat_id) args.ids.data = reinterpret_cast<const std::int32_t*>(operands.ids.data());
  const Status launched = plan.launch(nullptr, args);
  EXPECT_TRUE(launched) << launched.error().message;
  return y.copy();
}

// A context on the host, and plans of it.
class CInterface : public testing::Test {
 protected:
  void SetUp() override {
    quern_context_options options = quern_context_options_init();
    options.from_environment = 1;
    options.device = "host";
    options.record_launches = 1;
    ASSERT_EQ(quern_context_open(&options, &context_), QUERN_OK) << quern_last_error();
  }
  void TearDown() override {
    quern_plan_destroy(plan_);
    quern_context_close(context_);
  }
  quern_plan_info plan(const quern_problem& problem, const quern_plan_options* options = nullptr) {
    quern_plan_destroy(plan_);
    EXPECT_EQ(quern_supports(context_, &problem), QUERN_OK) << quern_last_error();
    EXPECT_EQ(quern_plan_create(context_, &problem, options, &plan_), QUERN_OK) << quern_last_error();
    return info();
  }
  quern_plan_info info() {
    quern_plan_info info = quern_plan_info_init();
    EXPECT_EQ(quern_plan_get_info(plan_, &info), QUERN_OK) << quern_last_error();
    return info;
  }
  static quern_problem parse(const std::string& text) {
    quern_problem problem = quern_problem_init();
    EXPECT_EQ(quern_problem_parse(text.c_str(), &problem), QUERN_OK) << quern_last_error();
    return problem;
  }
  std::vector<std::byte> by_c(const Problem& p, Operands& operands) {
    const quern_plan_info planned = plan(parse(to_string(p)));
    EXPECT_EQ(planned.problem, to_string(p));
    Bytes y(Operands::output_bytes(p) + Operands::output_scales(p)), workspace(planned.workspace_bytes);
    quern_launch_args args = quern_launch_args_init();
    args.w.data = operands.w.data(), args.y.data = y.data();
    args.workspace = workspace.data(), args.workspace_bytes = workspace.size();
    if (has_rows(p.op)) args.x.data = operands.x.data();
    if (has_code_input(p.op)) args.x_row_scales = operands.x_scales(), args.w_row_scales = operands.w_scales();
    if (has_code_output(p.op)) args.y_row_scales = reinterpret_cast<float*>(y.data() + Operands::output_bytes(p));
    if (p.bias) args.bias = operands.bias.data();
    if (p.op == Op::rpbh_quantize) {
      args.rotation.permutation = operands.permutation(), args.rotation.signs = operands.signs();
      args.rotation.boundaries = operands.boundaries(), args.rotation.epsilon = 1e-6f;
      if (p.type == WeightType::i8) args.rotation.codebook = operands.codebook();
    }
    if (p.op == Op::mul_mat_id) args.ids.data = reinterpret_cast<const std::int32_t*>(operands.ids.data());
    EXPECT_EQ(quern_plan_check(plan_, &args), QUERN_OK) << quern_last_error();
    EXPECT_EQ(quern_plan_launch(plan_, nullptr, &args), QUERN_OK) << quern_last_error();
    return y.copy();
  }

  quern_context* context_ = nullptr;
  quern_plan* plan_ = nullptr;
};

class EveryOp : public CInterface, public testing::WithParamInterface<const char*> {};

TEST_P(EveryOp, GivesTheBytesThatCppGives) {
  const Problem p = test::take(parse_problem(GetParam()));
  Operands operands(p);
  const auto want = by_cpp(p, operands), got = by_c(p, operands);
  EXPECT_TRUE(got == want);
  EXPECT_FALSE(got == std::vector<std::byte>(got.size())) << "all zeros say nothing";
}

INSTANTIATE_TEST_SUITE_P(C, EveryOp,
                         testing::Values("mul_mat q4_0 m=1 n=48 k=96", "mul_mat q4_0 gguf m=3 n=48 k=96 bias=1 y=f16 batch=4,1 ratio=2,1",
                                         "out_prod q4_k m=5 n=33 k=256 x=bf16",
                                         "mul_mat_id q8_0 m=4 n=32 k=64 experts=3 used=2 broadcast=1",
                                         "mul_mat_id q8_0 m=4 n=32 k=64 experts=3 used=2 bias=1", "dequantize q6_k n=5 k=512 class=exact",
                                         "to_planar q4_0 gguf n=20 k=96 class=exact", "to_gguf q4_0 planar n=20 k=96 class=exact",
                                         "quantize_rows_int8 i8 m=3 n=0 k=64 x=bf16", "matmul_int8_rows i8 m=3 n=40 k=64 y=bf16 bias=1",
                                         "rpbh_quantize code4 m=3 n=0 k=128 x=bf16 block=64", "rpbh_quantize i8 m=3 n=0 k=128 block=128"));

// How many kernels a fresh context with these options compiles for one problem.
std::uint64_t compiles(const quern_context_options& options) {
  quern_context* context = nullptr;
  EXPECT_EQ(quern_context_open(&options, &context), QUERN_OK) << quern_last_error();
  quern_problem problem = quern_problem_init();
  problem.type = QUERN_TYPE_Q5_0, problem.n = 16, problem.k = 32;
  quern_plan* plan = nullptr;
  EXPECT_EQ(quern_plan_create(context, &problem, nullptr, &plan), QUERN_OK) << quern_last_error();
  quern_context_info info = quern_context_info_init();
  EXPECT_EQ(quern_context_get_info(context, &info), QUERN_OK);
  quern_plan_destroy(plan);
  quern_context_close(context);
  return info.compile_count;
}

TEST(COptions, NameTheStores) {
  const auto root = std::filesystem::path(testing::TempDir()) / ("quern-c-options-" + std::to_string(getpid()));
  const std::string own = root / "own", other = root / "other", absent = root / "absent";
  quern_context_options options = quern_context_options_init();
  options.device = "host";
  options.host_plugin = std::getenv("QUERN_HOST_PLUGIN");
  EXPECT_EQ(compiles(options), 1u) << "no environment, no store";
  options.cache_directory = own.c_str();
  EXPECT_EQ(compiles(options), 1u);
  EXPECT_EQ(compiles(options), 0u);
  options.cache_directory = other.c_str();
  const char* below[] = {absent.c_str(), own.c_str()};
  options.system_cache_directories = below, options.system_cache_directory_count = 2;
  EXPECT_EQ(compiles(options), 0u);
  std::filesystem::remove_all(root);
}

TEST(COptions, WarningsGoToTheCaller) {
  std::vector<std::string> lines;
  quern_context_options options = quern_context_options_init();
  options.device = "host";
  options.host_plugin = std::getenv("QUERN_HOST_PLUGIN");
  options.cache_directory = "/dev/null/store";
  options.warn = [](const char* line, void* user) { static_cast<std::vector<std::string>*>(user)->push_back(line); };
  options.warn_user = &lines;
  EXPECT_EQ(compiles(options), 1u);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("/dev/null/store"), std::string::npos) << lines[0];
}

// A problem whose fields all differ from their defaults and from each other, as text and as a struct.
TEST_F(CInterface, EveryFieldOfAProblemArrives) {
  quern_problem p = quern_problem_init();
  p.op = QUERN_OP_MUL_MAT, p.type = QUERN_TYPE_Q8_0, p.layout = QUERN_LAYOUT_GGUF;
  p.m = 0, p.n = 3, p.k = 64, p.x_type = QUERN_DTYPE_F16, p.y_type = QUERN_DTYPE_BF16, p.accuracy = QUERN_ACCURACY_LOOSE;
  p.bias = 1, p.x_transposed = 1, p.scale = 1;
  p.batch2 = 6, p.batch3 = 20, p.ratio2 = 2, p.ratio3 = 5;
  EXPECT_STREQ(plan(p).problem, "mul_mat q8_0 gguf m=0 n=3 k=64 x=f16 y=bf16 bias=1 class=loose batch=6,20 ratio=2,5 transposed=1 scale=1");
  const quern_problem parsed = parse(info().problem);
  EXPECT_EQ(std::memcmp(&parsed, &p, offsetof(quern_problem, experts)), 0);

  quern_problem q = quern_problem_init();
  q.op = QUERN_OP_MUL_MAT_ID, q.type = QUERN_TYPE_Q4_0, q.m = 0, q.n = 3, q.k = 64, q.experts = 7, q.used = 2, q.x_broadcast = 1;
  EXPECT_STREQ(plan(q).problem,
               "mul_mat_id q4_0 planar m=0 n=3 k=64 x=f32 y=f32 bias=0 class=normal batch=1,1 ratio=1,1 experts=7 used=2 broadcast=1");
  const quern_problem routed = parse(info().problem);
  EXPECT_EQ(routed.experts, 7);
  EXPECT_EQ(routed.used, 2);
  EXPECT_EQ(routed.x_broadcast, 1u);
}

TEST_F(CInterface, AnInitializedProblemIsWhatTheTextLeavesOut) {
  quern_plan_options lazy = quern_plan_options_init();
  lazy.lazy = 1;
  quern_problem p = quern_problem_init();
  p.type = QUERN_TYPE_Q4_0, p.n = 48, p.k = 96;
  EXPECT_EQ(std::string(plan(p, &lazy).problem), to_string(test::take(parse_problem("mul_mat q4_0 n=48 k=96"))));
}

TEST_F(CInterface, ALazyPlanCompilesWhenPrepared) {
  quern_plan_options options = quern_plan_options_init();
  options.lazy = 1;
  options.config = "generic:threads=128";
  const quern_plan_info lazy = plan(parse("mul_mat q4_0 n=48 k=96"), &options);
  EXPECT_EQ(lazy.is_ready, 0u);
  EXPECT_STREQ(lazy.artifact, "");
  EXPECT_STREQ(lazy.config, "generic:threads=128");
  EXPECT_EQ(lazy.provenance, static_cast<std::uint32_t>(QUERN_PROVENANCE_REQUESTED));
  EXPECT_STREQ(lazy.reason, "requested by the caller");
  ASSERT_EQ(quern_plan_prepare(plan_), QUERN_OK) << quern_last_error();
  const quern_plan_info ready = info();
  EXPECT_EQ(ready.is_ready, 1u);
  EXPECT_EQ(std::strlen(ready.artifact), 64u);
  EXPECT_LE(ready.accuracy, static_cast<std::uint32_t>(QUERN_ACCURACY_NORMAL));
}

TEST_F(CInterface, LaunchesAreRefusedByArgument) {
  const quern_problem problem = parse("mul_mat q4_0 m=2 n=48 k=96");
  const std::size_t needed = plan(problem).workspace_bytes;
  Bytes w(48 * 3 * 18), x(2 * 96 * 4), y(2 * 48 * 4), workspace(needed + 16);
  quern_launch_args good = quern_launch_args_init();
  good.w.data = w.data(), good.x.data = x.data(), good.y.data = y.data();
  good.workspace = workspace.data(), good.workspace_bytes = needed;
  const auto refused = [&](auto change) -> std::string {
    quern_launch_args args = good;
    change(args);
    EXPECT_EQ(quern_plan_check(plan_, &args), QUERN_INVALID_ARGUMENT);
    EXPECT_EQ(quern_plan_launch(plan_, nullptr, &args), QUERN_INVALID_ARGUMENT);
    return quern_last_error();
  };
  EXPECT_EQ(quern_plan_check(plan_, &good), QUERN_OK) << quern_last_error();
  EXPECT_EQ(refused([](auto& a) { a.w.data = nullptr; }), "mul_mat: W is null, device memory is needed");
  EXPECT_EQ(refused([&](auto& a) { a.w.data = w.data() + 2; }), "mul_mat: W starts 2 bytes past a multiple of 16, it must start at one");
  EXPECT_EQ(refused([](auto& a) { a.x.columns = 48; }), "mul_mat: X has rows of length 48, the plan needs K = 96 (N = 48, K = 96)");
  EXPECT_EQ(refused([](auto& a) { a.x.rows = 3; }), "mul_mat: X has 3 rows, the plan needs M = 2");
  EXPECT_EQ(refused([](auto& a) { a.x.row_stride = 95; }), "mul_mat: X's row_stride is 95 elements, at least 96 are needed");
  EXPECT_EQ(refused([](auto& a) { a.w.rows = 47; }), "mul_mat: W has 47 rows, the plan needs N = 48");
  EXPECT_EQ(refused([](auto& a) { a.y.columns = 96; }), "mul_mat: Y has rows of length 96, the plan needs N = 48 (N = 48, K = 96)");
  EXPECT_EQ(refused([](auto& a) { a.y.row_stride = 47; }), "mul_mat: Y's row_stride is 47 elements, at least 48 are needed");
  EXPECT_NE(refused([&](auto& a) { a.bias = x.data(); }).find("a bias is given"), std::string::npos);
  EXPECT_NE(refused([&](auto& a) { a.w.scale = reinterpret_cast<float*>(x.data()); }).find("a weight scale is given"), std::string::npos);
  EXPECT_NE(refused([&](auto& a) { a.ids.data = reinterpret_cast<std::int32_t*>(x.data()); }).find("ids are given"), std::string::npos);
  EXPECT_EQ(refused([](auto& a) { a.reserved = 1; }), "launch arguments: reserved is 1, needed 0");
  EXPECT_EQ(refused([](auto& a) { a.w.row_bytes = 100; }), "mul_mat: W's row_bytes is 100, planar and repacked weights are dense: 54");
}

// Strides of every view, through to the outputs.
TEST_F(CInterface, StridesArrive) {
  const Problem p = test::take(parse_problem("mul_mat q8_0 gguf m=2 n=16 k=64 batch=2,2"));
  Operands operands(p);
  const auto dense = by_c(p, operands);
  const std::size_t w_matrix = 16 * 68, x_row = 64 * 4, y_row = 16 * 4;
  // Each step a little longer than it must be: rows, then matrices of dim 2, then of dim 3.
  Bytes w(60000), x(60000), y(60000), workspace(info().workspace_bytes);
  quern_launch_args args = quern_launch_args_init();
  args.w = {w.data(), 16, 64, 70, 1200, 2500, nullptr};
  args.x = {x.data(), 2, 64, 65, 140, 300};
  args.y = {y.data(), 2, 16, 17, 40, 90};
  args.workspace = workspace.data(), args.workspace_bytes = workspace.size();
  for (std::size_t b = 0; b < 4; ++b) {
    const std::size_t b2 = b % 2, b3 = b / 2;
    for (std::size_t n = 0; n < 16; ++n)
      std::memcpy(w.data() + b2 * 1200 + b3 * 2500 + n * 70, operands.w.data() + b * w_matrix + n * 68, 68);
    for (std::size_t m = 0; m < 2; ++m)
      std::memcpy(x.data() + (b2 * 140 + b3 * 300 + m * 65) * 4, operands.x.data() + (b * 2 + m) * x_row, x_row);
  }
  ASSERT_EQ(quern_plan_launch(plan_, nullptr, &args), QUERN_OK) << quern_last_error();
  for (std::size_t b = 0; b < 4; ++b)
    for (std::size_t m = 0; m < 2; ++m)
      EXPECT_EQ(std::memcmp(y.data() + (b % 2 * 40 + b / 2 * 90 + m * 17) * 4, dense.data() + (b * 2 + m) * y_row, y_row), 0)
          << b << "," << m;
}

TEST_F(CInterface, TooSmallAWorkspaceIsRefused) {
  const quern_plan_info planned = plan(parse("mul_mat q4_0 gguf m=1 n=64 k=1024 class=normal"));
  ASSERT_GT(planned.workspace_bytes, 0u) << planned.config << " needs no workspace: choose another problem";
  Bytes w(64 * 32 * 18), x(1024 * 4), y(64 * 4), workspace(planned.workspace_bytes + 16);
  quern_launch_args args = quern_launch_args_init();
  args.w.data = w.data(), args.x.data = x.data(), args.y.data = y.data();
  args.workspace = workspace.data(), args.workspace_bytes = planned.workspace_bytes - 1;
  EXPECT_EQ(quern_plan_launch(plan_, nullptr, &args), QUERN_INVALID_ARGUMENT);
  EXPECT_EQ(quern_last_error(), "mul_mat: workspace has " + std::to_string(planned.workspace_bytes - 1) + " bytes, this plan needs " +
                                    std::to_string(planned.workspace_bytes));
  args.workspace_bytes = planned.workspace_bytes, args.workspace = workspace.data() + 16;
  EXPECT_EQ(quern_plan_launch(plan_, nullptr, &args), QUERN_INVALID_ARGUMENT);
  EXPECT_STREQ(quern_last_error(), "mul_mat: workspace starts 16 bytes past a multiple of 256, it must start at one");
}

TEST_F(CInterface, PreparesWeightsInPlaceAndBack) {
  const auto gguf = random_weights(WeightType::q6_k, 20, 512, 3);
  Bytes w(gguf);
  const auto repack = [&](quern_layout from) {
    ASSERT_EQ(quern_plan_create_prepare_weights(context_, QUERN_TYPE_Q6_K, 20, 512, from, &plan_), QUERN_OK) << quern_last_error();
    Bytes workspace(info().workspace_bytes);
    ASSERT_EQ(quern_prepare_weights(context_, nullptr, plan_, w.data(), w.data(), workspace.data(), workspace.size()), QUERN_OK)
        << quern_last_error();
    quern_plan_destroy(plan_), plan_ = nullptr;
  };
  repack(QUERN_LAYOUT_GGUF);
  EXPECT_FALSE(w.copy() == gguf);
  repack(QUERN_LAYOUT_PLANAR);
  EXPECT_TRUE(w.copy() == gguf);
}

TEST_F(CInterface, RecordsWhatWasLaunched) {
  const Problem p = test::take(parse_problem("mul_mat q4_0 m=1 n=48 k=96"));
  Operands operands(p);
  by_c(p, operands);
  quern_launch_records* records = nullptr;
  std::size_t count = 0;
  ASSERT_EQ(quern_launch_records_take(context_, &records, &count), QUERN_OK) << quern_last_error();
  ASSERT_EQ(count, 1u);
  quern_launch_record record = quern_launch_record_init();
  ASSERT_EQ(quern_launch_records_get(records, 0, &record), QUERN_OK);
  const quern_plan_info planned = info();
  EXPECT_EQ(record.launches, 1u);
  EXPECT_STREQ(record.problem, planned.problem);
  EXPECT_STREQ(record.config, planned.config);
  EXPECT_STREQ(record.artifact, planned.artifact);
  EXPECT_EQ(std::string(planned.config).rfind(record.family, 0), 0u);
  ASSERT_STREQ(record.family, "gemv_q8");
  EXPECT_STREQ(record.entries, "quern_prepare quern_gemv");
  quern_launch_record older = quern_launch_record_init();
  older.struct_size = offsetof(quern_launch_record, entries), older.entries = "not this caller's";
  ASSERT_EQ(quern_launch_records_get(records, 0, &older), QUERN_OK);
  EXPECT_EQ(older.launches, 1u);
  EXPECT_STREQ(older.entries, "not this caller's") << "written past what an older caller has";
  EXPECT_EQ(quern_launch_records_get(records, 1, &record), QUERN_INVALID_ARGUMENT);
  EXPECT_STREQ(quern_last_error(), "launch record 1 is asked for, there are 1");
  quern_launch_records_free(records);
}

TEST_F(CInterface, APlanOutlivesItsContext) {
  const Problem p = test::take(parse_problem("mul_mat q4_0 m=1 n=48 k=96"));
  plan(parse(to_string(p)));
  quern_context_close(context_), context_ = nullptr;
  EXPECT_EQ(info().is_ready, 1u);
}

}  // namespace
}  // namespace quern

// Wrong arguments through libquern.so: codes and messages, never a crash. Needs no device: a fake CUDA driver stands in.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "quern/quern.h"
#include "quern/version.h"
#include "tests/runtime/fake_driver.h"

namespace quern {
namespace {

// A context of a GPU that the fake driver plays.
class CErrors : public testing::Test {
 protected:
  void SetUp() override {
    void* library = dlopen(QUERN_FAKE_DRIVER, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    driver_ = reinterpret_cast<test::FakeDriver* (*)()>(dlsym(library, "fake_driver"))();
    *driver_ = {};
    driver_->attributes = {{16, 132}, {75, 9}, {76, 0}};
    options_.device = "cuda:0";
    options_.driver_library = QUERN_FAKE_DRIVER;
    ASSERT_EQ(quern_context_open(&options_, &context_), QUERN_OK) << quern_last_error();
    problem_.type = QUERN_TYPE_Q4_0, problem_.n = 32, problem_.k = 64;
  }
  void TearDown() override { quern_context_close(context_); }

  // The message of a call that must fail with `status`.
  std::string message(quern_status status, quern_status needed = QUERN_INVALID_ARGUMENT) {
    EXPECT_EQ(status, needed) << quern_last_error();
    return quern_last_error();
  }
  quern_status make(const quern_problem& problem) {
    quern_plan* plan = reinterpret_cast<quern_plan*>(this);
    const quern_status status = quern_plan_create(context_, &problem, nullptr, &plan);
    EXPECT_EQ(plan, nullptr) << "a failed call leaves no handle";
    return status;
  }

  test::FakeDriver* driver_ = nullptr;
  quern_context_options options_ = quern_context_options_init();
  quern_context* context_ = nullptr;
  quern_problem problem_ = quern_problem_init();
};

TEST_F(CErrors, SaysWhichVersionItIs) {
  EXPECT_STREQ(quern_version(), kVersion);
  EXPECT_EQ(quern_abi_version(), static_cast<std::uint32_t>(QUERN_ABI_VERSION));
  EXPECT_STREQ(quern_status_name(QUERN_OK), "ok");
  EXPECT_STREQ(quern_status_name(QUERN_INVALID_ARGUMENT), "invalid argument");
  EXPECT_STREQ(quern_status_name(QUERN_CANCELLED), "cancelled");
  EXPECT_STREQ(quern_status_name(QUERN_OUT_OF_MEMORY), "out of memory");
  EXPECT_STREQ(quern_status_name(static_cast<quern_status>(77)), "unknown");
}

TEST_F(CErrors, DescribesTheContext) {
  quern_context_info info = quern_context_info_init();
  ASSERT_EQ(quern_context_get_info(context_, &info), QUERN_OK);
  EXPECT_STREQ(info.device_spec, "cuda:0");
  EXPECT_STREQ(info.target, "sm_90a");
  EXPECT_EQ(std::string(info.device).substr(0, 17), "Fake GPU | sm_90a");
  EXPECT_EQ(info.compile_count, 0u);
  EXPECT_EQ(info.is_lost, 0u);
}

TEST_F(CErrors, ContextsThatDoNotOpenSayWhatIsMissing) {
  quern_context* context = context_;
  options_.driver_library = "/nowhere/libcuda.so.1";
  EXPECT_EQ(message(quern_context_open(&options_, &context), QUERN_ENVIRONMENT),
            "the CUDA driver library not found: looked for /nowhere/libcuda.so.1");
  EXPECT_EQ(context, nullptr);
  options_.device = "gpu";
  EXPECT_EQ(message(quern_context_open(&options_, &context)), "device 'gpu' is not one of: auto, host, cuda:N with N = 0, 1, ...");
}

TEST_F(CErrors, RefusesOptionsThatMakeNoSense) {
  quern_context* context = nullptr;
  const auto refused = [&](auto change) {
    quern_context_options options = options_;
    change(options);
    return message(quern_context_open(&options, &context));
  };
  EXPECT_EQ(refused([](auto& o) { o.struct_size = 8; }), "options's struct_size is 8, needed at least 104: set it with the init function");
  EXPECT_EQ(refused([](auto& o) { o.struct_size = ~0U; }),
            "options's struct_size is 4294967295, needed at most 4096: set it with the init function");
  EXPECT_EQ(refused([](auto& o) { o.device = "cuda\n:0"; }).find('\n'), std::string::npos);
  EXPECT_EQ(refused([](auto& o) { o.record_launches = 2; }), "options: record_launches is 2, needed 0 or 1");
  EXPECT_EQ(refused([](auto& o) { o.launch_apart = 2; }), "options: launch_apart is 2, needed 0 or 1");
  EXPECT_EQ(refused([](auto& o) { o.cache_max_bytes = -1; }), "options: cache_max_bytes is -1, needed at least 0 (the default)");
  EXPECT_EQ(refused([](auto& o) { o.compile_wait_ms = -5; }), "options: compile_wait_ms is -5, needed at least 0 (the default)");
  EXPECT_EQ(refused([](auto& o) { o.system_cache_directory_count = 1; }), "options: system_cache_directories is null");
}

TEST_F(CErrors, NullHandlesAndOutputsAreErrors) {
  quern_plan* plan = nullptr;
  quern_plan_info info = quern_plan_info_init();
  quern_launch_args args = quern_launch_args_init();
  quern_launch_records* records = nullptr;
  quern_launch_record record = quern_launch_record_init();
  std::size_t count = 0;
  int lost = 0;
  EXPECT_EQ(message(quern_context_open(&options_, nullptr)), "the output context is null");
  EXPECT_EQ(message(quern_context_get_info(nullptr, nullptr)), "context is null");
  EXPECT_EQ(message(quern_context_get_info(context_, nullptr)), "context info is null");
  EXPECT_EQ(message(quern_context_is_lost(nullptr, &lost)), "context is null");
  EXPECT_EQ(message(quern_context_is_lost(context_, nullptr)), "the output is_lost is null");
  EXPECT_EQ(message(quern_context_synchronize(nullptr, nullptr)), "context is null");
  EXPECT_EQ(message(quern_problem_parse(nullptr, &problem_)), "the problem's text is null");
  EXPECT_EQ(message(quern_problem_parse("mul_mat q4_0 n=1 k=32", nullptr)), "problem is null");
  EXPECT_EQ(message(quern_supports(nullptr, &problem_)), "context is null");
  EXPECT_EQ(message(quern_supports(context_, nullptr)), "problem is null");
  EXPECT_EQ(message(quern_weight_bytes(QUERN_TYPE_Q4_0, 1, 32, nullptr)), "the output bytes is null");
  EXPECT_EQ(message(quern_plan_create(nullptr, &problem_, nullptr, &plan)), "context is null");
  EXPECT_EQ(message(quern_plan_create(context_, nullptr, nullptr, &plan)), "problem is null");
  EXPECT_EQ(message(quern_plan_create(context_, &problem_, nullptr, nullptr)), "the output plan is null");
  EXPECT_EQ(message(quern_plan_create_prepare_weights(nullptr, 2, 32, 64, 0, &plan)), "context is null");
  EXPECT_EQ(message(quern_plan_get_info(nullptr, &info)), "plan is null");
  EXPECT_EQ(message(quern_plan_prepare(nullptr)), "plan is null");
  EXPECT_EQ(message(quern_plan_check(nullptr, &args)), "plan is null");
  EXPECT_EQ(message(quern_plan_launch(nullptr, nullptr, &args)), "plan is null");
  EXPECT_EQ(message(quern_prepare_weights(context_, nullptr, nullptr, nullptr, nullptr, nullptr, 0)), "plan is null");
  EXPECT_EQ(message(quern_launch_records_take(nullptr, &records, &count)), "context is null");
  EXPECT_EQ(message(quern_launch_records_take(context_, &records, nullptr)), "the output count is null");
  EXPECT_EQ(message(quern_launch_records_get(nullptr, 0, &record)), "launch records is null");
  quern_context_close(nullptr), quern_plan_destroy(nullptr), quern_launch_records_free(nullptr);
}

TEST_F(CErrors, AHandleOfAnotherKindIsAnError) {
  EXPECT_EQ(message(quern_plan_prepare(reinterpret_cast<quern_plan*>(context_))), "this is no plan, but something else or already closed");
  quern_plan_destroy(reinterpret_cast<quern_plan*>(context_));  // must not touch it
  int lost = 1;
  EXPECT_EQ(quern_context_is_lost(context_, &lost), QUERN_OK);
}

TEST_F(CErrors, ProblemsAreRefusedByField) {
  const auto refused = [&](auto change) {
    quern_problem problem = problem_;
    change(problem);
    return message(make(problem));
  };
  EXPECT_EQ(refused([](auto& p) { p.struct_size = 0; }), "problem's struct_size is 0, needed at least 120: set it with the init function");
  EXPECT_EQ(refused([](auto& p) { p.op = 10; }), "problem: op is 10, needed 0 to 9");
  EXPECT_EQ(refused([](auto& p) { p.type = 4; }), "weight type is 4, needed the id of a GGUF type such as 2 (q4_0) or 8 (q8_0)");
  EXPECT_EQ(refused([](auto& p) { p.layout = 2; }), "layout is 2, needed 0 to 1");
  EXPECT_EQ(refused([](auto& p) { p.x_type = 3; }), "problem: x_type is 3, needed 0 to 2");
  EXPECT_EQ(refused([](auto& p) { p.y_type = 3; }), "problem: y_type is 3, needed 0 to 2");
  EXPECT_EQ(refused([](auto& p) { p.accuracy = 5; }), "problem: accuracy is 5, needed 0 to 4");
  EXPECT_EQ(refused([](auto& p) { p.bias = 2; }), "problem: bias is 2, needed 0 or 1");
  EXPECT_EQ(refused([](auto& p) { p.scale = 2; }), "problem: scale is 2, needed 0 or 1");
  EXPECT_EQ(refused([](auto& p) { p.x_transposed = 2; }), "problem: x_transposed is 2, needed 0 or 1");
  EXPECT_EQ(refused([](auto& p) { p.x_broadcast = 2; }), "problem: x_broadcast is 2, needed 0 or 1");
  EXPECT_EQ(refused([](auto& p) { p.reserved = 1; }), "problem: reserved is 1, needed 0");
  EXPECT_EQ(refused([](auto& p) { p.k = 33; }), "problem: k is 33, needed a multiple of q4_0's block of 32");
  EXPECT_EQ(refused([](auto& p) { p.m = -1; }), "problem: m is -1, needed at least 0");
}

TEST_F(CErrors, TextThatIsNoProblemIsRefused) {
  EXPECT_EQ(message(quern_problem_parse("mul_mat q4_0 n=1 k=33", &problem_)), "problem: k is 33, needed a multiple of q4_0's block of 32");
  EXPECT_EQ(problem_.n, 32) << "a failed call leaves its output";
  problem_.struct_size = 1;
  EXPECT_EQ(message(quern_problem_parse("mul_mat q4_0 n=1 k=32", &problem_)),
            "problem's struct_size is 1, needed at least 120: set it with the init function");
}

TEST_F(CErrors, WeightBytes) {
  std::size_t bytes = 0;
  ASSERT_EQ(quern_weight_bytes(QUERN_TYPE_Q4_0, 3, 64, &bytes), QUERN_OK);
  EXPECT_EQ(bytes, 3u * 2 * 18);
  ASSERT_EQ(quern_weight_bytes(QUERN_TYPE_I8, 3, 65, &bytes), QUERN_OK) << quern_last_error();
  EXPECT_EQ(bytes, 3u * 65);
  EXPECT_EQ(message(quern_weight_bytes(QUERN_TYPE_Q4_0, 3, 65, &bytes)), "problem: k is 65, needed a multiple of q4_0's block of 32");
  EXPECT_EQ(message(quern_weight_bytes(99, 3, 64, &bytes)).substr(0, 17), "weight type is 99");
}

TEST_F(CErrors, PlanOptionsAreRefused) {
  quern_plan* plan = nullptr;
  quern_plan_options options = quern_plan_options_init();
  options.config = "no such config";
  EXPECT_NE(message(quern_plan_create(context_, &problem_, &options, &plan)).find("no such config"), std::string::npos);
  options = {}, options.lazy = 1;
  EXPECT_EQ(message(quern_plan_create(context_, &problem_, &options, &plan)),
            "plan options's struct_size is 0, needed at least 16: set it with the init function");
}

// Nothing to compute needs no kernel, and so no compiler.
TEST_F(CErrors, AnEmptyProblemSucceedsWhateverThePointers) {
  problem_.m = 0;
  quern_plan* plan = nullptr;
  ASSERT_EQ(quern_plan_create(context_, &problem_, nullptr, &plan), QUERN_OK) << quern_last_error();
  quern_launch_args args = quern_launch_args_init();
  EXPECT_EQ(quern_plan_launch(plan, nullptr, &args), QUERN_OK) << quern_last_error();
  EXPECT_EQ(message(quern_plan_launch(plan, nullptr, nullptr)), "launch arguments is null");
  args.struct_size = 3;
  EXPECT_EQ(message(quern_plan_launch(plan, nullptr, &args)),
            "launch arguments's struct_size is 3, needed at least 224: set it with the init function");
  args = quern_launch_args_init();
  args.w.rows = -1;
  EXPECT_EQ(quern_plan_check(plan, &args), QUERN_INVALID_ARGUMENT);
  EXPECT_STREQ(quern_last_error(), "launch arguments: w.rows is -1, needed at least 0 (as planned)");
  quern_plan_destroy(plan);
}

TEST_F(CErrors, AFaultOnTheDeviceIsACodeAndALostContext) {
  int lost = 1;
  ASSERT_EQ(quern_context_is_lost(context_, &lost), QUERN_OK);
  EXPECT_EQ(lost, 0);
  EXPECT_EQ(quern_context_synchronize(context_, nullptr), QUERN_OK);
  driver_->answers["cuStreamSynchronize"] = 700;
  EXPECT_EQ(message(quern_context_synchronize(context_, nullptr), QUERN_DEVICE_LOST),
            "waiting for a stream: CUDA_ERROR_ILLEGAL_ADDRESS: as the driver says");
  driver_->answers.clear();
  ASSERT_EQ(quern_context_is_lost(context_, &lost), QUERN_OK);
  EXPECT_EQ(lost, 1);
  quern_context_info info = quern_context_info_init();
  ASSERT_EQ(quern_context_get_info(context_, &info), QUERN_OK);
  EXPECT_EQ(info.is_lost, 1u);
  EXPECT_NE(message(quern_context_synchronize(context_, nullptr), QUERN_DEVICE_LOST).find("the GPU context is lost since"),
            std::string::npos);
}

TEST_F(CErrors, EachThreadKeepsItsOwnLastError) {
  (void)quern_plan_prepare(nullptr);
  std::thread([this] {
    EXPECT_STREQ(quern_last_error(), "");
    (void)quern_supports(context_, nullptr);
    EXPECT_STREQ(quern_last_error(), "problem is null");
    EXPECT_STREQ(quern_last_error_log(), "");
  }).join();
  EXPECT_STREQ(quern_last_error(), "plan is null");
  int lost = 0;
  (void)quern_context_is_lost(context_, &lost);
  EXPECT_STREQ(quern_last_error(), "plan is null") << "success leaves it";
}

}  // namespace
}  // namespace quern

// A wrong pointer on a real GPU, through libquern.so: an error code and a context that says it is lost. In a process of its own, for
// nothing runs in it afterwards; skipped with the reason where there is no GPU or no compiler.
#include <gtest/gtest.h>

#include "quern/quern.h"

namespace {

TEST(CGpu, AWrongPointerLosesTheContextAndSaysSo) {
  quern_context_options options = quern_context_options_init();
  options.from_environment = 1;
  options.device = "cuda:0";
  quern_context* context = nullptr;
  if (quern_context_open(&options, &context) != QUERN_OK) GTEST_SKIP() << quern_last_error();
  quern_problem problem = quern_problem_init();
  problem.type = QUERN_TYPE_Q8_0, problem.n = 256, problem.k = 256;
  quern_plan* plan = nullptr;
  const quern_status made = quern_plan_create(context, &problem, nullptr, &plan);
  if (made == QUERN_ENVIRONMENT) GTEST_SKIP() << quern_last_error();
  ASSERT_EQ(made, QUERN_OK) << quern_last_error();
  quern_plan_info info = quern_plan_info_init();
  ASSERT_EQ(quern_plan_get_info(plan, &info), QUERN_OK);

  quern_launch_args args = quern_launch_args_init();
  void* nowhere = reinterpret_cast<void*>(std::uintptr_t{1} << 20);  // aligned, and no memory of the GPU
  args.w.data = nowhere, args.x.data = nowhere, args.y.data = nowhere;
  args.workspace = nowhere, args.workspace_bytes = info.workspace_bytes;
  const quern_status launched = quern_plan_launch(plan, nullptr, &args);
  EXPECT_TRUE(launched == QUERN_OK || launched == QUERN_DEVICE_LOST) << quern_last_error();
  EXPECT_EQ(quern_context_synchronize(context, nullptr), QUERN_DEVICE_LOST);
  int lost = 0;
  EXPECT_EQ(quern_context_is_lost(context, &lost), QUERN_OK);
  EXPECT_EQ(lost, 1);
  EXPECT_EQ(quern_plan_launch(plan, nullptr, &args), QUERN_DEVICE_LOST);
  EXPECT_NE(std::string(quern_last_error()).find("only a new process can use the GPU again"), std::string::npos) << quern_last_error();
  quern_plan_destroy(plan);
  quern_context_close(context);
}

}  // namespace

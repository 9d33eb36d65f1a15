#include "quern/context.h"

#include <gtest/gtest.h>

#include <thread>

#include "counting_allocator.h"
#include "fakes.h"
#include "quern/version.h"
#include "runtime/artifact.h"

namespace quern::test {
namespace {

constexpr Problem kProblem{.op = Op::mul_mat, .type = WeightType::q4_0, .layout = Layout::planar, .m = 4, .n = 256, .k = 512};

struct Memory {
  alignas(256) std::byte w[64];
  alignas(256) std::byte x[64];
  alignas(256) std::byte y[64];
  alignas(256) std::byte workspace[1024];
  LaunchArgs args() { return {.w = {.data = w}, .x = {.data = x}, .y = {.data = y}, .workspace = workspace, .workspace_bytes = 1024}; }
};

TEST(Plan, UsesTheDefaultConfigWhenNothingIsTunedAndSaysSo) {
  auto fake = make_fake_context();
  auto plan = fake->plan(kProblem);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->provenance(), Provenance::fallback);
  EXPECT_EQ(plan->config(), plain_config());
  EXPECT_EQ(plan->reason(), "not tuned on this kind of device");
  EXPECT_TRUE(plan->ready());
  EXPECT_EQ(plan->usage().registers, 40);
}

TEST(Plan, PrefersTheExactTuningOverANearOne) {
  auto fake = make_fake_context();
  Problem near = kProblem;
  near.m = 5;
  fake.tune(near, fast_config(64));
  fake.tune(kProblem, fast_config(32));
  auto plan = fake->plan(kProblem);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->provenance(), Provenance::exact);
  EXPECT_EQ(plan->config(), fast_config(32));
  EXPECT_EQ(plan->workspace_bytes(), 1024u);
}

TEST(Plan, TakesTheNearestTuningThatIsValidHereAndNamesIt) {
  auto fake = make_fake_context();
  Problem nearest = kProblem, further = kProblem;
  nearest.n = 240, further.n = 512;
  fake.tune(nearest, fast_config(48));  // 48 does not divide 256: not valid for this problem
  fake.tune(further, fast_config(128));
  auto plan = fake->plan(kProblem);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->provenance(), Provenance::nearest);
  EXPECT_EQ(plan->config(), fast_config(128));
  EXPECT_NE(plan->reason().find(to_string(further)), std::string::npos) << plan->reason();
  EXPECT_TRUE(fake.store->dropped.empty()) << "a neighbour that does not fit here is still right where it was tuned";
}

TEST(Plan, NeverUsesAnotherGpusTuningButNamesIt) {
  auto fake = make_fake_context();
  cache::TuningKey key = fake.key(kProblem);
  key.device = "Other GPU | sm_80 | 108 SMs | 80 GiB | 1400 MHz";
  fake.store->put_winner({key, fast_config(32), 1.0, {}, 0});
  auto plan = fake->plan(kProblem);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->provenance(), Provenance::fallback);
  EXPECT_NE(plan->reason().find("Other GPU"), std::string::npos) << plan->reason();
}

TEST(Plan, NeverUsesATuningOfAnotherGeneratorVersionButNamesIt) {
  auto fake = make_fake_context();
  cache::TuningKey key = fake.key(kProblem);
  key.generator_version = "0-old";
  fake.store->put_winner({key, fast_config(32), 1.0, {}, 0});
  auto plan = fake->plan(kProblem);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->provenance(), Provenance::fallback);
  EXPECT_NE(plan->reason().find("0-old"), std::string::npos) << plan->reason();
}

// Field case 34, for each way in which a stored winner can have gone bad.
TEST(Plan, DropsAStoredWinnerThatNoLongerCompiles) {
  auto fake = make_fake_context();
  fake.tune(kProblem, fast_config(32));
  fake.compiler->refused.insert(fake_render(kProblem, fake->target(), fast_config(32))->text);
  auto plan = fake->plan(kProblem);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->provenance(), Provenance::fallback);
  EXPECT_NE(plan->reason().find("dropped the stored tuning fast:tile=32"), std::string::npos) << plan->reason();
  EXPECT_EQ(fake.store->dropped, std::vector{fake.key(kProblem)});
  ASSERT_EQ(fake.warnings->size(), 1u);
  EXPECT_NE(fake.warnings->front().find("refused"), std::string::npos);

  ASSERT_TRUE(fake->plan(kProblem));
  EXPECT_EQ(fake.warnings->size(), 1u) << "the row is gone, so there is nothing left to warn about";
}

TEST(Plan, DropsAStoredWinnerThatNoLongerRenders) {
  auto fake = make_fake_context();
  fake.tune(kProblem, {"removed_family", {}});
  auto plan = fake->plan(kProblem);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->config(), plain_config());
  EXPECT_EQ(fake.store->dropped.size(), 1u);
  EXPECT_EQ(fake.warnings->size(), 1u);
}

TEST(Plan, DropsAStoredWinnerWhoseBinaryDoesNotLoad) {
  auto fake = make_fake_context();
  fake.tune(kProblem, fast_config(32));
  fake.device->refused_binaries.insert(fake_render(kProblem, fake->target(), fast_config(32))->text);
  auto plan = fake->plan(kProblem);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->config(), plain_config());
  EXPECT_EQ(fake.store->dropped.size(), 1u);
}

TEST(Plan, DropsAStoredWinnerThatMissesTheAccuracyClass) {
  auto fake = make_fake_context();
  Problem problem = kProblem;
  problem.n = 259;  // 7 * 37: the fake's tile of 7 states class loose
  fake.tune(problem, fast_config(7));
  auto plan = fake->plan(problem);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->config(), plain_config());
  EXPECT_EQ(fake.store->dropped.size(), 1u);
}

TEST(Plan, KeepsAStoredWinnerWhenOnlyTheCompilerIsMissing) {
  auto fake = make_fake_context({.with_compiler = false});
  fake.tune(kProblem, fast_config(32));
  auto plan = fake->plan(kProblem);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::kEnvironment);
  EXPECT_NE(plan.error().message.find("NVRTC not found"), std::string::npos);
  EXPECT_TRUE(fake.store->dropped.empty());
}

TEST(Plan, RunsAStoredKernelWithoutACompiler) {
  auto fake = make_fake_context({.with_compiler = false});
  const auto source = *fake_render(kProblem, fake->target(), fast_config(32));
  const FakeCompiler elsewhere;
  const auto key = artifact_key(source, fake->target(), elsewhere.identity());
  fake.store->put_artifact(key.key,
                           to_artifact(*elsewhere.compile(source, fake->target()), source, fake->target(), elsewhere.identity(), key.dump));
  fake.store->put_winner({fake.key(kProblem), fast_config(32), 10.0, key.key.hex(), 0});
  auto plan = fake->plan(kProblem);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->artifact(), key.key.hex());
  EXPECT_EQ(fake->compile_count(), 0u);
}

TEST(Plan, WithoutACompilerRefusesAnArtifactOfOtherSource) {
  auto fake = make_fake_context({.with_compiler = false});
  const auto other = *fake_render(kProblem, fake->target(), fast_config(64));
  const FakeCompiler elsewhere;
  const auto key = artifact_key(other, fake->target(), elsewhere.identity());
  fake.store->put_artifact(key.key,
                           to_artifact(*elsewhere.compile(other, fake->target()), other, fake->target(), elsewhere.identity(), key.dump));
  fake.store->put_winner({fake.key(kProblem), fast_config(32), 10.0, key.key.hex(), 0});
  EXPECT_FALSE(fake->plan(kProblem));
}

TEST(Plan, ReportsACompileFailureWithItsLog) {
  auto fake = make_fake_context();
  fake.compiler->refused.insert(fake_render(kProblem, fake->target(), plain_config())->text);
  auto plan = fake->plan(kProblem);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::kCompileFailed);
  EXPECT_EQ(plan.error().message, "plain q4_0: refused");
  EXPECT_EQ(plan.error().log, "line 1: the whole log");
}

TEST(Plan, UsesTheRequestedConfigOrFails) {
  auto fake = make_fake_context();
  fake.tune(kProblem, fast_config(32));
  auto plan = fake->plan(kProblem, {.config = fast_config(64)});
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->provenance(), Provenance::requested);
  EXPECT_EQ(plan->config(), fast_config(64));
  auto bad = fake->plan(kProblem, {.config = fast_config(100)});
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().message, "tile=100 does not divide N");
}

TEST(Plan, RejectsAnImpossibleProblem) {
  auto fake = make_fake_context();
  Problem problem = kProblem;
  problem.k = 33;
  auto plan = fake->plan(problem);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::kInvalidArgument);
}

TEST(Plan, AFailingStoreIsAMiss) {
  auto fake = make_fake_context();
  fake.store->failing = true;
  auto plan = fake->plan(kProblem);
  ASSERT_TRUE(plan) << plan.error().message;
  Memory memory;
  EXPECT_TRUE(plan->launch(nullptr, memory.args()));
  EXPECT_EQ(fake->compile_count(), 1u);
}

TEST(Plan, ASecondPlanCompilesNothing) {
  auto fake = make_fake_context();
  ASSERT_TRUE(fake->plan(kProblem));
  ASSERT_TRUE(fake->plan(kProblem));
  EXPECT_EQ(fake->compile_count(), 1u);
  EXPECT_EQ(fake.compiler->compiles, 1);
}

TEST(Plan, CompilesForTheArchitectureThatAnOldCompilerKnows) {
  auto fake = make_fake_context({.sm = 130});
  EXPECT_EQ(to_string(fake->target()), "sm_130");
  EXPECT_EQ(to_string(make_fake_context()->target()), "sm_90a");
}

TEST(LazyPlan, CompilesAtTheFirstLaunch) {
  auto fake = make_fake_context();
  auto plan = fake->plan(kProblem, {.lazy = true});
  ASSERT_TRUE(plan);
  EXPECT_FALSE(plan->ready());
  EXPECT_EQ(fake->compile_count(), 0u);
  Memory memory;
  ASSERT_TRUE(plan->launch(nullptr, memory.args()));
  EXPECT_TRUE(plan->ready());
  EXPECT_EQ(fake->compile_count(), 1u);
}

TEST(LazyPlan, RefusesToCompileDuringACapture) {
  auto fake = make_fake_context();
  auto plan = fake->plan(kProblem, {.lazy = true});
  fake.device->capturing = true;
  Memory memory;
  auto status = plan->launch(nullptr, memory.args());
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(status.error().message.find("Plan::prepare"), std::string::npos);
  EXPECT_EQ(fake.compiler->compiles, 0);
  ASSERT_TRUE(plan->prepare());
  EXPECT_TRUE(plan->launch(nullptr, memory.args())) << "a prepared plan can be captured";
}

TEST(LazyPlan, MovesOnFromAWinnerThatDoesNotCompile) {
  auto fake = make_fake_context();
  fake.tune(kProblem, fast_config(32));
  fake.compiler->refused.insert(fake_render(kProblem, fake->target(), fast_config(32))->text);
  auto plan = fake->plan(kProblem, {.lazy = true});
  ASSERT_TRUE(plan);
  const Config& before = plan->config();
  EXPECT_EQ(before, fast_config(32));
  ASSERT_TRUE(plan->prepare());
  EXPECT_EQ(plan->config(), plain_config());
  EXPECT_EQ(plan->workspace_bytes(), 0u);
  EXPECT_EQ(before, fast_config(32)) << "references handed out stay valid";
}

TEST(LazyPlan, CompilesOnceForManyThreads) {
  auto fake = make_fake_context();
  auto plan = fake->plan(kProblem, {.lazy = true});
  fake.compiler->delay = std::chrono::milliseconds(20);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) threads.emplace_back([&] { EXPECT_TRUE(plan->prepare()); });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(fake.compiler->compiles, 1);
}

TEST(Launch, RunsEveryStepInOrderOnTheStreamWithDenseStrides) {
  auto fake = make_fake_context();
  fake.tune(kProblem, fast_config(32));
  auto plan = fake->plan(kProblem);
  Memory memory;
  int stream = 0;
  ASSERT_TRUE(plan->launch(&stream, memory.args()));
  ASSERT_EQ(fake.device->launches.size(), 2u);
  EXPECT_EQ(fake.device->launches[0].entry, "quantize");
  EXPECT_EQ(fake.device->launches[1].entry, "multiply");
  const auto& launched = fake.device->launches[1];
  EXPECT_EQ(launched.stream, &stream);
  EXPECT_EQ(launched.args.w, memory.w);
  EXPECT_EQ(launched.args.workspace, memory.workspace);
  EXPECT_EQ(launched.args.ldx, 512);
  EXPECT_EQ(launched.args.ldy, 256);
  EXPECT_EQ(launched.args.w_row_bytes, 512 / 32 * 18);
}

// Field case 21.
TEST(Launch, OfZeroRowsSucceedsWithoutAKernelOrPointers) {
  for (auto [m, n] : {std::pair{0, 256}, std::pair{4, 0}}) {
    auto fake = make_fake_context();
    Problem problem = kProblem;
    problem.m = m, problem.n = n;
    auto plan = fake->plan(problem);
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_TRUE(plan->launch(nullptr, {}));
    EXPECT_TRUE(fake.device->launches.empty());
    EXPECT_EQ(fake.compiler->compiles, 0);
    EXPECT_EQ(plan->workspace_bytes(), 0u);
  }
}

TEST(Launch, NamesTheBytesOfWorkspaceNeeded) {
  auto fake = make_fake_context();
  auto plan = fake->plan(kProblem, {.config = fast_config(32)});
  Memory memory;
  LaunchArgs args = memory.args();
  args.workspace = nullptr;
  EXPECT_EQ(plan->launch(nullptr, args).error().message, "mul_mat: workspace is null, this plan needs 1024 bytes");
  args.workspace = memory.workspace, args.workspace_bytes = 1000;
  EXPECT_EQ(plan->launch(nullptr, args).error().message, "mul_mat: workspace has 1000 bytes, this plan needs 1024");
  EXPECT_TRUE(fake.device->launches.empty());
}

TEST(Launch, PassesOnThatTheDeviceIsLost) {
  auto fake = make_fake_context();
  auto plan = fake->plan(kProblem);
  fake.device->lost = true;
  Memory memory;
  EXPECT_EQ(plan->launch(nullptr, memory.args()).error().code, ErrorCode::kDeviceLost);
}

TEST(Context, SaysWhetherItsDeviceIsLost) {
  auto fake = make_fake_context();
  EXPECT_FALSE(fake->is_lost());
  fake.device->lost = true;
  EXPECT_TRUE(fake->is_lost());
}

TEST(Context, WaitsForAStream) {
  auto fake = make_fake_context();
  int stream = 0;
  EXPECT_TRUE(fake->synchronize(&stream));
  EXPECT_EQ(fake.device->waited_for, std::vector<Stream>{&stream});
  fake.device->lost = true;
  EXPECT_EQ(fake->synchronize(&stream).error().code, ErrorCode::kDeviceLost);
}

TEST(Launch, AllocatesNothing) {
  auto fake = make_fake_context({.record_launches = true});
  FakeModule::names_asked = 0;
  auto plan = fake->plan(kProblem, {.config = fast_config(32)});
  fake.device->keep_launches = false;
  Memory memory;
  const auto before = allocations();
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(plan->launch(nullptr, memory.args()));
  EXPECT_EQ(allocations(), before);
  EXPECT_EQ(FakeModule::names_asked, 2) << "once per step of the plan, whatever is launched";
  const std::string probe(100, 'x');
  EXPECT_GT(allocations(), before) << "the counter counts";
}

TEST(Launch, OverlapsWhatIsBeforeItUnlessAskedNotTo) {
  for (const bool apart : {false, true}) {
    auto fake = make_fake_context({.launch_apart = apart});
    auto one = fake->plan(kProblem), two = fake->plan(kProblem, {.config = fast_config(32)});
    Memory memory;
    ASSERT_TRUE(one->launch(nullptr, memory.args()));
    ASSERT_TRUE(two->launch(nullptr, memory.args()));
    EXPECT_EQ(fake.device->overlapping, apart ? 0 : 3);
  }
}

TEST(LaunchRecords, CountPerKernelWhenAskedFor) {
  auto fake = make_fake_context({.record_launches = true});
  auto plan = fake->plan(kProblem), unused = fake->plan(kProblem, {.config = fast_config(32)});
  Memory memory;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(plan->launch(nullptr, memory.args()));
  const auto records = fake->launch_records();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].family, "plain");
  EXPECT_EQ(records[0].count, 3u);
  EXPECT_EQ(records[0].artifact, plan->artifact());
  EXPECT_EQ(records[0].problem, to_string(kProblem));
  EXPECT_EQ(records[0].entries, std::vector<std::string>{"loaded_multiply"}) << "the module's own name, not what was asked for";
}

TEST(LaunchRecords, NameEveryStepInOrder) {
  auto fake = make_fake_context({.record_launches = true});
  auto plan = fake->plan(kProblem, {.config = fast_config(32)});
  Memory memory;
  ASSERT_TRUE(plan->launch(nullptr, memory.args()));
  EXPECT_EQ(fake->launch_records().at(0).entries, (std::vector<std::string>{"loaded_quantize", "loaded_multiply"}));
}

TEST(LaunchRecords, FallBackOnTheNameByWhichTheFunctionWasFound) {
  FakeModule::can_name = false;
  auto fake = make_fake_context({.record_launches = true});
  auto plan = fake->plan(kProblem);
  FakeModule::can_name = true;
  Memory memory;
  ASSERT_TRUE(plan->launch(nullptr, memory.args()));
  EXPECT_EQ(fake->launch_records().at(0).entries, std::vector<std::string>{"multiply"});
}

TEST(LaunchRecords, AreOffByDefault) {
  FakeModule::names_asked = 0;
  auto fake = make_fake_context();
  auto plan = fake->plan(kProblem);
  Memory memory;
  ASSERT_TRUE(plan->launch(nullptr, memory.args()));
  EXPECT_TRUE(fake->launch_records().empty());
  EXPECT_EQ(FakeModule::names_asked, 0) << "recording costs nothing when it is off";
}

TEST(PrepareWeights, LaunchesTheRepackingKernelInPlace) {
  auto fake = make_fake_context();
  auto plan = fake->plan_prepare_weights(WeightType::q4_0, 32, 64);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->problem().op, Op::to_planar);
  alignas(256) std::byte weights[32 * 36];
  ASSERT_TRUE(fake->prepare_weights(nullptr, *plan, weights, weights, nullptr, 0));
  ASSERT_EQ(fake.device->launches.size(), 1u);
  EXPECT_EQ(fake.device->launches[0].args.w, weights);
  EXPECT_EQ(fake.device->launches[0].args.y, weights);
  EXPECT_EQ(fake->plan_prepare_weights(WeightType::q4_0, 32, 64, Layout::planar)->problem().op, Op::to_gguf);
}

TEST(PrepareWeights, RefusesAPartialOverlapAndAForeignPlan) {
  auto fake = make_fake_context();
  auto plan = fake->plan_prepare_weights(WeightType::q4_0, 32, 64);
  alignas(256) std::byte weights[2 * 32 * 36];
  auto overlap = fake->prepare_weights(nullptr, *plan, weights, weights + 16, nullptr, 0);
  ASSERT_FALSE(overlap);
  EXPECT_NE(overlap.error().message.find("overlap by 1136 of 1152 bytes"), std::string::npos) << overlap.error().message;
  auto foreign = fake->prepare_weights(nullptr, *fake->plan(kProblem), weights, weights, nullptr, 0);
  ASSERT_FALSE(foreign);
  EXPECT_NE(foreign.error().message.find("mul_mat"), std::string::npos);
}

}  // namespace
}  // namespace quern::test

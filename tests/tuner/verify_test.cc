// What verification must catch: planted kernels through a workbench, and outputs spoilt by hand for the ops that move no arithmetic.
#include "tuner/verify.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/tuner/planted.h"
#include "tuner/oracle.h"
#include "tuner/planar.h"
#include "tuner/random_weights.h"
#include "tuner/static_check.h"

namespace quern {
namespace {

using namespace planted;

class PlantedKernels : public testing::Test {
 protected:
  Measurement measure(std::int64_t behaviour, const Problem& p = problem(), const DataOptions& data = {}) {
    EXPECT_TRUE(bench_.prepare(p, data));
    MeasureSettings settings;
    settings.time = false;
    auto m = bench_.measure(config(behaviour, 10), settings);
    EXPECT_TRUE(m) << m.error().message;
    return m ? *m : Measurement{};
  }

  std::unique_ptr<Device> device_ = planted::device();
  std::unique_ptr<Compiler> compiler_ = planted::compiler();
  std::unique_ptr<cache::Store> store_ = cache::Store::open({});
  std::unique_ptr<Family> family_ = planted::family({kRight}, {10});
  Workbench bench_{{device_.get(), compiler_.get(), store_.get(), source({family_.get()}).render}};
};

TEST_F(PlantedKernels, ARightKernelPassesWithItsErrorMeasured) {
  const Measurement m = measure(kRight);
  EXPECT_EQ(m.verdict, Verdict::ok) << m.reason;
  EXPECT_LT(m.nmse, 1e-12);
  EXPECT_EQ(m.artifact.size(), 64u);
}

TEST_F(PlantedKernels, HalfAnOutputIsIncompleteAndTheFirstMissingPlaceIsNamed) {
  const Measurement m = measure(kHalfOutput);
  EXPECT_EQ(m.verdict, Verdict::incomplete_output);
  EXPECT_NE(m.reason.find("30 of 60"), std::string::npos) << m.reason;
  EXPECT_NE(m.reason.find("row 1 column 10"), std::string::npos) << m.reason;
}

// triton#9230: an output shared between candidates hides a half-writing one behind the right answer before it.
TEST_F(PlantedKernels, AHalfWritingKernelIsCaughtRightAfterARightOne) {
  EXPECT_EQ(measure(kRight).verdict, Verdict::ok);
  EXPECT_EQ(measure(kHalfOutput).verdict, Verdict::incomplete_output);
}

TEST_F(PlantedKernels, WritesPastTheOutputOrBeforeTheWorkspaceAreCaught) {
  const Measurement past = measure(kFenceWrite);
  EXPECT_EQ(past.verdict, Verdict::out_of_bounds_write);
  EXPECT_NE(past.reason.find("byte 0 past the output"), std::string::npos) << past.reason;
  const Measurement before = measure(kWorkspaceFence);
  EXPECT_EQ(before.verdict, Verdict::out_of_bounds_write);
  EXPECT_NE(before.reason.find("byte 1 before the workspace"), std::string::npos) << before.reason;
}

TEST_F(PlantedKernels, OneWrongElementIsCaughtAndNamed) {
  const Measurement m = measure(kWrongElement);
  EXPECT_EQ(m.verdict, Verdict::wrong_output);
  EXPECT_NE(m.reason.find("m=2 n=19"), std::string::npos) << m.reason;
}

TEST_F(PlantedKernels, NanIsWrongAndNotUnwritten) { EXPECT_EQ(measure(kNan).verdict, Verdict::wrong_output); }

TEST_F(PlantedKernels, ScratchIsPoisonedSoThatRelyingOnItShows) { EXPECT_EQ(measure(kReadsWorkspace).verdict, Verdict::wrong_output); }

TEST_F(PlantedKernels, AClassIsABarThatTheKernelMustMeet) {
  Problem p = problem(8, 64, 64);
  p.accuracy = Accuracy::loose;  // the planted kernel states loose, and misses it on the mean
  const Measurement m = measure(kSloppy, p);
  EXPECT_EQ(m.verdict, Verdict::wrong_output);
  EXPECT_NE(m.reason.find("nmse"), std::string::npos) << m.reason;
}

TEST_F(PlantedKernels, GapsBetweenRowsSurviveAndAreReadByNobody) {
  DataOptions data;
  data.x_gap = data.y_gap = 8;
  data.w_gap = 36;
  EXPECT_EQ(measure(kRight, problem(), data).verdict, Verdict::ok);
  const Measurement m = measure(kGapWrite, problem(), data);
  EXPECT_EQ(m.verdict, Verdict::out_of_bounds_write);
  EXPECT_NE(m.reason.find("gap after row 0"), std::string::npos) << m.reason;
}

TEST_F(PlantedKernels, ALaunchThatFailsIsAVerdict) {
  const Measurement m = measure(kLaunchFails);
  EXPECT_EQ(m.verdict, Verdict::launch_failed);
  EXPECT_EQ(m.reason, "planted: launch refused");
  EXPECT_FALSE(bench_.lost());
}

TEST_F(PlantedKernels, ALostDeviceEndsTheWorkbench) {
  EXPECT_EQ(measure(kDeviceLost).verdict, Verdict::launch_failed);
  EXPECT_TRUE(bench_.lost());
  auto next = bench_.measure(config(kRight, 10), {});
  ASSERT_FALSE(next);
  EXPECT_EQ(next.error().code, ErrorCode::kDeviceLost);
}

TEST_F(PlantedKernels, NoRowsNeedNoOutput) {
  Problem p = problem(0);
  ASSERT_TRUE(bench_.prepare(p, {}));  // nothing to compare; the family would launch nothing
  auto data = BenchData::make(p, *device_, {});
  ASSERT_TRUE(data);
  EXPECT_EQ(check_output(**data, make_reference(**data), {}, Accuracy::exact).verdict, Verdict::ok);
}

TEST_F(PlantedKernels, ALargeProblemIsSampledAtItsEdges) {
  auto data = BenchData::make(problem(70, 3000, 96), *device_, {});
  ASSERT_TRUE(data);
  const Reference all = make_reference(**data, 1e9), some = make_reference(**data, 1e4);
  EXPECT_FALSE(all.sampled);
  EXPECT_EQ(all.outputs.size(), 70u * 3000u);
  ASSERT_TRUE(some.sampled);
  EXPECT_LT(some.outputs.size(), all.outputs.size());
  auto holds = [&](std::int64_t m, std::int64_t n) {
    for (const auto& o : some.outputs)
      if (o.m == m && o.n == n) return true;
    return false;
  };
  EXPECT_TRUE(holds(0, 0) && holds(69, 2999) && holds(0, 2999) && holds(16, 128) && holds(63, 15));
}

TEST_F(PlantedKernels, TimingWeightsRotateThroughAtLeastTwoCopies) {
  DataOptions rotating;
  rotating.rotate = true;
  auto data = BenchData::make(problem(), *device_, rotating);
  ASSERT_TRUE(data);
  ASSERT_GE((*data)->copies(), 2);
  const KernelArgs a = (*data)->args(0, nullptr), b = (*data)->args(1, nullptr);
  EXPECT_NE(a.w, b.w);
  EXPECT_EQ(std::memcmp(a.w, b.w, static_cast<std::size_t>(weight_bytes(problem()))), 0);
}

TEST_F(PlantedKernels, AHopelessCandidateIsTimedOnceAndItsFigureStands) {
  ASSERT_TRUE(bench_.prepare(problem(), {}));
  MeasureSettings settings;
  settings.hopeless_us = 2000;
  auto full = bench_.measure(config(kNoisy, 1000), settings);
  ASSERT_TRUE(full) << full.error().message;
  EXPECT_TRUE(full->unstable);  // only the repeated timings tell
  settings.hopeless_us = 500;
  auto once = bench_.measure(config(kNoisy, 1000), settings);
  ASSERT_TRUE(once) << once.error().message;
  EXPECT_EQ(once->verdict, Verdict::ok);
  EXPECT_EQ(once->us, 1000);
  EXPECT_EQ(once->us_l2_warm, 1000);
  EXPECT_FALSE(once->unstable);
}

// The right output of an op that moves no arithmetic, as the device would leave it.
std::vector<std::byte> right_output(const BenchData& data) {
  if (!data.expected().empty()) return {data.expected().begin(), data.expected().end()};
  const Problem& p = data.problem();
  std::vector<std::byte> y(static_cast<std::size_t>(p.n * p.k * size_of(p.y_type)));
  std::vector<float> row(static_cast<std::size_t>(p.k));
  for (std::int64_t n = 0; n < p.n; ++n) {
    dequantize_row(p.type, data.weights().data() + n * row_bytes(p.type, p.k), p.k, row.data());
    for (std::int64_t k = 0; k < p.k; ++k) store_element(p.y_type, y.data(), n * p.k + k, row[static_cast<std::size_t>(k)]);
  }
  return y;
}

class MovedOps : public testing::TestWithParam<std::pair<Op, DType>> {};

TEST_P(MovedOps, EqualBytesPassAndOneBitOfDifferenceFails) {
  const auto device = planted::device();
  Problem p;
  p.op = GetParam().first;
  p.type = WeightType::q6_k;
  p.layout = p.op == Op::to_planar ? Layout::gguf : Layout::planar;
  p.y_type = GetParam().second;
  p.n = 19;
  p.k = 512;
  auto data = BenchData::make(p, *device, {});
  ASSERT_TRUE(data);
  const Reference reference = make_reference(**data);
  auto y = right_output(**data);
  EXPECT_EQ(check_output(**data, reference, y, Accuracy::exact).verdict, Verdict::ok);
  for (const std::size_t at : {std::size_t{0}, y.size() / 2, y.size() - 1}) {
    y[at] ^= std::byte{1};
    EXPECT_EQ(check_output(**data, reference, y, Accuracy::exact).verdict, Verdict::wrong_output) << "byte " << at;
    y[at] ^= std::byte{1};
  }
  const int element = (*data)->y_element_bytes();
  for (int b = 0; b < element; ++b)
    y[static_cast<std::size_t>(7 * element + b)] = (*data)->poison_at(static_cast<std::size_t>(7 * element + b));
  EXPECT_EQ(check_output(**data, reference, y, Accuracy::exact).verdict, Verdict::incomplete_output);
}

INSTANTIATE_TEST_SUITE_P(All, MovedOps,
                         testing::Values(std::pair{Op::dequantize, DType::f32}, std::pair{Op::dequantize, DType::f16},
                                         std::pair{Op::dequantize, DType::bf16}, std::pair{Op::to_planar, DType::f32},
                                         std::pair{Op::to_gguf, DType::f32}));

TEST(Verify, OutputRoundingIsAllowedOnTopOfTheClassAndNothingMore) {
  const auto device = planted::device();
  for (const DType type : {DType::f16, DType::bf16}) {
    Problem p = problem(1, 1, 32);
    p.y_type = type;
    auto data = BenchData::make(p, *device, {});
    ASSERT_TRUE(data);
    const Reference reference = make_reference(**data);
    std::vector<std::byte> y(2);
    store_element(type, y.data(), 0, static_cast<float>(reference.outputs[0].value));
    EXPECT_EQ(check_output(**data, reference, y, Accuracy::f32).verdict, Verdict::ok) << to_string(type);
    y[0] ^= std::byte{2};  // two or more units in the last place
    EXPECT_EQ(check_output(**data, reference, y, Accuracy::f32).verdict, Verdict::wrong_output) << to_string(type);
  }
}

// A bias that is large beside the products brings a rounding that no bar on the products covers.
TEST(Verify, RoundingOfTheBiasIsNotHeldAgainstTheProducts) {
  const auto device = planted::device();
  Problem p = problem(1, 500, 1);
  p.type = WeightType::f16;
  p.bias = true;
  auto data = BenchData::make(p, *device, {});
  ASSERT_TRUE(data);
  const Reference reference = make_reference(**data);
  std::vector<std::byte> y(500 * 4);
  for (const auto& o : reference.outputs) store_element(DType::f32, y.data(), o.n, static_cast<float>(o.value));
  const Verification v = check_output(**data, reference, y, Accuracy::f32);
  EXPECT_EQ(v.verdict, Verdict::ok) << v.reason;
}

TEST(Planar, IsTheLayoutOfItsGrammarAndItsOwnInverse) {
  const auto rows = random_weights(WeightType::q4_0, 18, 64, 7);
  const auto tiles = gguf_to_planar(WeightType::q4_0, 18, 64, rows);
  ASSERT_EQ(tiles.size(), rows.size());
  // Row 17 is row 1 of the second tile (2 rows, 2 blocks each): quants of block 1 follow three blocks of 16 bytes; scales follow all 64.
  const std::size_t tile = 16 * 36, gguf_block = 17 * 36 + 18;
  EXPECT_EQ(std::memcmp(&tiles[tile + 3 * 16], &rows[gguf_block + 2], 16), 0);
  EXPECT_EQ(std::memcmp(&tiles[tile + 4 * 16 + 3 * 2], &rows[gguf_block], 2), 0);
  for (const auto& type : kWeightTypes) {
    const auto any = random_weights(type.type, 35, 2 * type.block_elements, 3);
    EXPECT_EQ(planar_to_gguf(type.type, 35, 2 * type.block_elements, gguf_to_planar(type.type, 35, 2 * type.block_elements, any)), any)
        << type.name;
  }
  const auto dense = random_weights(WeightType::bf16, 5, 3, 3);
  EXPECT_EQ(gguf_to_planar(WeightType::bf16, 5, 3, dense), dense);
}

TEST(StaticCheck, NamesTheLimitThatIsExceeded) {
  DeviceInfo gpu;
  gpu.target = {Target::Kind::cuda, 90, true};
  gpu.max_shared_bytes = 1000;
  KernelSource source;
  source.steps.push_back({"entry", {}, {256, 1, 1}, 900});
  EXPECT_EQ(static_fault(source, {.registers = 128}, gpu, false), "");
  EXPECT_NE(static_fault(source, {.registers = 128, .static_shared_bytes = 101}, gpu, false).find("shared memory of entry: found 1001"),
            std::string::npos);
  EXPECT_NE(static_fault(source, {.registers = 128, .spill_bytes = 200}, gpu, false).find("spilled"), std::string::npos);
  EXPECT_EQ(static_fault(source, {.registers = 128, .spill_bytes = 200}, gpu, true), "");
  source.steps[0].block.x = 1024;
  EXPECT_NE(static_fault(source, {.registers = 128}, gpu, true).find("registers per block"), std::string::npos);
  source.steps[0].block.x = 2048;
  EXPECT_NE(static_fault(source, {.registers = 16}, gpu, true).find("threads per block"), std::string::npos);
}

}  // namespace
}  // namespace quern

// What every family promises about every problem: it answers, or says why not; what it answers can be launched.
#include "generator/family.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "generator/target_limits.h"
#include "tests/generator/problem_grid.h"

namespace quern {
namespace {

using test::cuda;
using test::mul_mat;

constexpr std::int64_t kMs[] = {0, 1, 2, 3, 8, 9, 16, 33, 64, 129, 512, 2048};
constexpr Accuracy kAnswerable[] = {Accuracy::f32, Accuracy::tight, Accuracy::normal, Accuracy::loose};

std::string reason(const char* family, const Problem& problem, const Target& target) {
  const Status status = find_family(family)->supports(problem, target);
  if (status) return "";
  EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(status.error().message.find('\n'), std::string::npos);
  return status.error().message;
}

bool contains(const std::vector<const Family*>& families, std::string_view name) {
  return std::any_of(families.begin(), families.end(), [&](const Family* f) { return f->name() == name; });
}

template <class Check>
void for_each_product(Check check) {
  for (WeightType type : test::decodable_types())
    for (Layout layout : {Layout::gguf, Layout::planar})
      for (std::int64_t k : test::lengths(type))
        for (std::int64_t n : {1, 777})
          for (std::int64_t m : kMs)
            for (Accuracy accuracy : kAnswerable) check(mul_mat(type, layout, m, n, k, accuracy));
}

// The launch that one step makes, against the geometry that its kernel is compiled with.
void expect_launchable(const KernelSource& source, const Problem& p, const Target& target, const Config& config) {
  const std::string at = to_string(p) + " " + to_string(config) + " " + to_string(target);
  for (const LaunchStep& step : source.steps) {
    EXPECT_GE(step.grid.x, 1u) << at;
    EXPECT_LE(step.grid.x, 2147483647u) << at;
    EXPECT_EQ(step.grid.y, 1u) << at;
    EXPECT_EQ(step.grid.z, 1u) << at;
    EXPECT_GE(step.block.x, 32u) << at;
    EXPECT_LE(step.block.x, 1024u) << at;
    EXPECT_EQ(step.block.x % 32, 0u) << at;
    EXPECT_EQ(step.block.y * step.block.z, 1u) << at;
    EXPECT_LE(step.shared_bytes, limits_of(target).shared_bytes_per_block) << at;
    EXPECT_NE(source.text.find("QUERN_KERNEL(" + step.entry + ", " + std::to_string(step.block.x) + ","), std::string::npos) << at;
  }
  if (source.steps.empty()) return;
  for (const auto& step : source.steps) EXPECT_TRUE(step.overlaps_previous) << at;
  // Whose launch the first step follows is not known: its entry waits before its body begins.
  const std::size_t first = source.text.find("QUERN_KERNEL("), brace = source.text.find(" {\n", first);
  EXPECT_TRUE(source.text.substr(brace).starts_with(" {\n  quern::ptx::wait_previous();\n  quern::ptx::allow_next();\n")) << at;
  EXPECT_LE(source.accuracy, p.accuracy) << at;
}

TEST(Families, AreSimplestFirstUniqueAndFound) {
  std::vector<std::string_view> names;
  for (const Family* family : families()) {
    names.push_back(family->name());
    EXPECT_EQ(find_family(family->name()), family);
  }
  EXPECT_EQ(names, (std::vector<std::string_view>{"generic", "dequantize", "repack", "gemv_f32", "gemv_q8", "gemm", "wgmma", "gemm_t",
                                                  "wgmma_t", "quantize_rows", "rpbh_quantize", "int8_dot", "int8_mma", "w4a4_pairs",
                                                  "w4a4_table", "w4a4_register", "w4a4_mma"}));
  EXPECT_EQ(find_family("gem"), nullptr);
  EXPECT_EQ(find_family(""), nullptr);
}

TEST(Families, EveryLegalProductHasTheGenericFamilyAndAValidDefaultOfEachOther) {
  const auto targets = test::all_targets();
  for_each_product([&](const Problem& p) {
    for (const Target& target : targets) {
      const auto answering = families_for(p, target);
      ASSERT_FALSE(answering.empty()) << to_string(p) << " " << to_string(target);
      EXPECT_EQ(answering.front()->name(), "generic") << to_string(p);
      for (const Family* family : answering) {
        const SearchSpace space = family->space(p, target);
        EXPECT_EQ(space.family(), family->name());
        const Status valid = space.check(space.default_config());
        EXPECT_TRUE(valid) << to_string(p) << " " << to_string(target) << ": " << valid.error().message;
      }
    }
  });
}

TEST(Families, TheDefaultConfigOfEveryLegalProductRendersALaunch) {
  for_each_product([&](const Problem& p) {
    if (p.accuracy == Accuracy::loose || p.k == test::lengths(p.type)[1]) return;
    for (const Target& target : {cuda(75), cuda(80), cuda(90, true), cuda(120)}) {
      const Config config = default_config(p, target);
      const auto source = render(p, target, config);
      ASSERT_TRUE(source) << to_string(p) << " " << to_string(target) << ": " << source.error().message;
      expect_launchable(*source, p, target, config);
      EXPECT_EQ(source->steps.empty(), p.m == 0) << to_string(p);
    }
  });
}

TEST(Families, EveryConfigThatEnumerationGivesCanBeLaunched) {
  for (const Target& target : {cuda(75), cuda(90, true), Target{}})
    for (WeightType type : {WeightType::q4_0, WeightType::q6_k, WeightType::f16})
      for (std::int64_t m : {1, 8, 40, 300}) {
        const Problem p = mul_mat(type, Layout::planar, m, 777, 1024, m == 8 ? Accuracy::f32 : Accuracy::normal);
        for (const Family* family : families_for(p, target)) {
          const auto all = family->space(p, target).enumerate();
          ASSERT_FALSE(all.empty());
          // Rendering copies the headers: a stride that meets every value of every parameter is enough.
          for (std::size_t i = 0; i < all.size(); i += 1 + all.size() / 97) {
            const auto source = render(p, target, all[i]);
            ASSERT_TRUE(source) << to_string(p) << ": " << source.error().message;
            expect_launchable(*source, p, target, all[i]);
          }
        }
      }
}

// Field case 17: lengths that a fast kernel refused.
TEST(Families, ALegalShapeIsNeverRefused) {
  for (std::int64_t k : {10944, 7392, 32, 33554432})
    for (Layout layout : {Layout::gguf, Layout::planar})
      for (const Target& target : test::all_targets()) {
        const Problem p = mul_mat(WeightType::q8_0, layout, 5, 40, k);
        ASSERT_TRUE(validate(p));
        EXPECT_TRUE(contains(families_for(p, target), "generic")) << to_string(p);
        const auto source = render(p, target, default_config(p, target));
        EXPECT_TRUE(source) << to_string(p) << " " << to_string(target) << ": " << source.error().message;
      }
}

// Field case 22: an architecture that lacks an instruction is refused by rule, not by an assembler.
TEST(Families, TensorCoreFamiliesNameTheTargetTheyNeed) {
  const Problem p = mul_mat(WeightType::q4_0, Layout::planar, 64, 64, 256);
  EXPECT_EQ(reason("gemm", p, cuda(75)), "gemm: target is sm_75, needed sm_80 or later for mma m16n8k16 and cp.async");
  for (int sm : {80, 86, 89, 90, 100, 120}) EXPECT_EQ(reason("gemm", p, cuda(sm)), "") << sm;
  for (int sm : {75, 80, 86, 89, 90, 100, 120})
    EXPECT_EQ(reason("wgmma", p, cuda(sm)), "wgmma: target is sm_" + std::to_string(sm) + ", needed sm_90a");
  EXPECT_EQ(reason("wgmma", p, cuda(100, true)), "wgmma: target is sm_100a, needed sm_90a");
  EXPECT_EQ(reason("wgmma", p, cuda(90, true)), "");
  EXPECT_EQ(reason("wgmma", p, Target{}), "");
  EXPECT_EQ(reason("gemm", p, Target{}), "");
}

TEST(Families, ARefusalNamesThePropertyThatIsLacking) {
  const Target target = cuda(90, true);
  Problem p = mul_mat(WeightType::q4_0, Layout::planar, 9, 64, 256);
  EXPECT_EQ(reason("gemv_q8", p, target), "gemv_q8: m is 9, needed at most 8");
  EXPECT_EQ(reason("gemv_f32", p, target), "gemv_f32: m is 9, needed at most 8");
  EXPECT_EQ(reason("wgmma", p, target), "wgmma: m is 9, needed at least 33 to fill half a tile");
  EXPECT_EQ(reason("dequantize", p, target), "dequantize: op is mul_mat, needed dequantize");
  EXPECT_EQ(reason("repack", p, target), "repack: op is mul_mat, needed to_planar or to_gguf");
  p.m = 1, p.accuracy = Accuracy::tight;
  EXPECT_EQ(reason("gemv_q8", p, target), "gemv_q8: meets class normal, the problem needs tight");
  EXPECT_EQ(reason("gemm", p, target), "");
  p.accuracy = Accuracy::f32;
  EXPECT_EQ(reason("gemm", p, target), "gemm: meets class tight, the problem needs f32");
  EXPECT_EQ(reason("gemv_f32", p, target), "");
  p.accuracy = Accuracy::exact;
  EXPECT_EQ(reason("generic", p, target), "generic: meets class f32, the problem needs exact");
  p = mul_mat(WeightType::f16, Layout::gguf, 1, 64, 100);
  EXPECT_EQ(reason("gemv_f32", p, target), "gemv_f32: k is 100, needed a multiple of 128 for dense weights");
  EXPECT_EQ(reason("gemm", p, target), "gemm: k is 100, needed a multiple of 128 for dense weights");
  p.k = 128;
  EXPECT_EQ(reason("gemv_q8", p, target), "gemv_q8: weight type f16 is dense, needed a quantized one");
  p = mul_mat(WeightType::q4_0, Layout::planar, 1, 64, 256);
  p.batch2 = 32768, p.batch3 = 2;
  for (const char* family : {"gemv_f32", "gemv_q8", "gemm"})
    EXPECT_EQ(reason(family, p, target), std::string(family) + ": batch has 65536 matrices, needed at most 65535");
  EXPECT_EQ(reason("generic", p, target), "");
  p.batch2 = 3, p.x_transposed = true;
  for (const char* family : {"gemv_f32", "gemv_q8", "gemm"})
    EXPECT_EQ(reason(family, p, target), std::string(family) + ": X is transposed, needed rows of X");
  EXPECT_EQ(reason("generic", p, target), "");
  p = {.op = Op::to_planar, .type = WeightType::q4_0, .layout = Layout::planar, .n = 4, .k = 32};
  EXPECT_EQ(reason("repack", p, target), "repack: layout is planar, to_planar reads gguf");
  p.op = Op::to_gguf;
  EXPECT_EQ(reason("repack", p, target), "");
  p.layout = Layout::gguf;
  EXPECT_EQ(reason("repack", p, target), "repack: layout is gguf, to_gguf reads planar");
}

// A row of rpbh_quantize lies in shared memory as f32, with 1 KiB beside it; a second copy of it where there is room.
TEST(Families, RotatedRowsAreAsLongAsSharedMemory) {
  Problem p{.op = Op::rpbh_quantize, .type = WeightType::code4, .n = 0, .x_type = DType::bf16, .accuracy = Accuracy::exact, .block = 64};
  for (const auto& [target, longest] : {std::pair{cuda(75), 16128}, {cuda(80), 41472}, {cuda(86), 25088}, {cuda(90, true), 57856}}) {
    p.k = longest;
    EXPECT_EQ(reason("rpbh_quantize", p, target), "");
    EXPECT_EQ(*default_config(p, target).find("staged"), 0);
    expect_launchable(*render(p, target, default_config(p, target)), p, target, default_config(p, target));
    p.k += 64;
    EXPECT_NE(reason("rpbh_quantize", p, target), "") << to_string(target);
    EXPECT_EQ(default_config(p, target).family, "");
    p.k = 4096;
    const Config config = default_config(p, target);
    EXPECT_EQ(to_string(config), "rpbh_quantize:threads=512,staged=1");
    EXPECT_EQ(render(p, target, config)->steps.at(0).shared_bytes, 4u * (4096 + 256) + 2 * 4096);
  }
  p.k = 16192;
  EXPECT_EQ(reason("rpbh_quantize", p, cuda(75)),
            "rpbh_quantize: a row of k = 16192 takes 65792 bytes of shared memory, the target has 65536");
  p.k = 12800;
  const Status staged = find_family("rpbh_quantize")->space(p, cuda(75)).check({"rpbh_quantize", {{"threads", 64}, {"staged", 1}}});
  EXPECT_EQ(staged.error().message, "config rpbh_quantize:threads=64,staged=1: shared memory is 77824 bytes, needed at most 65536");
  p.k = 64, p.m = 0;
  EXPECT_TRUE(render(p, cuda(75), default_config(p, cuda(75)))->steps.empty());
}

TEST(Families, RoutedRowsAreNotSplitAlongK) {
  const Problem plain = mul_mat(WeightType::q4_0, Layout::planar, 9, 64, 4096);
  Problem routed = plain;
  routed.op = Op::mul_mat_id, routed.used = 2;
  auto check = [](const Problem& p) {
    const SearchSpace space = find_family("gemm")->space(p, cuda(80));
    Config split = space.default_config();
    for (auto& v : split.values)
      if (v.name == "split_k") v.value = 2;
    const Status status = space.check(split);
    return status ? std::string() : status.error().message;
  };
  EXPECT_EQ(check(plain), "");
  EXPECT_NE(check(routed).find("split_k is 2, needed 1 for mul_mat_id"), std::string::npos) << check(routed);
}

TEST(Families, DequantizeAndRepackAnswerEveryTypeAndLayout) {
  for (WeightType type : test::decodable_types())
    for (std::int64_t k : test::lengths(type))
      for (std::int64_t n : {1, 17, 777})
        for (const Target& target : test::all_targets()) {
          for (auto [op, layout] : {std::pair{Op::dequantize, Layout::gguf},
                                    {Op::dequantize, Layout::planar},
                                    {Op::to_planar, Layout::gguf},
                                    {Op::to_gguf, Layout::planar}}) {
            const Problem p{.op = op, .type = type, .layout = layout, .n = n, .k = k, .accuracy = Accuracy::exact};
            ASSERT_EQ(families_for(p, target).size(), 1u) << to_string(p);
            if (target.sm != 75) continue;
            const Config config = default_config(p, target);
            const auto source = render(p, target, config);
            ASSERT_TRUE(source) << to_string(p) << ": " << source.error().message;
            ASSERT_EQ(source->steps.size(), 1u);
            expect_launchable(*source, p, target, config);
            EXPECT_EQ(source->accuracy, Accuracy::exact);
          }
        }
}

// Field case 7: a grid is one-dimensional; 65535 is no border.
TEST(Families, MoreRowsAndBatchesThanAGridHasInYOrZ) {
  for (std::int64_t n : {125696, 250880})
    for (std::int64_t m : {1, 8, 64, 2048})
      for (const Target& target : {cuda(75), cuda(80), cuda(90, true)}) {
        const Problem p = mul_mat(WeightType::q4_0, Layout::planar, m, n, 32);
        for (const Family* family : families_for(p, target)) {
          const Config config = family->space(p, target).default_config();
          const auto source = render(p, target, config);
          ASSERT_TRUE(source) << to_string(p) << ": " << source.error().message;
          expect_launchable(*source, p, target, config);
        }
      }
  Problem batch = mul_mat(WeightType::q4_0, Layout::gguf, 1, 3, 32);
  batch.batch2 = 65536, batch.batch3 = 3;
  const auto source = render(batch, cuda(80), default_config(batch, cuda(80)));
  ASSERT_TRUE(source) << source.error().message;
  ASSERT_EQ(source->steps.size(), 1u);
  EXPECT_GE(std::int64_t{source->steps[0].grid.x} * source->steps[0].block.x, std::int64_t{65536} * 9);
  expect_launchable(*source, batch, cuda(80), default_config(batch, cuda(80)));
}

// A step's number of blocks is kept in 32 bits: what does not fit is refused, never cut.
TEST(Families, AGridThatWouldNotFitIsRefusedWithItsSize) {
  for (auto [m, n] : {std::pair{std::int64_t{1}, std::int64_t{1} << 34},
                      {std::int64_t{1} << 34, 1},
                      {std::int64_t{1} << 32, 64},
                      {std::int64_t{1} << 36, 1},
                      {std::int64_t{1} << 31, 1},
                      {std::int64_t{1} << 40, 4}}) {
    const Problem p = mul_mat(WeightType::q4_0, Layout::planar, m, n, 32);
    ASSERT_TRUE(validate(p));
    for (const Target& target : {cuda(75), cuda(90, true)})
      for (const Family* family : families_for(p, target)) {
        const Config config = family->space(p, target).default_config();
        const auto source = render(p, target, config);
        ASSERT_TRUE(source) << to_string(p) << ": " << source.error().message;
        expect_launchable(*source, p, target, config);
        if (m == 1 || family->name() == "generic") continue;
        // The activations' preparation has a block for every row of X.
        EXPECT_GE(std::int64_t{source->steps[0].grid.x}, m) << to_string(p) << " " << family->name();
      }
  }
  const Problem huge = mul_mat(WeightType::q4_0, Layout::planar, std::int64_t{1} << 20, std::int64_t{1} << 30, 32);
  ASSERT_TRUE(validate(huge));
  EXPECT_EQ(reason("generic", huge, cuda(80)), "generic: needs 17592186044417 blocks, a grid holds 2147483647");
}

// Field case 21.
TEST(Families, NothingToComputeIsNothingToLaunch) {
  for (const Target& target : {cuda(75), cuda(90, true), Target{}})
    for (auto [m, n] : {std::pair{0, 40}, {3, 0}, {0, 0}, {64, 0}}) {
      const Problem p = mul_mat(WeightType::q4_0, Layout::planar, m, n, 64);
      for (const Family* family : families_for(p, target)) {
        const auto source = render(p, target, family->space(p, target).default_config());
        ASSERT_TRUE(source) << to_string(p) << ": " << source.error().message;
        EXPECT_TRUE(source->steps.empty()) << to_string(p) << " " << family->name();
        EXPECT_EQ(source->workspace_bytes, 0u) << to_string(p) << " " << family->name();
      }
    }
  for (Op op : {Op::dequantize, Op::to_planar}) {
    Problem p{.op = op, .type = WeightType::q4_0, .layout = Layout::gguf, .n = 0, .k = 64};
    EXPECT_TRUE(render(p, Target{}, default_config(p, Target{}))->steps.empty());
    p.n = 2, p.m = 0;  // m is no size of these ops
    EXPECT_EQ(render(p, Target{}, default_config(p, Target{}))->steps.size(), 1u) << to_string(p);
  }
}

TEST(DefaultConfig, TakesTheFamilyThatTheShapeWants) {
  const Target h200 = cuda(90, true), ampere = cuda(80), turing = cuda(75);
  auto family = [](std::int64_t m, Accuracy accuracy, const Target& target, WeightType type = WeightType::q4_0) {
    return default_config(mul_mat(type, Layout::planar, m, 4096, 4096, accuracy), target).family;
  };
  EXPECT_EQ(family(1, Accuracy::normal, h200), "gemv_q8");
  EXPECT_EQ(family(4, Accuracy::normal, ampere), "gemv_q8");
  EXPECT_EQ(family(1, Accuracy::f32, h200), "gemv_f32");
  EXPECT_EQ(family(1, Accuracy::normal, h200, WeightType::f16), "gemv_f32");
  EXPECT_EQ(family(8, Accuracy::normal, ampere), "gemv_q8");
  EXPECT_EQ(family(9, Accuracy::normal, ampere), "gemm");
  EXPECT_EQ(family(9, Accuracy::normal, h200), "gemm");
  EXPECT_EQ(family(8, Accuracy::normal, turing), "gemv_q8");
  EXPECT_EQ(family(64, Accuracy::normal, ampere), "gemm");
  EXPECT_EQ(family(64, Accuracy::normal, h200), "wgmma");
  EXPECT_EQ(family(64, Accuracy::normal, turing), "generic");
  EXPECT_EQ(family(64, Accuracy::f32, h200), "generic");
}

Problem mul_mat_id(std::int64_t m, std::int64_t used, std::int64_t experts, WeightType type = WeightType::q4_0) {
  Problem p = mul_mat(type, Layout::planar, m, 768, 2048);
  p.op = Op::mul_mat_id, p.used = used, p.experts = experts;
  return p;
}

// Few rows per expert: one GEMV per row reads hardly more weights. Many: each expert's are read once for all its rows.
TEST(DefaultConfig, OfRoutedRowsIsTheGemvUpToTwoPerExpert) {
  const Target h200 = cuda(90, true), ampere = cuda(80), turing = cuda(75);
  auto family = [](const Problem& p, const Target& target) { return default_config(p, target).family; };
  EXPECT_EQ(family(mul_mat_id(1, 8, 128), h200), "gemv_q8");
  EXPECT_EQ(family(mul_mat_id(32, 8, 128), h200), "gemv_q8");
  EXPECT_EQ(family(mul_mat_id(33, 8, 128), h200), "gemm");
  EXPECT_EQ(family(mul_mat_id(512, 8, 128), ampere), "gemm");
  EXPECT_EQ(family(mul_mat_id(8, 2, 8), ampere), "gemv_q8");
  EXPECT_EQ(family(mul_mat_id(9, 2, 8), ampere), "gemm");
  EXPECT_EQ(family(mul_mat_id(8, 1, 1), ampere), "gemv_q8");
  EXPECT_EQ(family(mul_mat_id(9, 1, 1), ampere), "gemm");
  EXPECT_EQ(family(mul_mat_id(32, 8, 128, WeightType::bf16), ampere), "gemv_f32");
  EXPECT_EQ(family(mul_mat_id(512, 8, 128), turing), "gemv_q8");
  Problem exact = mul_mat_id(512, 8, 128);
  exact.accuracy = Accuracy::f32;
  EXPECT_EQ(family(exact, h200), "gemv_f32");
}

TEST(DefaultConfig, OfRoutedRowsHasTilesForTheRowsOfAnExpert) {
  auto tile = [](std::int64_t m) {
    const Config config = find_family("gemm")->space(mul_mat_id(m, 8, 128), cuda(80)).default_config();
    return 8 * *config.find("frags_m") * *config.find("warps_m");
  };
  EXPECT_EQ(tile(1), 8);
  EXPECT_EQ(tile(128), 16);    // 8 rows per expert
  EXPECT_EQ(tile(400), 32);    // 25
  EXPECT_EQ(tile(512), 64);    // 32
  EXPECT_EQ(tile(4096), 128);  // 256
}

TEST(Render, SaysWhatDoesNotFit) {
  const Problem p = mul_mat(WeightType::q4_0, Layout::planar, 1, 64, 256);
  auto error = [&](const Problem& problem, const Config& config) {
    const auto source = render(problem, cuda(80), config);
    return source ? std::string() : source.error().message;
  };
  EXPECT_EQ(error(p, {"gemw", {}}), "config: no family is called 'gemw'");
  EXPECT_EQ(error(p, {"generic", {{"threads", 96}}}), "config generic:threads=96: threads is 96, needed one of 64, 128, 256");
  EXPECT_EQ(error(p, {"wgmma", {}}), "wgmma: target is sm_80, needed sm_90a");
  Problem broken = p;
  broken.k = 33;
  EXPECT_EQ(error(broken, {"generic", {{"threads", 64}}}), "problem: k is 33, needed a multiple of q4_0's block of 32");
  EXPECT_EQ(error(p, {"generic", {{"threads", 64}}}), "");
}

// Two configs that differ in one value are two kernels: the artifact key sees the text, the launch sees the steps.
TEST(Render, EveryParameterChangesTheTextOrTheSteps) {
  const Target target = cuda(90, true);
  std::map<std::string, int> pairs;  // by family and parameter
  for (auto [m, op] : {std::pair{1, Op::mul_mat}, {128, Op::mul_mat}, {1, Op::dequantize}, {1, Op::to_planar}}) {
    Problem p = mul_mat(WeightType::q4_0, op == Op::mul_mat ? Layout::planar : Layout::gguf, m, 65536, 4096);
    p.op = op;
    for (const Family* family : families_for(p, target)) {
      const SearchSpace space = family->space(p, target);
      const auto all = space.enumerate();
      for (const Parameter& parameter : space.parameters()) {
        // The first valid pairs that differ in this parameter alone.
        int& found = pairs[std::string(family->name()) + " " + parameter.name];
        for (std::size_t i = 0; i < all.size() && found < 3; ++i)
          for (std::int64_t value : parameter.values) {
            Config other = all[i];
            for (auto& v : other.values)
              if (v.name == parameter.name) v.value = value;
            if (other == all[i] || !space.check(other)) continue;
            const auto one = render(p, target, all[i]), two = render(p, target, other);
            ASSERT_TRUE(one && two);
            EXPECT_TRUE(one->text != two->text || one->steps != two->steps)
                << to_string(all[i]) << " and " << to_string(other) << " render alike";
            if (++found == 3) break;
          }
      }
    }
  }
  for (const auto& [parameter, found] : pairs) EXPECT_GT(found, 0) << parameter << " has one value only";
  EXPECT_EQ(pairs.size(), 1u + 1u + 2u + 8u + 10u + 8u + 4u);
}

TEST(Render, EveryPropertyOfTheProblemThatAKernelDependsOnChangesTheText) {
  const Problem base = mul_mat(WeightType::q4_0, Layout::planar, 2, 40, 256);
  for (const Family* family : families_for(base, Target{})) {
    const Config config = family->space(base, Target{}).default_config();
    const std::string text = render(base, Target{}, config)->text;
    auto with = [&](auto change) {
      Problem p = base;
      change(p);
      return render(p, Target{}, config)->text;
    };
    EXPECT_NE(text, with([](Problem& p) { p.type = WeightType::q8_0; })) << family->name();
    EXPECT_NE(text, with([](Problem& p) { p.layout = Layout::gguf; })) << family->name();
    EXPECT_NE(text, with([](Problem& p) { p.x_type = DType::f16; })) << family->name();
    EXPECT_NE(text, with([](Problem& p) { p.y_type = DType::bf16; })) << family->name();
    EXPECT_NE(text, with([](Problem& p) { p.bias = true; })) << family->name();
  }
}

// The launch of each family, against the geometry header that its kernel is compiled with.
TEST(LaunchGeometry, GemvCoversEveryRowOnce) {
  for (std::int64_t n : {1, 31, 777, 14336, 125696})
    for (const char* name : {"gemv_q8", "gemv_f32"}) {
      const Problem p = mul_mat(WeightType::q4_0, Layout::planar, 2, n, 4096);
      const auto all = find_family(name)->space(p, cuda(90)).enumerate();
      for (std::size_t i = 0; i < all.size(); i += 1 + all.size() / 53) {
        const auto source = render(p, cuda(90), all[i]);
        ASSERT_TRUE(source) << source.error().message;
        const LaunchStep& main = source->steps.back();
        const auto value = [&](const char* v) { return *all[i].find(v); };
        const std::int64_t rows = value("warps") / value("warps_k") * (32 / value("lanes")) * value("rows") * value("passes");
        EXPECT_EQ(main.block.x, 32 * value("warps"));
        EXPECT_GE(main.grid.x * rows, n) << to_string(all[i]);
        EXPECT_LT((main.grid.x - 1) * rows, n) << to_string(all[i]);
        if (std::string_view(name) == "gemv_q8") {
          const bool fused = value("fuse") != 0;
          EXPECT_EQ(source->steps.size(), fused ? 1u : 2u);
          EXPECT_TRUE(main.overlaps_previous);
          EXPECT_EQ(source->workspace_bytes, fused ? 0u : 2u * (4096 / 32) * 40);
          if (!fused) {
            EXPECT_EQ(source->steps[0].grid.x, 2u * (4096 / 32) / 16);
          }
        } else {
          EXPECT_EQ(source->steps.size(), 1u);
          EXPECT_EQ(source->workspace_bytes, 0u);
        }
      }
    }
}

TEST(LaunchGeometry, GemmCoversEveryTileOnce) {
  for (auto [m, n] : {std::pair{3, 777}, {64, 4097}, {129, 1000}, {2048, 14336}}) {
    const Problem p = mul_mat(WeightType::q4_k, Layout::planar, m, n, 4096);
    const auto all = find_family("gemm")->space(p, cuda(80)).enumerate();
    for (std::size_t i = 0; i < all.size(); i += 1 + all.size() / 53) {
      const auto source = render(p, cuda(80), all[i]);
      ASSERT_TRUE(source) << source.error().message;
      const auto value = [&](const char* v) { return *all[i].find(v); };
      const std::int64_t tile_n = 16 * value("frags_n") * value("warps_n"), tile_m = 8 * value("frags_m") * value("warps_m");
      const std::int64_t tiles = ((n + tile_n - 1) / tile_n) * ((m + tile_m - 1) / tile_m) * value("split_k");
      ASSERT_EQ(source->steps.size(), value("split_k") > 1 ? 3u : 2u) << to_string(all[i]);
      EXPECT_EQ(source->steps[0].grid.x, m);
      EXPECT_EQ(source->steps[1].grid.x, tiles) << to_string(all[i]);
      EXPECT_EQ(source->steps[1].block.x, 32 * value("warps_n") * value("warps_m") * value("warps_k"));
      EXPECT_GE(source->steps[1].shared_bytes, value("stages") * tile_m * value("warps_k") * 256);
      if (value("split_k") > 1) {
        EXPECT_GE(source->workspace_bytes, 4u * value("split_k") * m * n);
      }
      EXPECT_EQ(source->accuracy, value("bf16") ? Accuracy::normal : Accuracy::tight);
    }
  }
}

TEST(LaunchGeometry, RoutedGemmHasTilesForAnyIds) {
  for (auto [m, used, experts] : {std::tuple{1, 1, 1}, {33, 8, 128}, {512, 8, 128}, {64, 2, 8}, {5, 8, 2}, {2048, 1, 16}})
    for (bool broadcast : {false, true}) {
      Problem p = mul_mat_id(m, used, experts, WeightType::q4_k);
      p.x_broadcast = broadcast;
      const auto all = find_family("gemm")->space(p, cuda(80)).enumerate();
      for (std::size_t i = 0; i < all.size(); i += 1 + all.size() / 23) {
        const auto source = render(p, cuda(80), all[i]);
        ASSERT_TRUE(source) << source.error().message;
        const auto value = [&](const char* v) { return *all[i].find(v); };
        const std::int64_t tile_n = 16 * value("frags_n") * value("warps_n"), tile_m = 8 * value("frags_m") * value("warps_m");
        const std::int64_t rows = m * used, tiles_n = (p.n + tile_n - 1) / tile_n, x_rows = broadcast ? m : rows;
        EXPECT_EQ(value("split_k"), 1);
        ASSERT_EQ(source->steps.size(), 2u);
        EXPECT_EQ(source->steps[0].grid.x, experts + 1 + x_rows);
        // One expert may have all rows, and each may have one.
        EXPECT_GE(source->steps[1].grid.x, tiles_n * ((rows + tile_m - 1) / tile_m));
        EXPECT_GE(source->steps[1].grid.x, tiles_n * std::min<std::int64_t>(rows, experts));
        EXPECT_LE(source->steps[1].grid.x, tiles_n * (rows / tile_m + experts));
        EXPECT_GE(source->workspace_bytes, std::size_t(x_rows * p.k * 2 + rows * 4));
        EXPECT_GE(source->steps[1].shared_bytes, value("stages") * tile_m * value("warps_k") * 256 + 12 * tile_m);
        expect_launchable(*source, p, cuda(80), all[i]);
      }
    }
}

TEST(LaunchGeometry, WgmmaCoversEveryTileOnce) {
  for (auto [m, n] : {std::pair{33, 777}, {64, 64}, {300, 1000}, {2048, 14336}}) {
    const Problem p = mul_mat(WeightType::q6_k, Layout::planar, m, n, 4096);
    for (const Config& config : find_family("wgmma")->space(p, cuda(90, true)).enumerate()) {
      const auto source = render(p, cuda(90, true), config);
      ASSERT_TRUE(source) << source.error().message;
      const auto value = [&](const char* v) { return *config.find(v); };
      const std::int64_t tile_n = 64 * value("groups"), tile_m = value("tile_m"), tiles_m = (m + tile_m - 1) / tile_m;
      ASSERT_EQ(source->steps.size(), 2u);
      EXPECT_EQ(source->steps[0].grid.x, tiles_m * tile_m);
      EXPECT_EQ(source->steps[1].grid.x, (n + tile_n - 1) / tile_n * tiles_m) << to_string(config);
      EXPECT_EQ(source->steps[1].block.x, 128 * value("groups"));
      EXPECT_EQ(source->steps[1].shared_bytes, value("stages") * tile_m * 256);
      EXPECT_GE(source->workspace_bytes, std::size_t(tiles_m * tile_m * 4096 * 2));
    }
  }
}

TEST(LaunchGeometry, RepackNeedsAWorkspaceOnlyForTilesAbove48KiB) {
  for (auto [k, shared] : {std::pair{4096, true}, {5440, true}, {5472, false}, {28672, false}}) {  // 16 rows of 18-byte blocks
    const Problem p{.op = Op::to_planar, .type = WeightType::q4_0, .layout = Layout::gguf, .n = 100, .k = k, .accuracy = Accuracy::exact};
    const auto source = render(p, cuda(75), default_config(p, cuda(75)));
    ASSERT_TRUE(source) << source.error().message;
    const std::int64_t tile = 16 * row_bytes(p.type, p.k);
    EXPECT_EQ(tile <= 48 * 1024, shared) << k;
    EXPECT_EQ(source->steps[0].grid.x, 7u);
    EXPECT_EQ(source->steps[0].shared_bytes, shared ? tile : 0) << k;
    EXPECT_EQ(source->workspace_bytes, shared ? 0u : std::size_t(7 * tile)) << k;
  }
}

TEST(TargetLimits, AreThoseOfTheArchitecture) {
  EXPECT_EQ(limits_of(cuda(75)).shared_bytes_per_block, 64 * 1024);
  EXPECT_EQ(limits_of(cuda(80)).shared_bytes_per_block, 163 * 1024);
  EXPECT_EQ(limits_of(cuda(86)).shared_bytes_per_block, 99 * 1024);
  EXPECT_EQ(limits_of(cuda(90, true)).shared_bytes_per_block, 227 * 1024);
  EXPECT_EQ(limits_of(cuda(120)).shared_bytes_per_block, 99 * 1024);
  EXPECT_EQ(limits_of(cuda(75)).threads_per_sm, 1024);
  EXPECT_FALSE(limits_of(cuda(75)).tensor_cores_bf16);
  EXPECT_TRUE(limits_of(cuda(80)).tensor_cores_bf16);
  // An architecture that is not known yet is held to the least of the recent ones.
  EXPECT_EQ(limits_of(cuda(130)).shared_bytes_per_block, 99 * 1024);
}

}  // namespace
}  // namespace quern

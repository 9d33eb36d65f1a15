#include "tuner/sweep.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <tuple>

#include "generator/source_text.h"
#include "tests/tuner/gguf_builder.h"
#include "tests/tuner/planted.h"
#include "tuner/random_weights.h"
#include "tuner/read_ceiling.h"

namespace quern {
namespace {

TEST(SweepCases, EveryOpTypeLayoutAndFamilyIsMetWithEdgeShapes) {
  const Target gpu{Target::Kind::cuda, 90, true};
  const auto cases = sweep_cases({}, gpu);
  std::map<std::tuple<Op, WeightType, Layout>, std::set<std::string>> met;
  std::set<std::int64_t> ms, ns;
  std::set<DType> xs, ys;
  bool bias = false, gaps = false, batch = false;
  for (const auto& c : cases) {
    ASSERT_TRUE(validate(c.problem)) << to_string(c.problem);
    if (c.unsupported.empty()) met[{c.problem.op, c.problem.type, c.problem.layout}].insert(c.config.family);
    ms.insert(c.problem.m);
    ns.insert(c.problem.n);
    xs.insert(c.problem.x_type);
    ys.insert(c.problem.y_type);
    bias = bias || c.problem.bias;
    gaps = gaps || c.data.x_gap > 0;
    batch = batch || c.problem.batch2 > 1;
  }
  const CandidateSource candidates = generated_candidates();
  for (const auto& type : kWeightTypes) {
    if (!has_decoder(type.type)) continue;
    for (const Op op : {Op::mul_mat, Op::dequantize, Op::to_planar, Op::to_gguf})
      for (const Layout layout : {Layout::gguf, Layout::planar})
        for (const std::int64_t m : {1, 64}) {
          Problem p;
          p.op = op;
          p.type = type.type;
          p.layout = layout;
          p.m = op == Op::mul_mat ? m : 1;
          p.n = 64;
          p.k = 1024;
          p.accuracy = op == Op::mul_mat ? Accuracy::loose : Accuracy::exact;
          if ((op == Op::to_planar && layout == Layout::planar) || (op == Op::to_gguf && layout == Layout::gguf)) continue;
          for (const Family* f : candidates.families(p, gpu))
            EXPECT_TRUE((met[{op, type.type, layout}].contains(std::string(f->name())))) << to_string(p) << " " << f->name();
        }
  }
  for (const std::int64_t m : {0, 1, 2, 3, 5, 8, 9, 16, 33, 64, 129}) EXPECT_TRUE(ms.contains(m)) << m;
  for (const std::int64_t n : {1, 3, 16, 129, 2049}) EXPECT_TRUE(ns.contains(n)) << n;
  EXPECT_EQ(xs.size(), 3u);
  EXPECT_EQ(ys.size(), 3u);
  EXPECT_TRUE(bias && gaps && batch);
}

TEST(SweepCases, AreTheSameForTheSameSeedAndNarrowedByFilters) {
  const Target host;
  SweepOptions options;
  options.types = {WeightType::q8_0};
  options.ops = {Op::dequantize};
  options.layouts = {Layout::planar};
  const auto one = sweep_cases(options, host), two = sweep_cases(options, host);
  ASSERT_FALSE(one.empty());
  ASSERT_EQ(one.size(), two.size());
  for (std::size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i].problem, two[i].problem);
    EXPECT_EQ(one[i].data, two[i].data);
    EXPECT_EQ(one[i].problem.type, WeightType::q8_0);
    EXPECT_EQ(one[i].problem.layout, Layout::planar);
    EXPECT_EQ(one[i].problem.op, Op::dequantize);
  }
  options.full = true;
  EXPECT_GT(sweep_cases(options, host).size(), one.size());
}

// What the run under the sanitizers relies on.
TEST(SweepCases, EveryNthLeavesOutNoOpTypeLayoutOrFamily) {
  const Target host;
  using Place = std::tuple<Op, WeightType, Layout, std::string>;
  const auto places = [](const std::vector<SweepCase>& cases) {
    std::set<Place> met;
    for (const auto& c : cases) met.insert({c.problem.op, c.problem.type, c.problem.layout, c.config.family});
    return met;
  };
  const auto all = sweep_cases({}, host);
  for (const int every : {8, 1000}) {
    SweepOptions options;
    options.every = every;
    const auto some = sweep_cases(options, host);
    EXPECT_EQ(places(some), places(all)) << every;
    EXPECT_LE(some.size(), all.size() / static_cast<std::size_t>(every) + places(all).size()) << every;
    std::set<std::int64_t> ms;
    for (const auto& c : some) ms.insert(c.problem.m);
    EXPECT_GE(ms.size(), 10u) << every;
  }
}

TEST(SweepCases, TheQuickSweepOfAllTypesSharesAShapeOutBetweenTheLayouts) {
  const Target host;
  SweepOptions options;
  const auto all = sweep_cases(options, host);
  options.types = {WeightType::q5_1};
  const auto named = sweep_cases(options, host);
  std::size_t in_all = 0;
  std::set<std::tuple<std::int64_t, std::int64_t, std::int64_t>> shapes, needed;
  std::set<Layout> layouts;
  for (const auto& c : all)
    if (c.problem.type == WeightType::q5_1 && c.config.family == "generic") {
      ++in_all;
      shapes.insert({c.problem.m, c.problem.n, c.problem.k});
      layouts.insert(c.problem.layout);
    }
  std::size_t in_named = 0;
  for (const auto& c : named)
    if (c.config.family == "generic" && c.problem.n != 35) {
      ++in_named;
      needed.insert({c.problem.m, c.problem.n, c.problem.k});
    }
  EXPECT_EQ(shapes, needed);
  EXPECT_EQ(layouts.size(), 2u);
  EXPECT_EQ(in_all * 2, in_named);
}

TEST(Sweep, ReportsWrongKernelsAndPassesRightOnesOnSeveralMeasurers) {
  using namespace planted;
  const auto device = planted::device();
  const auto compiler = planted::compiler();
  const auto store = cache::Store::open({});
  const auto family = planted::family({kRight}, {10});
  const WorkbenchTools tools{device.get(), compiler.get(), store.get(), source({family.get()}).render};
  Workbench one(tools), two(tools);
  std::vector<SweepCase> cases;
  for (const auto behaviour : {kRight, kHalfOutput, kRight, kWrongElement, kCompileFails})
    cases.push_back({problem(), config(behaviour, 10), {}, {}});
  cases.push_back({problem(), config(kRight, 10), {}, "planted: not offered"});
  std::size_t calls = 0;
  const auto results = sweep(cases, {&one, &two}, nullptr, [&](const SweepResult&) { ++calls; });
  EXPECT_EQ(calls, 6u);
  const SweepTotals t = totals(results);
  EXPECT_EQ(t.passed, 2);
  EXPECT_EQ(t.failed, 3);
  EXPECT_EQ(t.skipped, 1);
  EXPECT_EQ(results[1].verdict, Verdict::incomplete_output);
  EXPECT_EQ(results[3].verdict, Verdict::wrong_output);
  EXPECT_FALSE(results[3].reason.empty());
  EXPECT_EQ(results[5].reason, "planted: not offered");

  const std::string xml = sweep_junit(results, "quern \"sweep\" <host>");
  EXPECT_NE(xml.find("tests=\"6\" failures=\"3\" skipped=\"1\""), std::string::npos) << xml;
  EXPECT_NE(xml.find("name=\"quern &quot;sweep&quot; &lt;host&gt;\""), std::string::npos) << xml;
  EXPECT_NE(xml.find("<failure message=\"incomplete_output: "), std::string::npos) << xml;
}

TEST(Sweep, AStopSkipsTheRest) {
  Workbench idle({});
  std::atomic<bool> stop{true};
  const auto results = sweep({{planted::problem(), planted::config(planted::kRight, 10), {}, {}}}, {&idle}, &stop, {});
  EXPECT_EQ(totals(results).skipped, 1);
}

// A file of one q4_0 matrix [50 x 64] of valid random weights.
std::string model_file(const std::string& path, const std::vector<std::byte>& weights) {
  testing::GgufBuilder builder;
  builder.tensor("blk.0.attn_q.weight", {64, 50}, 2, 0);
  std::string file = builder.head();
  file.append(reinterpret_cast<const char*>(weights.data()), weights.size());
  std::ofstream(path, std::ios::binary) << file;
  return path;
}

TEST(SweepModel, ChecksRowsOfTheModelItselfAndTheSeedDecidesWhich) {
  using namespace planted;
  const auto weights = random_weights(WeightType::q4_0, 50, 64, 99);
  const std::string path = model_file(::testing::TempDir() + "quern_sweep_model.gguf", weights);
  Model model;
  model.matrices = {{WeightType::q4_0, 50, 64, {"blk.0.attn_q.weight"}}};
  SweepOptions options;
  const auto family = planted::family({kRight}, {10});
  options.candidates = source({family.get()});
  options.ops = {Op::mul_mat};
  options.layouts = {Layout::gguf};
  std::set<std::int64_t> places;
  for (options.seed = 1; options.seed < 20; ++options.seed)
    for (const auto& c : sweep_model_cases(path, model, options, Target{}, 8)) {
      EXPECT_EQ(c.problem.n, 8);
      EXPECT_GE(c.data.first_row, 0);
      EXPECT_LE(c.data.first_row, 42);
      places.insert(c.data.first_row);
    }
  EXPECT_GT(places.size(), 5u);

  // Of any expert.
  Model experts = model;
  experts.matrices[0].experts = 3;
  std::set<std::int64_t> met;
  for (options.seed = 1; options.seed < 40; ++options.seed)
    for (const auto& c : sweep_model_cases(path, experts, options, Target{}, 8)) {
      EXPECT_LE(c.data.first_row, 142);
      met.insert(c.data.first_row / 50);
    }
  EXPECT_EQ(met, (std::set<std::int64_t>{0, 1, 2}));

  const auto device = planted::device();
  const auto cases = sweep_model_cases(path, model, options, Target{}, 8);
  ASSERT_EQ(cases.size(), 2u);  // m = 1 and 9
  auto data = BenchData::make(cases[0].problem, *device, cases[0].data);
  ASSERT_TRUE(data) << data.error().message;
  EXPECT_EQ(std::memcmp((*data)->weights().data(), weights.data() + cases[0].data.first_row * 36, 8 * 36), 0);
  DataOptions other = cases[0].data;
  other.tensor = "no.such.tensor";
  EXPECT_FALSE(BenchData::make(cases[0].problem, *device, other));
}

LibraryPaths library_paths() {
  const char* plugin = std::getenv("QUERN_HOST_PLUGIN");
  const char* nvrtc = std::getenv("QUERN_NVRTC");
  LibraryPaths paths;
  paths.host_plugin = plugin != nullptr ? plugin : "";
  paths.nvrtc = nvrtc != nullptr ? nvrtc : "";
  return paths;
}

TEST(ReadCeiling, CompilesForEveryArchitecture) {
  auto compiler = open_nvrtc(library_paths());
  if (!compiler) GTEST_SKIP() << compiler.error().message;
  for (const int sm : {75, 80, 90, 120}) {
    auto binary = (*compiler)->compile(read_ceiling_source(), {Target::Kind::cuda, sm, false});
    ASSERT_TRUE(binary) << sm << ": " << binary.error().message << binary.error().log;
    EXPECT_EQ(binary->usage.spill_bytes, 0) << sm;
  }
}

// A thread stores its fold only when that is one particular word: with zeros elsewhere, the word shows wherever it lies exactly when it was
// read once.
TEST(ReadCeiling, EveryWordIsReadOnceByEveryShape) {
  auto device = open_device("host", library_paths());
  if (!device) GTEST_SKIP() << device.error().message;
  auto compiler = open_host_compiler(library_paths());
  ASSERT_TRUE(compiler) << compiler.error().message;
  const KernelSource source = read_ceiling_source();
  auto binary = (*compiler)->compile(source, (*device)->info().target);
  ASSERT_TRUE(binary) << binary.error().message;
  auto kernel = LoadedKernel::load(**device, source, *binary);
  ASSERT_TRUE(kernel) << kernel.error().message;
  constexpr std::size_t kWords = 4 * 4096 + 4 * 7;
  for (std::size_t step = 0; step < source.steps.size(); ++step)
    for (const std::size_t at : {std::size_t{0}, std::size_t{1}, kWords / 2 + 3, kWords - 1}) {
      std::vector<std::uint32_t> words(kWords, 0);
      words[at] = 0x9E3779B9u;
      std::uint32_t result[4] = {};
      KernelArgs args{};
      args.w = words.data();
      args.y = result;
      args.n = kWords * 4;
      args.m = 2 * static_cast<long long>(source.steps[step].block.x);
      Launch launch = (*kernel)->launches(args)[step];
      launch.step.grid.x = 2;
      ASSERT_TRUE((*device)->launch(launch.function, launch.step, launch.args, nullptr));
      EXPECT_EQ(result[0], 0x9E3779B9u) << source.steps[step].entry << " word " << at;
    }
}

// The plugin, the templates, the oracle and the checks together, on the simplest family of each op; the command's sweep covers the rest.
TEST(Sweep, HostTargetPassesForTheSimplestFamilies) {
  const LibraryPaths paths = library_paths();
  auto device = open_device("host", paths);
  if (!device) GTEST_SKIP() << device.error().message;
  auto compiler = open_host_compiler(paths);
  ASSERT_TRUE(compiler) << compiler.error().message;
  const auto store = cache::Store::open({});
  Workbench bench({device->get(), compiler->get(), store.get(), generated_candidates().render});
  SweepOptions options;
  options.types = {WeightType::q6_k};
  options.families = {"generic", "dequantize", "repack"};
  const auto cases = sweep_cases(options, (*device)->info().target);
  const auto results = sweep(cases, {&bench}, nullptr, [](const SweepResult& r) {
    EXPECT_NE(r.outcome, SweepResult::Outcome::failed)
        << to_string(r.at.problem) << " " << to_string(r.at.config) << ": " << to_string(r.verdict) << " " << r.reason;
  });
  EXPECT_GT(totals(results).passed, 30);
}

}  // namespace
}  // namespace quern

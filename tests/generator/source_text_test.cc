#include "generator/source_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "generator/family.h"
#include "templates/embedded.h"
#include "tests/generator/problem_grid.h"

namespace quern {
namespace {

const Problem kProblem = test::mul_mat(WeightType::q4_0, Layout::planar, 1, 64, 256);

TEST(ConfigReader, GivesValuesByNameInAnyOrder) {
  const Config config{"f", {{"a", 1}, {"b", 2}}};
  ConfigReader reader(config);
  EXPECT_EQ(reader.take("b"), 2);
  EXPECT_EQ(reader.take("a"), 1);
  EXPECT_TRUE(reader.finish());
}

TEST(ConfigReader, AnUnknownNameIsAnErrorThatNamesIt) {
  const Config config{"f", {{"a", 1}}};
  ConfigReader reader(config);
  reader.take("a");
  reader.take("lanes");
  const Status status = reader.finish();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(status.error().message, "config f:a=1: needs parameter 'lanes'");
}

TEST(ConfigReader, AnUnusedValueIsAnErrorThatNamesIt) {
  const Config config{"f", {{"a", 1}, {"b", 2}}};
  ConfigReader reader(config);
  reader.take("a");
  const Status status = reader.finish();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "config f:a=1,b=2: parameter 'b' is not used by the family");
}

TEST(SourceText, WritesIncludesTypesConstantsAndEntries) {
  Problem p = kProblem;
  p.x_type = DType::f16, p.y_type = DType::bf16, p.bias = true, p.layout = Layout::gguf;
  SourceText text("probe", p);
  text.include("families/generic.cuh").problem_types().geometry("GemvGeometry", {{"k", 256}, {"m", 1}});
  LaunchStep step{"quern_probe", {7}, {96}};
  text.kernel(step, 2, "body(args);");
  const KernelSource source = std::move(text).finish(512, Accuracy::tight);
  EXPECT_EQ(source.text, R"(#include "families/generic.cuh"
#include "decode/q4_0.cuh"
#include "families/element.cuh"
#include "families/matrices.cuh"

namespace {
using Weight = quern::decode::q4_0;
using Layout = quern::GgufLayout;
using X = quern::f16;
using Y = quern::bf16;
using In = quern::Input<X, false>;
using Out = quern::Output<Y, true, false>;
using Matrices = quern::BatchMatrices<X, Y>;
constexpr quern::GemvGeometry kGeometry{.k = 256, .m = 1};
}  // namespace

QUERN_KERNEL(quern_probe, 96, 2)(QUERN_GRID_CONSTANT quern::KernelArgs args) {
  quern::ptx::wait_previous();
  quern::ptx::allow_next();
  body(args);
}
)");
  EXPECT_EQ(source.name, "probe_q4_0");
  step.overlaps_previous = true;
  EXPECT_EQ(source.steps, std::vector<LaunchStep>{step});
  EXPECT_EQ(source.workspace_bytes, 512u);
  EXPECT_EQ(source.accuracy, Accuracy::tight);
}

TEST(SourceText, OfSeveralStepsALaterOneMayWaitInItsBody) {
  SourceText text("probe", kProblem);
  text.kernel({"quern_first", {7}, {96}}, 1, "first(args);");
  text.kernel({"quern_second", {7}, {96}}, 1, "second(args);", SourceText::Wait::in_body);
  text.kernel({"quern_third", {7}, {96}}, 1, "third(args);");
  const KernelSource source = std::move(text).finish(0, Accuracy::tight);
  for (const auto& step : source.steps) EXPECT_TRUE(step.overlaps_previous) << step.entry;
  EXPECT_NE(source.text.find("{\n  quern::ptx::wait_previous();\n  quern::ptx::allow_next();\n  first(args);\n}"), std::string::npos);
  EXPECT_NE(source.text.find("{\n  second(args);\n}"), std::string::npos);
  EXPECT_NE(source.text.find("{\n  quern::ptx::wait_previous();\n  quern::ptx::allow_next();\n  third(args);\n}"), std::string::npos);
}

TEST(SourceText, TheFirstStepWaitsAtItsEntryWhateverIsAskedFor) {
  SourceText text("probe", kProblem);
  text.kernel({"quern_first", {7}, {96}}, 1, "first(args);", SourceText::Wait::in_body);
  const KernelSource source = std::move(text).finish(0, Accuracy::tight);
  EXPECT_NE(source.text.find("{\n  quern::ptx::wait_previous();\n  quern::ptx::allow_next();\n  first(args);\n}"), std::string::npos);
}

std::set<std::string> header_names(const KernelSource& source) {
  std::set<std::string> names;
  for (const auto& header : source.headers) names.insert(header.name);
  return names;
}

TEST(SourceText, HeadersAreThoseThatTheTextReachesSortedByName) {
  for (const Target& target : {test::cuda(90, true), Target{}})
    for (std::int64_t m : {1, 64}) {
      Problem p = kProblem;
      p.m = m;
      for (const Family* family : families_for(p, target)) {
        const auto source = render(p, target, family->space(p, target).default_config());
        ASSERT_TRUE(source) << source.error().message;
        EXPECT_TRUE(std::is_sorted(source->headers.begin(), source->headers.end(),
                                   [](const SourceHeader& a, const SourceHeader& b) { return a.name < b.name; }));
        const auto names = header_names(*source);
        EXPECT_EQ(names.size(), source->headers.size());
        EXPECT_TRUE(names.contains("decode/q4_0.cuh"));
        EXPECT_TRUE(names.contains("ptx/ptx.cuh"));
        EXPECT_TRUE(names.contains("quern/weight_types.def"));
        // What another type or family needs would make every kernel's key depend on it.
        EXPECT_FALSE(names.contains("decode/q6_k.cuh")) << family->name();
        EXPECT_EQ(names.contains("families/wgmma.cuh"), family->name() == "wgmma") << family->name();
        EXPECT_EQ(names.contains("families/gemv_q8.cuh"), family->name() == "gemv_q8") << family->name();
        // Every header is the embedded file, and every name that a header includes is there.
        for (const auto& header : source->headers) {
          const auto files = embedded_files();
          const auto file = std::find_if(files.begin(), files.end(), [&](const auto& f) { return f.name == header.name; });
          ASSERT_NE(file, files.end()) << header.name;
          EXPECT_EQ(header.text, file->text);
          for (std::size_t at = header.text.find("\n#include \""); at != std::string::npos;
               at = header.text.find("\n#include \"", at + 1)) {
            const std::size_t start = at + 11;
            EXPECT_TRUE(names.contains(header.text.substr(start, header.text.find('"', start) - start))) << header.name;
          }
        }
      }
    }
}

TEST(SourceText, RenderingIsAFunctionOfProblemTargetAndConfig) {
  for (const Family* family : families_for(kProblem, Target{})) {
    const Config config = family->space(kProblem, Target{}).default_config();
    const auto one = render(kProblem, Target{}, config), two = render(kProblem, Target{}, config);
    ASSERT_TRUE(one && two);
    EXPECT_EQ(one->text, two->text);
    EXPECT_EQ(one->headers, two->headers);
    EXPECT_EQ(one->options, two->options);
    EXPECT_EQ(one->steps, two->steps);
  }
}

TEST(HasDecoder, IsTrueForTheTypesThatAreComputedWith) {
  for (WeightType type : {WeightType::f32, WeightType::f16, WeightType::bf16, WeightType::q4_0, WeightType::q5_0, WeightType::q8_0,
                          WeightType::q4_k, WeightType::q6_k})
    EXPECT_TRUE(has_decoder(type)) << to_string(type);
  for (const auto& file : embedded_files()) {
    if (!file.name.starts_with("decode/q")) continue;
    const auto name = file.name.substr(7, file.name.size() - 7 - 4);
    EXPECT_TRUE(weight_type_from_name(name)) << file.name << " is no type's decoder";
  }
}

}  // namespace
}  // namespace quern

#include "runtime/artifact.h"

#include <gtest/gtest.h>

#include <set>

#include "fakes.h"

namespace quern::test {
namespace {

KernelSource base() {
  KernelSource source;
  source.name = "gemv q4_0";
  source.text = "kernel";
  source.headers = {{"a.cuh", "one"}, {"b.cuh", "two"}};
  source.options = {"-DX=1"};
  source.steps = {{.entry = "k"}};
  return source;
}

constexpr Target kSm80{Target::Kind::cuda, 80, false};
constexpr Target kSm90{Target::Kind::cuda, 90, false};
constexpr Target kSm90a{Target::Kind::cuda, 90, true};

// Field case 32: whatever decides the binary must decide the key.
TEST(ArtifactKey, DiffersWithEveryFieldThatDecidesTheBinary) {
  std::vector<cache::Key> keys = {artifact_key(base(), kSm90, "nvrtc 13.0", "1").key};
  const auto with = [&](auto change) {
    KernelSource source = base();
    change(source);
    keys.push_back(artifact_key(source, kSm90, "nvrtc 13.0", "1").key);
  };
  with([](KernelSource& s) { s.text = "kernel "; });
  with([](KernelSource& s) { s.headers[0].text = "changed"; });
  with([](KernelSource& s) { s.headers[0].name = "c.cuh"; });
  with([](KernelSource& s) { std::swap(s.headers[0], s.headers[1]); });
  with([](KernelSource& s) { s.headers.pop_back(); });
  with([](KernelSource& s) { s.headers[0].name = "a.cuhone", s.headers[0].text = ""; });
  with([](KernelSource& s) { s.options[0] = "-DX=2"; });
  with([](KernelSource& s) { s.options.push_back("-DY"); });
  with([](KernelSource& s) { s.options.clear(); });
  for (const auto& target : {kSm80, kSm90a, Target{}}) keys.push_back(artifact_key(base(), target, "nvrtc 13.0", "1").key);
  keys.push_back(artifact_key(base(), kSm90, "nvrtc 12.9", "1").key);
  keys.push_back(artifact_key(base(), kSm90, "nvrtc 13.0", "2").key);
  EXPECT_EQ(std::set(keys.begin(), keys.end()).size(), keys.size());
}

TEST(ArtifactKey, IgnoresWhatDecidesNothing) {
  KernelSource other = base();
  other.name = "another name", other.workspace_bytes = 7, other.steps.clear();
  EXPECT_EQ(artifact_key(other, kSm90, "c", "1").key, artifact_key(base(), kSm90, "c", "1").key);
}

// Field case 32: every field of the problem reaches the key through the rendered source.
TEST(ArtifactKey, DiffersWithEveryFieldOfTheProblem) {
  const Problem problem{.type = WeightType::q4_0, .m = 2, .n = 64, .k = 256, .batch2 = 2, .batch3 = 2};
  std::vector<Problem> problems(15, problem);
  problems[1].op = Op::dequantize;
  problems[2].type = WeightType::q8_0;
  problems[3].layout = Layout::gguf;
  problems[4].m = 3;
  problems[5].n = 65;
  problems[6].k = 512;
  problems[7].x_type = DType::f16;
  problems[8].y_type = DType::bf16;
  problems[9].bias = true;
  problems[10].accuracy = Accuracy::loose;
  problems[11].batch2 = 4;
  problems[12].batch3 = 4;
  problems[13].ratio2 = 2;
  problems[14].ratio3 = 2;
  std::set<cache::Key> keys;
  std::set<std::string> tunings;
  for (const auto& p : problems) {
    keys.insert(artifact_key(*fake_render(p, kSm90, plain_config()), kSm90, "c").key);
    tunings.insert(to_string(p));
  }
  EXPECT_EQ(keys.size(), problems.size());
  EXPECT_EQ(tunings.size(), problems.size()) << "the tuning key is the problem's text";
}

TEST(GetOrCompile, CompilesOnceThenAnswersFromTheStore) {
  FakeStore store;
  FakeCompiler compiler;
  bool compiled = false;
  const auto first = get_or_compile(store, compiler, base(), kSm90, &compiled);
  ASSERT_TRUE(first);
  EXPECT_TRUE(compiled);
  const auto second = get_or_compile(store, compiler, base(), kSm90, &compiled);
  ASSERT_TRUE(second);
  EXPECT_FALSE(compiled);
  EXPECT_EQ(compiler.compiles, 1);
  EXPECT_EQ(second->bytes, first->bytes);
  EXPECT_EQ(second->usage, first->usage);
  EXPECT_EQ(second->log, "fine");
}

// Field case 29.
TEST(GetOrCompile, KeepsTwoArchitecturesSideBySide) {
  FakeStore store;
  FakeCompiler compiler;
  bool compiled = false;
  ASSERT_TRUE(get_or_compile(store, compiler, base(), kSm80));
  ASSERT_TRUE(get_or_compile(store, compiler, base(), kSm90));
  EXPECT_EQ(store.artifacts.size(), 2u);
  for (const auto& target : {kSm80, kSm90}) {
    ASSERT_TRUE(get_or_compile(store, compiler, base(), target, &compiled));
    EXPECT_FALSE(compiled) << to_string(target);
    EXPECT_EQ(store.artifacts.at(artifact_key(base(), target, compiler.identity()).key).target, to_string(target));
  }
}

TEST(GetOrCompile, StoresNothingOfAFailedCompile) {
  FakeStore store;
  FakeCompiler compiler;
  compiler.refused.insert(base().text);
  const auto binary = get_or_compile(store, compiler, base(), kSm90);
  ASSERT_FALSE(binary);
  EXPECT_EQ(binary.error().code, ErrorCode::kCompileFailed);
  EXPECT_EQ(binary.error().log, "line 1: the whole log");
  EXPECT_TRUE(store.artifacts.empty());
}

TEST(GetOrCompile, CompilesWhenTheStoreFails) {
  FakeStore store;
  store.failing = true;
  FakeCompiler compiler;
  bool compiled = false;
  EXPECT_TRUE(get_or_compile(store, compiler, base(), kSm90, &compiled));
  EXPECT_TRUE(get_or_compile(store, compiler, base(), kSm90, &compiled));
  EXPECT_TRUE(compiled);
  EXPECT_EQ(compiler.compiles, 2);
}

TEST(GetOrCompile, TreatsAFormatOfTheFutureAsAMiss) {
  FakeStore store;
  FakeCompiler compiler;
  ASSERT_TRUE(get_or_compile(store, compiler, base(), kSm90));
  store.artifacts.begin()->second.format = "quantum";
  bool compiled = false;
  ASSERT_TRUE(get_or_compile(store, compiler, base(), kSm90, &compiled));
  EXPECT_TRUE(compiled);
}

TEST(ToBinary, ReadsWhatToArtifactWrote) {
  Binary binary{.format = Binary::Format::ptx, .bytes = {std::byte{1}}, .usage = {1, 2, 3, 4}, .log = "log", .compile_ms = 5};
  const auto back = to_binary(to_artifact(binary, base(), kSm90, "c", "dump"));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->format, binary.format);
  EXPECT_EQ(back->bytes, binary.bytes);
  EXPECT_EQ(back->usage, binary.usage);
  EXPECT_EQ(back->log, binary.log);
  EXPECT_EQ(back->compile_ms, binary.compile_ms);
}

TEST(ToBinary, ReadsMalformedUsageAsUnknown) {
  auto artifact = to_artifact({}, base(), kSm90, "c", "");
  for (const char* text : {"", "{", "[]", "{\"registers\":\"many\"}", "null"}) {
    artifact.usage_json = text;
    const auto binary = to_binary(artifact);
    ASSERT_TRUE(binary) << text;
    EXPECT_EQ(binary->usage, ResourceUsage{}) << text;
  }
}

TEST(CompileTarget, FallsBackToThePortableArchitecture) {
  FakeCompiler compiler;
  compiler.newest_exact = 90;
  EXPECT_EQ(to_string(compile_target(compiler, {Target::Kind::cuda, 90, true})), "sm_90a");
  EXPECT_EQ(to_string(compile_target(compiler, {Target::Kind::cuda, 130, true})), "sm_130");
}

}  // namespace
}  // namespace quern::test

// What each sub-command does, seen from outside.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "command_run.h"

namespace quern::tools {
namespace {

using Json = nlohmann::json;

// One object on one line, nothing else.
Json object_of(const Outcome& run) {
  EXPECT_EQ(std::count(run.out.begin(), run.out.end(), '\n'), 1) << run.out;
  return Json::parse(run.out, nullptr, false);
}

TEST_F(CommandTest, HelpAndVersionAreNoErrors) {
  EXPECT_EQ(quern("--help").exit_code, 0);
  EXPECT_EQ(quern("tune --help").exit_code, 0);
  EXPECT_EQ(quern("--version").out.rfind("quern ", 0), 0u);
  EXPECT_EQ(quern("--help").out.find("__worker"), std::string::npos);
}

TEST_F(CommandTest, DoctorSaysWhatIsMissingAndThatNothingWorks) {
  const Outcome run = quern("doctor --json", "QUERN_NVRTC=/none/nvrtc QUERN_HOST_PLUGIN=/none/plugin QUERN_CUDA_DRIVER=/none/driver");
  EXPECT_EQ(run.exit_code, 3);
  const Json report = object_of(run);
  EXPECT_EQ(report["works"], Json::array());
  EXPECT_NE(report["nvrtc"]["reason"].get<std::string>().find("/none/nvrtc"), std::string::npos);
  EXPECT_NE(report["host"]["reason"].get<std::string>().find("/none/plugin"), std::string::npos);
  EXPECT_NE(report["no_device"].get<std::string>().find("/none/driver"), std::string::npos);
}

TEST_F(CommandTest, DoctorNamesTheStore) {
  const Json report = object_of(quern("doctor --json"));
  EXPECT_EQ(report["store"]["directory"], store_);
  EXPECT_EQ(report["store"]["state"], "empty");
}

TEST_F(CommandTest, ListPrintsTheModelsProblemsAndTheListTunesLikeTheModel) {
  const Outcome list = quern("tune " + model() + " --list --m 1,8");
  ASSERT_EQ(list.exit_code, 0) << list.err;
  const Json problems = Json::parse(list.out, nullptr, false);
  ASSERT_TRUE(problems.is_array());
  EXPECT_EQ(problems.size(), 10u);  // five matrices, two row counts
  EXPECT_NE(list.err.find("skipped"), std::string::npos);
  const Outcome again = quern("tune " + file("list.json", list.out) + " --list");
  EXPECT_EQ(again.out, list.out);
  EXPECT_TRUE(store_contents().empty());
}

TEST_F(CommandTest, ExplainNamesAConfigAndEveryFamily) {
  const Outcome run = quern("explain mul_mat q4_0 m=1 n=4096 k=4096 --arch sm_90a --json");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json answer = object_of(run);
  EXPECT_EQ(answer["provenance"], "default");
  EXPECT_FALSE(answer["config"].get<std::string>().empty());
  EXPECT_EQ(answer["entries"].size(), answer["launches"].get<std::size_t>());
  bool generic = false;
  for (const auto& family : answer["families"]) {
    EXPECT_NE(family["applies"].get<bool>(), !family["reason"].get<std::string>().empty()) << family;
    generic = generic || (family["family"] == "generic" && family["candidates"] > 0);
  }
  EXPECT_TRUE(generic) << answer;
}

TEST_F(CommandTest, ExplainNamesWhatItWouldLaunch) {
  const std::string gemv = "explain mul_mat q4_0 m=1 n=4096 k=4096 --arch sm_90a",
                    gemm = "explain mul_mat q4_0 m=512 n=4096 k=4096 --arch sm_80";
  EXPECT_EQ(object_of(quern(gemv + " --json"))["entries"], Json::array({"quern_prepare", "quern_gemv"}));
  EXPECT_EQ(object_of(quern(gemm + " --json"))["entries"], Json::array({"quern_prepare", "quern_gemm"}));
  EXPECT_NE(quern(gemv).out.find("\nentries   quern_prepare quern_gemv\n"), std::string::npos);
}

TEST_F(CommandTest, CompileFillsTheStoreWithoutAGpuAndASecondRunCompilesNothing) {
  if (!works("compile-only")) GTEST_SKIP() << "no NVRTC here";
  const std::string arguments =
      "compile " + file("p.json", R"([{"op":"mul_mat","type":"q4_0","n":64,"k":256,"m":1}])") + " --arch sm_80,sm_90a --json";
  const Json first = object_of(quern(arguments));
  EXPECT_EQ(first["compiled"], 2);
  EXPECT_EQ(first["failed"], 0);
  const Json second = object_of(quern(arguments));
  EXPECT_EQ(second["compiled"], 0);
  EXPECT_EQ(second["from_store"], 2);

  const Json listed = object_of(quern("cache ls --json"));
  ASSERT_EQ(listed["artifacts"].size(), 2u);
  const std::string key = listed["artifacts"][0]["key"];
  const Json shown = object_of(quern("cache show " + key.substr(0, 10) + " --json"));
  EXPECT_EQ(shown["artifacts"][0]["key"], key);
  EXPECT_EQ(shown["artifacts"][0]["intact"], true);
}

TEST_F(CommandTest, AStoreTravelsByExportAndImport) {
  if (!works("compile-only")) GTEST_SKIP() << "no NVRTC here";
  ASSERT_EQ(quern("compile " + file("p.json", R"([{"op":"dequantize","type":"q8_0","n":64,"k":256}])") + " --arch sm_80").exit_code, 0);
  ASSERT_EQ(quern("cache export moved.sqlite").exit_code, 0);
  EXPECT_NE(quern("cache export moved.sqlite").exit_code, 0);  // never over an existing file
  const std::string first = store_;
  store_ = directory_ + "/other";
  EXPECT_EQ(object_of(quern("cache import moved.sqlite --json"))["artifacts"], 1);
  EXPECT_EQ(object_of(quern("cache verify --json"))["bad"], Json::array());
  EXPECT_EQ(object_of(quern("cache ls --json"))["artifacts"].size(), 1u);
  EXPECT_EQ(object_of(quern("cache gc --max-size 1B --json"))["bytes_after"], 0);
  store_ = first;
  EXPECT_EQ(object_of(quern("cache gc --max-size 0 --json"))["bytes_after"], 0);  // nothing may stay, which is not the default
}

TEST_F(CommandTest, ASecondTuneOfTheSameProblemIsServedFromTheStore) {
  if (!works("host")) GTEST_SKIP() << "no host target here";
  const std::string arguments = "tune " + file("p.json", R"([{"op":"dequantize","type":"q8_0","n":16,"k":64}])") + " --device host --json";
  const Outcome run = quern(arguments);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json first = object_of(run)["problems"][0];
  EXPECT_GT(first["tried"], 0);
  EXPECT_FALSE(first["from_store"].get<bool>());
  const Json again = object_of(quern(arguments));
  EXPECT_EQ(again["compiled"], 0);
  EXPECT_EQ(again["problems"][0]["tried"], 0);
  EXPECT_TRUE(again["problems"][0]["from_store"].get<bool>());
  EXPECT_EQ(again["problems"][0]["winner"], first["winner"]);
  const Json explained = object_of(quern("explain dequantize q8_0 n=16 k=64 class=exact --device host --json"));
  EXPECT_EQ(explained["provenance"], "exact");
  EXPECT_EQ(explained["config"], first["winner"]);
}

TEST_F(CommandTest, AnInterruptedTuneEndsSoonSaysSoAndLeavesASoundStore) {
  if (!works("host")) GTEST_SKIP() << "no host target here";
  const std::string tune = "env QUERN_CACHE_DIR='" + store_ + "' \"$QUERN_COMMAND\" tune '" + model() + "' --device host --m 1,8,64";
  const Outcome run = shell("{ " + tune + " & p=$!; sleep 3; kill -INT $p; wait $p; }");
  EXPECT_EQ(run.exit_code, 1) << run.err;
  EXPECT_NE(run.err.find("quern: interrupted"), std::string::npos) << run.err;
  EXPECT_EQ(object_of(quern("cache verify --json"))["bad"], Json::array());
}

TEST_F(CommandTest, TheSweepPassesOnTheHostAndWritesItsReport) {
  if (!works("host")) GTEST_SKIP() << "no host target here";
  const Outcome run = quern("sweep --device host --quick --op dequantize --type q4_0 --json --junit report.xml");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json report = object_of(run);
  EXPECT_GT(report["passed"], 0);
  EXPECT_EQ(report["failed"], 0);
  EXPECT_EQ(report["cases"].size(), report["passed"].get<std::size_t>() + report["skipped"].get<std::size_t>());
  EXPECT_TRUE(std::filesystem::exists(directory_ + "/report.xml"));
}

TEST_F(CommandTest, BenchOnTheHostLeavesOutWhatItDidNotMeasure) {
  if (!works("host")) GTEST_SKIP() << "no host target here";
  const Outcome run = quern("bench --device host --type q8_0 --shape 32,64 --m 1 --json");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json report = object_of(run);
  ASSERT_EQ(report["rows"].size(), 1u);
  EXPECT_GT(report["rows"][0]["us"], 0);
  EXPECT_EQ(report["rows"][0]["read_ceiling_us"], nullptr);
  EXPECT_EQ(report["rows"][0]["bf16_us"], nullptr);
  EXPECT_EQ(report["second_process"]["compile_count"], 0);
}

}  // namespace
}  // namespace quern::tools

// What each sub-command does, seen from outside.
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

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

TEST_F(CommandTest, ExplainsAProblemInEveryForm) {
  const std::string words = object_of(quern("explain mul_mat q4_0 m=1 n=64 k=32 --arch sm_90a --json"))["problem"];
  for (const char* form : {"explain 'mul_mat q4_0 m=1 n=64 k=32'", "explain 'mul_mat q4_0' m=1 'n=64 k=32'",
                           "explain '{\"op\": \"mul_mat\", \"type\": \"q4_0\", \"m\": 1, \"n\": 64, \"k\": 32}'",
                           "explain '[{\"op\": \"mul_mat\", \"type\": \"q4_0\", \"m\": 1, \"n\": 64, \"k\": 32}]'"})
    EXPECT_EQ(object_of(quern(std::string(form) + " --arch sm_90a --json"))["problem"], words) << form;
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

TEST_F(CommandTest, ASweepOfAModelIsThinnedOutToo) {
  if (!works("host")) GTEST_SKIP() << "no host target here";
  const Json report = object_of(quern("sweep --model '" + model() + "' --device host --rows 2 --every 50 --json"));
  EXPECT_EQ(report["failed"], 0);
  EXPECT_GE(report["cases"].size(), 1u);
  EXPECT_LE(report["cases"].size(), 20u);
}

// timeout(1) signals the process, and then its group: the second signal once ended the sweep, and what it had found was lost.
TEST_F(CommandTest, ASweepThatIsToldToEndTwiceAtOnceStillReports) {
  if (!works("host")) GTEST_SKIP() << "no host target here";
  const std::string sweep =
      "env QUERN_CACHE_DIR='" + store_ + "' \"$QUERN_COMMAND\" sweep --device host --full --op mul_mat --type q4_0 --json";
  // Started in a shell of its own, the command would ignore SIGINT: SIGTERM it is.
  const Outcome run = shell("{ " + sweep + " & p=$!; sleep 4; for i in 1 2 3 4 5; do kill -TERM $p 2>&-; sleep 0.003; done; wait $p; }");
  EXPECT_EQ(run.exit_code, 1) << run.err;
  EXPECT_NE(run.err.find("quern: interrupted"), std::string::npos) << run.err;
  const Json report = object_of(run);
  EXPECT_EQ(report["failed"], 0);
  EXPECT_EQ(report["cases"].size(), report["passed"].get<std::size_t>() + report["skipped"].get<std::size_t>());
}

TEST_F(CommandTest, TheSweepPassesOnTheHostAndWritesItsReport) {
  if (!works("host")) GTEST_SKIP() << "no host target here";
  const Outcome run = quern("sweep --device host --quick --op dequantize --type q4_0 --json --junit report.xml");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  // The store is one file again when the last worker is gone, for people who copy it.
  for (const auto& [file, contents] : store_contents())
    EXPECT_FALSE(file.ends_with("-wal")) << file << " of " << contents.size() << " bytes";
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
  EXPECT_EQ(report["rows"][0]["y_dtype"], "f32");
  EXPECT_EQ(report["rows"][0]["quantize_us"], nullptr);
  EXPECT_EQ(report["rows"][0]["over_m1"], nullptr);
}

TEST_F(CommandTest, BenchOfIntegerRowsShowsTheQuantizerApart) {
  if (!works("host")) GTEST_SKIP() << "no host target here";
  const std::string arguments = "bench --device host --op matmul_int8_rows --type i8 --shape 33,64 --m 1,8";
  const Outcome run = quern(arguments + " --json");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json rows = object_of(run)["rows"];
  ASSERT_EQ(rows.size(), 2u);
  for (const Json& row : rows) {
    EXPECT_EQ(row["verdict"], "ok");
    EXPECT_EQ(row["y_dtype"], "bf16");
    EXPECT_EQ(row["class"], "exact");
    EXPECT_EQ(row["bytes"], 33 * 64);
    EXPECT_GT(row["quantize_us"], 0);
    EXPECT_NE(row["quantize_us"], row["us"]);
    EXPECT_EQ(row["quantize_config"].get<std::string>().substr(0, 14), "quantize_rows:");
    EXPECT_EQ(row["sum_us"].get<double>(), row["us"].get<double>() + row["quantize_us"].get<double>());
  }
  EXPECT_EQ(rows[0]["over_m1"], nullptr);
  EXPECT_EQ(rows[1]["over_m1"].get<double>(), rows[1]["us"].get<double>() / rows[0]["us"].get<double>());
  const std::string table = quern(arguments + " --y-dtype f32").out;
  for (const char* column : {" of m=1 ", " quantize ", " sum "}) EXPECT_NE(table.find(column), std::string::npos) << table;
  EXPECT_EQ(table.find("y=bf16"), std::string::npos) << table;
  EXPECT_EQ(quern("bench --device host --type q8_0 --shape 32,64 --m 1").out.find(" quantize "), std::string::npos);
}

TEST_F(CommandTest, BenchOfAQuantizerHasNoWeights) {
  if (!works("host")) GTEST_SKIP() << "no host target here";
  const Outcome run = quern("bench --device host --op quantize_rows_int8 --shape 33,64 --m 8 --layout planar,gguf --json");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json rows = object_of(run)["rows"];
  ASSERT_EQ(rows.size(), 1u) << "codes have one layout";
  EXPECT_EQ(rows[0]["type"], "i8");
  EXPECT_EQ(rows[0]["x_dtype"], "bf16");
  EXPECT_EQ(rows[0]["n"], 0);
  EXPECT_EQ(rows[0]["bytes"], 0);
  EXPECT_GT(rows[0]["us"], 0);
  EXPECT_EQ(rows[0]["quantize_us"], nullptr);
}

// Whether a family answers w4a4 or its quantizer here decides what is in the row, not whether there is one.
TEST_F(CommandTest, BenchOfPackedCodesIsWhatTheFamiliesAnswer) {
  if (!works("host")) GTEST_SKIP() << "no host target here";
  const bool product = quern("explain w4a4 code4 m=8 n=32 k=192 y=bf16 --device host").exit_code == 0;
  const bool quantizer = quern("explain rpbh_quantize code4 m=8 n=0 k=192 x=bf16 block=64 --device host").exit_code == 0;
  const Outcome run = quern("bench --device host --op w4a4 --shape 32,192 --m 8 --json");
  EXPECT_EQ(run.exit_code, product ? 0 : 1) << run.err;
  const Json row = object_of(run)["rows"][0];
  EXPECT_EQ(row["type"], "code4");
  EXPECT_EQ(row["bytes"], 32 * 192 / 2);
  EXPECT_EQ(row["us"].is_null(), !product) << row;
  EXPECT_EQ(row["quantize_us"].is_null(), !(product && quantizer)) << row;
}

TEST_F(CommandTest, BenchShowsEveryFamilyWithItsBestConfig) {
  if (!works("host")) GTEST_SKIP() << "no host target here";
  ASSERT_EQ(quern("tune " + file("p.json", R"([{"op":"dequantize","type":"q8_0","n":16,"k":64}])") + " --device host").exit_code, 0);
  const Outcome tuned = quern("bench --device host --op dequantize --type q8_0 --shape 16,64 --every-family --json");
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  EXPECT_EQ(object_of(tuned)["rows"][0]["provenance"], "exact");

  const Outcome run = quern("bench --device host --type q8_0 --shape 32,64 --m 1,8 --every-family --json");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  std::map<std::int64_t, std::set<std::string>> families;
  const Json rows = object_of(run)["rows"];
  for (const Json& row : rows) {
    EXPECT_TRUE(families[row["m"]].insert(row["family"]).second) << "twice: " << row;
    EXPECT_EQ(row["config"].get<std::string>().rfind(row["family"].get<std::string>() + ":", 0), 0u);
    EXPECT_EQ(row["provenance"], "default");
    EXPECT_EQ(row["over_m1"].is_null(), row["m"] == 1 || !families[1].contains(row["family"])) << row;
  }
  for (const std::int64_t m : {1, 8}) {
    std::set<std::string> supported;
    const Json explained = object_of(quern("explain mul_mat q8_0 n=32 k=64 m=" + std::to_string(m) + " --device host --json"));
    for (const Json& family : explained["families"])
      if (family["applies"]) supported.insert(family["family"]);
    EXPECT_EQ(families[m], supported);
    EXPECT_GT(supported.size(), 2u);
  }
}

// What a config leaves out is the family's default's; one that cannot be is a row that says why.
TEST_F(CommandTest, BenchTimesTheConfigsItIsGiven) {
  if (!works("host")) GTEST_SKIP() << "no host target here";
  const Outcome run =
      quern("bench --device host --type q8_0 --shape 32,64 --m 1 --config generic --config generic:threads=64 --config int8_dot --json");
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_NE(run.err.find("needed matmul_int8_rows"), std::string::npos) << run.err;
  const Json rows = object_of(run)["rows"];
  ASSERT_EQ(rows.size(), 3u);
  const Json explained = object_of(quern("explain mul_mat q8_0 n=32 k=64 m=1 --device host --json"));
  EXPECT_NE(rows[0]["config"], "generic");
  EXPECT_EQ(rows[0]["verdict"], "ok");
  EXPECT_EQ(rows[0]["default_config"], explained["config"]);
  EXPECT_EQ(rows[1]["config"], "generic:threads=64");
  EXPECT_EQ(rows[1]["verdict"], "ok");
  EXPECT_EQ(rows[2]["verdict"], "rejected");
  for (const char* bad : {"no_such:threads=1", "generic:threads=65", "generic:thraeds=64", "generic:threads=64,threads=64", "generic:"}) {
    const Outcome refused = quern(std::string("bench --device host --type q8_0 --shape 32,64 --config ") + bad);
    EXPECT_EQ(refused.exit_code, 2) << bad;
    EXPECT_NE(refused.err.find(std::string("--config '") + bad + "'"), std::string::npos) << refused.err;
  }
  // Over one row of X by the same config, not by the first of its family.
  const Json two =
      object_of(quern("bench --device host --type q8_0 --shape 32,64 --m 1,8 --config generic:threads=64 --config generic --json"))["rows"];
  ASSERT_EQ(two.size(), 4u);
  for (const std::size_t i : {2, 3})
    EXPECT_DOUBLE_EQ(two[i]["over_m1"].get<double>(), two[i]["us"].get<double>() / two[i - 2]["us"].get<double>());
  EXPECT_EQ(quern("bench --device host --config generic --every-family").exit_code, 2);
}

}  // namespace
}  // namespace quern::tools

// Bad input: one clear line, the documented exit code, and the store as it was.
#include <algorithm>
#include <filesystem>

#include "cache/store.h"
#include "command_run.h"

namespace quern::tools {
namespace {

class BadInput : public CommandTest {
 protected:
  BadInput() {
    // A store with something to lose.
    const auto store = cache::Store::open({.directory = store_});
    EXPECT_TRUE(
        store->put_measurement({.key = {"p", "d", kGeneratorVersion}, .compiler = "c", .measurement = {.config = {.family = "generic"}}}));
  }

  void expect_refused(const std::string& arguments, int exit_code, const std::string& mentions, const std::string& environment = "") {
    const auto before = store_contents();
    ASSERT_FALSE(before.empty());
    const Outcome run = quern(arguments, environment);
    EXPECT_EQ(run.exit_code, exit_code) << arguments << "\n" << run.err;
    EXPECT_EQ(run.out, "") << arguments;
    EXPECT_TRUE(run.err.starts_with("quern: ")) << arguments << "\n" << run.err;
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << arguments << "\n" << run.err;
    EXPECT_NE(run.err.find(mentions), std::string::npos) << arguments << "\n" << run.err;
    EXPECT_TRUE(store_contents() == before) << "the store changed: " << arguments;
  }
};

constexpr const char* kOne = R"([{"op":"mul_mat","type":"q4_0","n":64,"k":32,"m":1}])";

TEST_F(BadInput, BudgetsThatAreNone) {
  const std::string problems = file("p.json", kOne);
  for (const std::string budget : {"", "-1", "0", "nan", "10x", "-5m", "0s", "inf"})
    expect_refused("tune " + problems + " --budget '" + budget + "'", 2, "'" + budget + "'");
}

TEST_F(BadInput, RowCountsThatAreNone) {
  const std::string problems = file("p.json", kOne);
  for (const std::string m : {"0", "-1", "nan", "1.5", "1,x", "99999999999999999999"})
    expect_refused("tune " + problems + " --m " + m, 2, "--m");
  expect_refused("bench --device host --m 0", 2, "--m");
}

TEST_F(BadInput, SeedsThatWouldWrapAround) {
  const std::string problems = file("p.json", kOne);
  for (const std::string seed : {"-1", "1.5", "x", "99999999999999999999999"}) {
    expect_refused("tune " + problems + " --device cuda:63 --seed " + seed, 2, "--seed");
    expect_refused("sweep --device cuda:63 --seed " + seed, 2, "--seed");
  }
}

TEST_F(BadInput, NamesThatMeanNothing) {
  const std::string problems = file("p.json", kOne);
  expect_refused("tune " + problems + " --type q9_9", 2, "q9_9");
  expect_refused("tune " + problems + " --op transpose", 2, "transpose");
  expect_refused("tune " + problems + " --strategy psychic", 2, "psychic");
  expect_refused("tune " + problems + " --class perfect", 2, "perfect");
  expect_refused("sweep --family none_such", 2, "none_such");
  expect_refused("bench --shape 14336", 2, "14336", "QUERN_DEVICE=host");
  expect_refused("compile " + problems + " --arch volta", 2, "volta");
  expect_refused("sweep --device cuda:x", 2, "cuda:x");
  expect_refused("frobnicate", 2, "frobnicate");
  expect_refused("tune " + problems + " --frobnicate", 2, "--frobnicate");
}

TEST_F(BadInput, FilesThatAreNotThereOrNotFiles) {
  expect_refused("tune " + directory_ + "/none.gguf", 2, "No such file");
  expect_refused("tune " + directory_, 2, "is a directory");
  expect_refused("tune", 2, "FILE");
  expect_refused("sweep --model " + directory_ + "/none.gguf", 2, "none.gguf");
}

TEST_F(BadInput, FilesThatAreGarbage) {
  expect_refused("tune " + file("g.json", "\x01\x02garbage"), 2, "g.json");
  expect_refused("tune " + file("e.json", ""), 2, "e.json");
  expect_refused("tune " + file("o.json", R"([{"op":"mul_mat","type":"q4_0","n":64,"k":33,"m":1}])"), 2, "33");
  expect_refused("tune " + file("u.json", R"([{"op":"mul_mat","type":"q4_0","n":64,"k":32,"m":1,"layuot":"gguf"}])"), 2, "layuot");
  expect_refused("tune " + file("g.gguf", std::string("GGUF\x03\x00\x00\x00garbage", 15)), 1, "g.gguf");
  expect_refused("cache import " + file("s.sqlite", "not a store"), 1, "s.sqlite");
}

TEST_F(BadInput, FilesThatNeverEnd) {
  const std::string pipe = directory_ + "/pipe";
  ASSERT_EQ(shell("mkfifo " + pipe).exit_code, 0);
  expect_refused("tune " + pipe, 2, "not a regular file");
  expect_refused("tune /dev/zero", 2, "not a regular file");
  expect_refused("cache import " + pipe, 2, "not a regular file");
  expect_refused("cache import " + directory_, 2, "not a regular file");
}

TEST_F(BadInput, ListsThatNestDeeply) {
  constexpr int kDeep = 100000;
  const std::string nest = std::string(kDeep, '[') + std::string(kDeep, ']');
  expect_refused("tune " + file("d.json", nest), 2, "deep");
  expect_refused("tune " + file("f.json", R"([{"op":"mul_mat","type":"q4_0","k":32,"m":1,"n":)" + nest + "}]"), 2, "deep");
}

TEST_F(BadInput, NoEscapeReachesTheTerminal) {
  const std::string list = file("x.json", R"([{"op":"mul_mat","type":"q4_0","n":64,"k":32,"m":1,"\u001b[31m":1}])");
  EXPECT_EQ(quern("tune " + list).err.find('\x1b'), std::string::npos);
}

// What goes to a closed stderr must not go elsewhere: its number was given to a worker's socket, and correct kernels failed. A full one is
// no reason to end.
TEST_F(BadInput, AStderrThatIsClosedOrFull) {
  if (!works("host")) GTEST_SKIP() << "no host target here";
  const std::string command = "sh -c \"QUERN_CACHE_DIR='" + store_ + "' '" + std::getenv("QUERN_COMMAND") + "' ";
  const Outcome closed = shell(command + "sweep --device host --op mul_mat --type q4_0 --quick --every 300 2>&-\"");
  EXPECT_EQ(closed.exit_code, 0) << closed.out;
  EXPECT_EQ(closed.out.find("worker"), std::string::npos) << closed.out;
  const Outcome full = shell(command + "tune '" + model() + "' --list 2>/dev/full\"");
  EXPECT_EQ(full.exit_code, 0) << full.out;
  EXPECT_NE(full.out.find("mul_mat"), std::string::npos);
}

TEST_F(BadInput, AStoreThatIsAPipe) {
  ASSERT_EQ(shell("rm -rf '" + store_ + "' && mkdir -p '" + store_ + "' && mkfifo '" + store_ + "/store-v1.sqlite'").exit_code, 0);
  const Outcome run = quern("cache ls");
  EXPECT_EQ(run.exit_code, 3) << run.err;
  EXPECT_NE(run.err.find("is not a regular file"), std::string::npos) << run.err;
}

TEST_F(BadInput, AStoreWhoseFolderCannotBe) {
  for (const std::string& folder : {std::string("/dev/null/store"), "/" + std::string(5000, 'a')}) {
    const Outcome run = quern("cache ls", "QUERN_CACHE_DIR=" + folder);
    EXPECT_EQ(run.exit_code, 3) << run.out;
    EXPECT_NE(run.err.find("cannot be looked at"), std::string::npos) << run.err;
  }
  const Outcome absent = quern("cache ls", "QUERN_CACHE_DIR=" + directory_ + "/none");
  EXPECT_EQ(absent.exit_code, 0) << absent.err;
  EXPECT_NE(absent.out.find("no such folder"), std::string::npos) << absent.out;
}

// As an unset shell variable gives them: `cache gc` would trim the user's own store.
TEST_F(BadInput, TextsThatAreEmpty) {
  expect_refused("cache gc --max-size 0 --directory ''", 2, "--directory");
  expect_refused("explain mul_mat q4_0 m=1 n=64 k=32 --arch ''", 2, "--arch");
  expect_refused("explain mul_mat q4_0 m=1 n=64 k=32 --device ''", 2, "--device");
  expect_refused("sweep --junit ''", 2, "--junit");
}

TEST_F(BadInput, StoresAndReportsThatCannotBeWritten) {
  expect_refused("cache export '" + directory_ + "/out.sqlite' --directory '" + directory_ + "/none'", 3, "no store is at");
  expect_refused("cache export '" + directory_ + "/out.sqlite' --directory /dev/null", 3, "Not a directory");
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/out.sqlite"));
  expect_refused("cache gc --max-size 9EB", 2, "--max-size");
  if (works("host")) expect_refused("sweep --device host --junit /dev/null/x.xml", 3, "/dev/null/x.xml");
}

// A short text fails when it is flushed at the end, a long one in the middle.
TEST_F(BadInput, AStdoutThatIsFull) {
  std::string rows = "1";
  for (int m = 2; m < 200; ++m) rows += "," + std::to_string(m);
  for (const std::string& arguments : {std::string("--help"), std::string("cache ls"), "tune '" + model() + "' --list --m " + rows}) {
    const Outcome run = shell("{ QUERN_CACHE_DIR='" + store_ + "' \"$QUERN_COMMAND\" " + arguments + " >/dev/full; }");
    EXPECT_EQ(run.exit_code, 1) << arguments << run.err;
    EXPECT_NE(run.err.find("quern: cannot write to stdout"), std::string::npos) << arguments << run.err;
  }
}

TEST_F(BadInput, ADeviceNamedTwice) {
  if (!works("host")) GTEST_SKIP() << "no host target here";
  expect_refused("tune " + file("p.json", kOne) + " --device host,host", 2, "twice");
}

TEST_F(BadInput, ProblemsThatNoMachineHolds) {
  if (!works("host")) GTEST_SKIP() << "no host target here";
  const Outcome bench = quern("bench --device host --type q4_0 --m 1 --shape 99999999999,256");
  EXPECT_EQ(bench.exit_code, 3) << bench.err;
  EXPECT_NE(bench.err.find("quern: out of memory"), std::string::npos) << bench.err;
  const std::string list = file("p.json", R"([{"op":"mul_mat","type":"q4_0","n":9999999999,"k":32,"m":1}])");
  const Outcome tune = quern("tune --device host " + list);
  EXPECT_EQ(tune.exit_code, 1) << tune.err;
  EXPECT_NE(tune.err.find("out of memory"), std::string::npos) << tune.err;
  EXPECT_EQ(tune.err.find("terminate"), std::string::npos) << tune.err;
}

TEST_F(BadInput, ProblemsThatNoFamilyAnswers) {
  expect_refused("explain mul_mat q4_0 m=1 n=64 k=32 class=exact --device host", works("host") ? 1 : 3,
                 works("host") ? "no family supports it" : "");
}

TEST_F(BadInput, KernelsThatAreNotKept) {
  if (!works("compile-only")) GTEST_SKIP() << "no NVRTC here";
  const std::string list = file("p.json", R"([{"op":"dequantize","type":"q8_0","n":64,"k":256}])");
  const Outcome run = quern("compile " + list + " --arch sm_80", "QUERN_CACHE_DIR=" + list);
  EXPECT_EQ(run.exit_code, 3) << run.err;
  EXPECT_NE(run.err.find("could not be kept"), std::string::npos) << run.err;
}

TEST_F(BadInput, WinnersThatAreNotKept) {
  if (!works("host")) GTEST_SKIP() << "no host target here";
  const std::string list = file("p.json", R"([{"op":"dequantize","type":"q8_0","n":16,"k":256}])");
  const Outcome run = quern("tune --device host " + list, "QUERN_CACHE_DIR=" + list);
  EXPECT_EQ(run.exit_code, 3) << run.err;
  EXPECT_NE(run.err.find("1 of 1 winners could not be kept"), std::string::npos) << run.err;
}

TEST_F(BadInput, ProblemsThatAreNone) {
  expect_refused("explain mul_mat q4_0 m=1 n=64 k=33 --arch sm_90a", 2, "33");
  expect_refused("explain mul_mat q4_0 m=1 n=64 k=32 --arch sm_60", 2, "from sm_75 on");
  if (works("compile-only")) expect_refused("explain mul_mat q4_0 m=1 n=64 k=32 --arch sm_999", 3, "does not know sm_999");
  expect_refused("explain mul_mat q9_9 m=1 n=64 k=32 --arch sm_90a", 2, "q9_9");
  expect_refused("explain '{\"op\":\"mul_mat\"}' --arch sm_90a", 2, "type");
  expect_refused("explain '[{...}]' --arch sm_90a", 2, "not JSON: at byte 2 found \"...}]\", needed an array of problems");
  expect_refused("explain mul_mat q4_0 m=1 n=64 k=32 n=128 --arch sm_90a", 2, "n is given already");
  expect_refused("explain mul_mat q4_0 m=1 k=32 --arch sm_90a", 2, "needed n=N");
  expect_refused("explain mul_mat q4_0 m=1 n=64 k=32 x=f64 --arch sm_90a", 2, "needed f32, f16 or bf16");
  expect_refused("explain mul_mat q4_0 m=1 n=64 k=32 --arch sm_90a --device host", 2, "--arch");
}

TEST_F(BadInput, KeysThatNameNothing) {
  expect_refused("cache show zz", 2, "zz");
  expect_refused("cache show 0123456789ab", 2, "0123456789ab");
}

TEST_F(BadInput, WhatThisMachineLacks) {
  expect_refused("sweep --device cuda:63", 3, "cuda");
  expect_refused("compile " + file("p.json", kOne) + " --arch sm_90", 3, "/none/libnvrtc.so", "QUERN_NVRTC=/none/libnvrtc.so");
  expect_refused("sweep --device host", 3, "/none/plugin.so", "QUERN_HOST_PLUGIN=/none/plugin.so");
}

TEST_F(BadInput, NowhereToKeepAStore) {
  const Outcome run = shell("env -u QUERN_CACHE_DIR -u XDG_CACHE_HOME -u HOME \"$QUERN_COMMAND\" cache path");
  EXPECT_EQ(run.exit_code, 3);
  EXPECT_NE(run.err.find("QUERN_CACHE_DIR"), std::string::npos) << run.err;
}

}  // namespace
}  // namespace quern::tools

// Two builds of quern that differ in the generator version alone, on one store: each finds its own rows and no other, one after the other
// and at the same time, and going back finds everything again.
#include <fcntl.h>

#include <nlohmann/json.hpp>

#include "tests/cache/store_fixture.h"

namespace quern {
namespace {

constexpr int kKernels = 3, kKeys = 6, kRounds = 15;  // kKernels and kKeys as in version_probe.cc

struct Build {
  const char* probe;
  const char* version;
  int threads;  // of the config that it tunes
};
constexpr Build kThis{QUERN_PROBE_THIS, kGeneratorVersion, 64};
constexpr Build kOther{QUERN_PROBE_OTHER, QUERN_OTHER_VERSION, 128};

struct Outcome {
  int exit_code = -1;
  std::string output;
};

// A process of its own.
class Process {
 public:
  Process(const cache::TempDir& dir, std::string program, std::vector<std::string> arguments) : output_(dir.path("output-" + unique())) {
    arguments.insert(arguments.begin(), program);
    child_ = cache::start_child([&] {
      const int file = ::open(output_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
      ::dup2(file, STDOUT_FILENO);
      std::vector<char*> words;
      for (auto& argument : arguments) words.push_back(argument.data());
      words.push_back(nullptr);
      ::execv(program.c_str(), words.data());
      return 127;
    });
  }
  Outcome finish() { return {cache::exit_status(child_), cache::read_bytes(output_)}; }

 private:
  static std::string unique() {
    static int count = 0;
    return std::to_string(++count);
  }
  std::string output_;
  pid_t child_ = 0;
};

class TwoVersions : public testing::Test {
 protected:
  std::string store() const { return dir_.path("store"); }
  Process start(const Build& build, const std::string& name, int rounds) {
    return Process(dir_, build.probe, {store(), name, std::to_string(build.threads), std::to_string(rounds)});
  }
  void expect(const Build& build, int tunings, int artifacts, int compiled) {
    const Outcome outcome = start(build, "alone", 1).finish();
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_EQ(outcome.output, "generator " + std::string(build.version) + " found " + std::to_string(tunings) + " tunings, " +
                                  std::to_string(artifacts) + " artifacts; compiled " + std::to_string(compiled) + "\n");
  }
  void expect_nothing_yet(const Build& build) { expect(build, 0, 0, kKernels); }
  void expect_everything_again(const Build& build) { expect(build, kKernels, kKeys, 0); }

  // `quern cache ls`, which is of this version.
  void expect_both_listed() {
    const Outcome listed = Process(dir_, QUERN_COMMAND, {"cache", "ls", "--json", "--directory", store()}).finish();
    ASSERT_EQ(listed.exit_code, 0) << listed.output;
    const auto report = nlohmann::json::parse(listed.output, nullptr, false);
    const std::string why = std::string("made by generator ") + kOther.version + ", this is generator " + kThis.version;
    for (const char* rows : {"artifacts", "tunings"}) {
      std::map<std::string, int> count;
      for (const auto& row : report[rows]) {
        ++count[row["generator"]];
        const bool own = row["generator"] == kThis.version;
        EXPECT_EQ(row["usable"], own) << row;
        EXPECT_EQ(row["why_not"], own ? "" : why) << row;
      }
      EXPECT_EQ(count, (std::map<std::string, int>{{kThis.version, kKernels + kKeys}, {kOther.version, kKernels + kKeys}})) << rows;
    }
    // The table has room for the beginning of a reason.
    const std::string table = Process(dir_, QUERN_COMMAND, {"cache", "ls", "--directory", store()}).finish().output;
    int foreign = 0;
    for (std::size_t at = table.find(" made"); at != std::string::npos; at = table.find(" made", at + 1)) ++foreign;
    EXPECT_EQ(foreign, 2 * (kKernels + kKeys)) << table;
  }
  void expect_sound() {
    const auto report = cache::verify(store());
    ASSERT_TRUE(report);
    for (const auto& row : report->bad) ADD_FAILURE() << row.table << " " << row.row << ": " << row.reason;
    EXPECT_EQ(report->artifacts, 2 * (kKernels + kKeys));
  }

  cache::TempDir dir_;
};

class TwoVersionsInTurn : public TwoVersions, public testing::WithParamInterface<bool> {};

TEST_P(TwoVersionsInTurn, FindTheirOwnAgain) {
  ASSERT_STRNE(kThis.version, kOther.version);
  const Build &first = GetParam() ? kOther : kThis, &second = GetParam() ? kThis : kOther;
  expect_nothing_yet(first);
  expect_nothing_yet(second);
  expect_everything_again(first);
  expect_everything_again(second);
  expect_both_listed();
  expect_sound();
}

INSTANTIATE_TEST_SUITE_P(BothOrders, TwoVersionsInTurn, testing::Bool());

TEST_F(TwoVersions, AtTheSameTimeLoseAndDamageNothing) {
  std::vector<std::pair<const Build*, std::string>> who;
  for (const char* name : {"a", "b"})
    for (const Build* build : {&kThis, &kOther}) who.emplace_back(build, name);
  std::vector<Process> runs;
  for (const auto& [build, name] : who) runs.push_back(start(*build, name, kRounds));
  for (auto& run : runs) {
    const Outcome outcome = run.finish();
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_EQ(outcome.output.find("warning"), std::string::npos) << outcome.output;
  }
  expect_both_listed();
  const auto tunings = cache::list_tunings(store(), {});
  ASSERT_TRUE(tunings);
  int hammered = 0;
  for (const auto& tuning : *tunings) {
    if (!tuning.key.problem.starts_with("probe")) continue;
    ++hammered;
    EXPECT_EQ(tuning.measured, 2 * kRounds) << tuning.key.problem << " of generator " << tuning.key.generator_version;
  }
  EXPECT_EQ(hammered, 2 * kKeys);
  expect_everything_again(kThis);
  expect_everything_again(kOther);
  expect_sound();
}

}  // namespace
}  // namespace quern

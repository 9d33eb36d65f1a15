// Tuning end to end with planted candidates in a real child process and a real store. This executable is its own worker and, where it has
// to be killed, its own tuning parent.
#include "tuner/tune.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "tests/tuner/planted.h"
#include "tuner/worker.h"

namespace quern {
namespace {

using namespace planted;
namespace fs = std::filesystem;

cache::StoreOptions store_at(const std::string& directory) {
  cache::StoreOptions o;
  o.directory = directory;
  return o;
}

// Every behaviour and time that any test plants: the worker renders whatever config it is asked for.
std::unique_ptr<Family> everything(const std::string& name) { return family({kRight}, {10}, name); }

int planted_worker(const std::string& store_directory, const std::string& log) {
  std::ofstream(log + ".pid") << ::getpid() << std::flush;
  const auto device = planted::device(log);
  const auto compiler = planted::compiler();
  const auto store = cache::Store::open(store_at(store_directory));
  const auto first = everything("planted"), second = everything("second");
  return worker_main(kWorkerFd, WorkbenchTools{device.get(), compiler.get(), store.get(), source({first.get(), second.get()}).render});
}

WorkerOptions worker_options(const std::string& store_directory, const std::string& log) {
  WorkerOptions o;
  o.arguments = {kWorkerCommand, store_directory, log};
  o.candidate_seconds = 3;
  return o;
}

std::vector<std::int64_t> numbers(std::int64_t first, std::int64_t count) {
  std::vector<std::int64_t> v;
  for (std::int64_t i = 0; i < count; ++i) v.push_back(first + i);
  return v;
}

constexpr std::int64_t kLongRun = 40;

std::vector<ProblemResult> tune_long(const std::string& store_directory, const std::string& log, bool hang = false) {
  WorkerOptions w = worker_options(store_directory, log);
  if (hang) w.candidate_seconds = 100;
  Worker worker(w);
  const auto compiler = planted::compiler();
  const auto store = cache::Store::open(store_at(store_directory));
  const auto planted_family = family({hang ? kHang : kRight}, numbers(100, kLongRun));
  TuneOptions options;
  options.candidates = source({planted_family.get()});
  return tune({problem()}, {{"planted", &worker, compiler.get()}}, *store, options, {});
}

class Tuning : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = fs::temp_directory_path() /
                 ("quern_tune_" + std::to_string(::getpid()) + "_" + testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(directory_);
    fs::create_directories(directory_);
    log_ = (directory_ / "launches").string();
    store_ = cache::Store::open(store_at(directory_.string()));
  }
  void TearDown() override {
    store_.reset();
    fs::remove_all(directory_);
  }

  ProblemResult tune_one(const std::vector<const Family*>& families, TuneOptions options = {},
                         const std::function<void(const TuneProgress&)>& progress = {}) {
    WorkerOptions w = worker_options(directory_.string(), log_);
    w.stop = options.stop;
    Worker worker(w);
    options.candidates = source(families);
    const auto results = tune({problem()}, {{"planted", &worker, compiler_.get()}}, *store_, options, progress);
    starts_ = worker.starts();
    EXPECT_EQ(results.size(), 1u);
    return results.front();
  }

  std::size_t launches() const {
    std::ifstream file(log_);
    std::size_t count = 0;
    for (std::string line; std::getline(file, line);) ++count;
    return count;
  }

  std::vector<cache::StoredMeasurement> rows() {
    return store_->measurements({to_string(problem()), to_string(planted::device()->info().identity), kGeneratorVersion});
  }
  Verdict verdict_of(std::int64_t behaviour) {
    for (const auto& row : rows())
      if (row.measurement.config.find("behaviour") == behaviour) return row.measurement.verdict;
    ADD_FAILURE() << "no row for behaviour " << behaviour;
    return Verdict::ok;
  }

  pid_t start_parent(const char* role) {
    const pid_t parent = ::fork();
    if (parent == 0) {
      ::execl("/proc/self/exe", "tune_test", role, directory_.c_str(), log_.c_str(), static_cast<char*>(nullptr));
      ::_exit(127);
    }
    return parent;
  }

  fs::path directory_;
  std::string log_;
  std::unique_ptr<cache::Store> store_;
  std::unique_ptr<Compiler> compiler_ = planted::compiler();
  int starts_ = 0;
};

// pytorch#172123, flashinfer#4157: candidates that fault, trap or loop.
TEST_F(Tuning, ACandidateThatFaultsHangsOrWritesHalfItsOutputCostsItselfAlone) {
  const auto f = family({kRight, kCrash, kHang, kHalfOutput, kLaunchFails, kDeviceLost, kCompileFails}, {50});
  const auto second = family({kRight}, {30, 40}, "second");
  const ProblemResult r = tune_one({f.get(), second.get()});
  ASSERT_TRUE(r.winner) << r.error;
  EXPECT_EQ(*r.winner, config(kRight, 30, "second"));
  EXPECT_EQ(r.us, 30);
  EXPECT_EQ(r.tried, 9);
  EXPECT_EQ(r.failed, 6);
  EXPECT_EQ(verdict_of(kCrash), Verdict::crashed);
  EXPECT_EQ(verdict_of(kHang), Verdict::timed_out);
  EXPECT_EQ(verdict_of(kHalfOutput), Verdict::incomplete_output);
  EXPECT_EQ(verdict_of(kLaunchFails), Verdict::launch_failed);
  EXPECT_EQ(verdict_of(kDeviceLost), Verdict::launch_failed);
  EXPECT_EQ(verdict_of(kCompileFails), Verdict::compile_failed);
  EXPECT_EQ(starts_, 4);  // the first, and one after the crash, the hang and the lost device each
  for (const auto& row : rows()) {
    if (row.measurement.verdict == Verdict::crashed) {
      EXPECT_NE(row.measurement.reason.find("signal 11"), std::string::npos) << row.measurement.reason;
    }
    EXPECT_EQ(row.measurement.artifact.size(), 64u);
  }
}

TEST_F(Tuning, FailuresAreRememberedAndNothingIsMeasuredTwice) {
  const auto f = family({kRight, kCrash, kHalfOutput, kCompileFails}, {50, 60});
  const ProblemResult first = tune_one({f.get()});
  EXPECT_FALSE(first.from_store);
  const std::size_t before = launches();
  const ProblemResult again = tune_one({f.get()});
  EXPECT_EQ(launches(), before);
  EXPECT_EQ(again.tried, 0);
  EXPECT_EQ(again.skipped, 8);
  EXPECT_EQ(again.reasons.at("already stored"), 8);
  EXPECT_TRUE(again.from_store);
  EXPECT_EQ(again.winner, first.winner);
  EXPECT_EQ(again.us, first.us);
}

TEST_F(Tuning, AddingOneValueMeasuresOnlyWhatIsNew) {
  tune_one({family({kRight}, {50, 60, 70}).get()});
  const auto wider = family({kRight}, {40, 50, 60, 70});
  const ProblemResult r = tune_one({wider.get()});
  EXPECT_EQ(r.tried, 1);
  EXPECT_EQ(r.skipped, 3);
  EXPECT_EQ(*r.winner, config(kRight, 40));
}

// aiter#5263, CLBlast#664, helion#1331: an interrupted run lost hours.
TEST_F(Tuning, KilledAtRandomMomentsTheRerunMeasuresExactlyTheRemainder) {
  std::mt19937 random(20261130);
  std::size_t before = 0, rows_before = 0;
  for (int round = 0; round < 6 && rows().size() < kLongRun; ++round) {
    const pid_t parent = start_parent("__tune_parent");
    // Killed soon after it measured something: the run as a whole takes longer than that.
    bool ended = false;
    while (launches() <= before && !ended) {
      ended = ::waitpid(parent, nullptr, WNOHANG) != 0;
      ::usleep(1000);
    }
    ::usleep(random() % 20000);
    if (!ended) {
      ::kill(parent, SIGKILL);
      ::waitpid(parent, nullptr, 0);
    }
    ::usleep(100000);  // an orphan that went on measuring would show in the log
    // What was launched but not recorded is at most the one candidate under way.
    EXPECT_LE(launches() - before, rows().size() - rows_before + 1);
    before = launches();
    rows_before = rows().size();
  }
  const std::size_t recorded = rows().size();
  EXPECT_GT(recorded, 0u);
  const auto results = tune_long(directory_.string(), log_);
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(static_cast<std::size_t>(results[0].tried), kLongRun - recorded);
  EXPECT_EQ(launches() - before, kLongRun - recorded);
  EXPECT_EQ(rows().size(), static_cast<std::size_t>(kLongRun));
  EXPECT_EQ(*results[0].winner, config(kRight, 100));
}

// "R", "S", "Z" ..., or nothing when there is no such process.
std::string process_state(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string id, name, state;
  file >> id >> name >> state;
  return state;
}

TEST_F(Tuning, AKilledParentLeavesNoWorkerEvenOneThatHangs) {
  const pid_t parent = start_parent("__tune_hanging_parent");
  while (launches() == 0) ::usleep(1000);
  int worker = 0;
  std::ifstream(log_ + ".pid") >> worker;
  ASSERT_GT(worker, 0);
  EXPECT_NE(process_state(worker), "");
  // A signal to the process group is the parent's to act on: a worker that died of it would count as a candidate that crashed, for good.
  for (const int signal : {SIGINT, SIGTERM}) ::kill(worker, signal);
  ::usleep(300000);
  const std::string after = process_state(worker);
  EXPECT_TRUE(!after.empty() && after != "Z") << "the worker died of a signal to its group";
  ::kill(parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
  auto gone = [&] {
    const std::string state = process_state(worker);
    return state.empty() || state == "Z";  // whoever inherits it may be slow to reap it
  };
  for (int i = 0; i < 1000 && !gone(); ++i) ::usleep(10000);
  EXPECT_TRUE(gone());
  if (!gone()) ::kill(worker, SIGKILL);
}

TEST_F(Tuning, AStopKeepsWhatWasMeasuredAndTheRerunDoesTheRest) {
  std::atomic<bool> stop{false};
  TuneOptions options;
  options.stop = &stop;
  const auto f = family({kRight}, numbers(10, 12));
  const ProblemResult r = tune_one({f.get()}, options, [&](const TuneProgress& p) { stop = p.done >= 4; });
  EXPECT_EQ(r.tried, 4);
  EXPECT_EQ(r.reasons.at("stopped"), 8);
  ASSERT_TRUE(r.winner);
  EXPECT_EQ(rows().size(), 4u);
  const ProblemResult rest = tune_one({f.get()});
  EXPECT_EQ(rest.tried, 8);
  EXPECT_EQ(rest.skipped, 4);
}

TEST_F(Tuning, AStopDoesNotWaitForAHangingCandidate) {
  std::atomic<bool> stop{false};
  TuneOptions options;
  options.stop = &stop;
  const auto f = family({kHang}, {10});
  WorkerOptions w = worker_options(directory_.string(), log_);
  w.candidate_seconds = 100;
  w.stop = &stop;
  Worker worker(w);
  options.candidates = source({f.get()});
  std::thread interrupt([&] {
    while (launches() == 0) ::usleep(1000);
    stop = true;
  });
  const auto start = std::chrono::steady_clock::now();
  const auto results = tune({problem()}, {{"planted", &worker, compiler_.get()}}, *store_, options, {});
  interrupt.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(50));
  EXPECT_FALSE(results[0].winner);
  EXPECT_TRUE(rows().empty());  // a candidate that was cut off is not a failure to remember
}

TEST_F(Tuning, ABudgetOfCandidatesEndsTheSearchAndARerunGoesOn) {
  TuneOptions options;
  options.budget_candidates = 3;
  const auto f = family({kRight}, numbers(10, 8));
  const ProblemResult r = tune_one({f.get()}, options);
  EXPECT_EQ(r.tried, 3);
  EXPECT_EQ(r.reasons.at("budget"), 5);
  EXPECT_EQ(tune_one({f.get()}, options).tried, 3);
  EXPECT_EQ(tune_one({f.get()}, options).tried, 2);
}

TEST_F(Tuning, AnExhaustedBudgetOfSecondsStillMeasuresTheDefault) {
  TuneOptions options;
  options.budget_seconds = 1e-9;
  const ProblemResult r = tune_one({family({kRight}, numbers(10, 8)).get()}, options);
  EXPECT_EQ(r.tried, 1);
  EXPECT_EQ(*r.winner, config(kRight, 10));
}

// TileOPs#772: a loaded GPU during timing.
TEST_F(Tuning, ScatteringTimesAreMarkedUnstable) {
  const ProblemResult r = tune_one({family({kNoisy}, {10}).get()});
  EXPECT_TRUE(r.unstable);
  ASSERT_EQ(rows().size(), 1u);
  EXPECT_TRUE(rows()[0].measurement.unstable);
  const ProblemResult calm = tune_one({family({kRight}, {9}).get()});
  EXPECT_FALSE(calm.unstable);
}

TEST_F(Tuning, AWorkerThatCannotStartIsAnErrorOfItsProblems) {
  WorkerOptions w;
  w.executable = "/nonexistent/worker";
  Worker worker(w);
  const auto results = tune({problem(), problem(1)}, {{"cuda:9", &worker, compiler_.get()}}, *store_, {}, {});
  ASSERT_EQ(results.size(), 2u);
  EXPECT_NE(results[0].error.find("/nonexistent/worker"), std::string::npos) << results[0].error;
}

// A device in this process: for what does not depend on a child.
class InProcess : public Measurer {
 public:
  Result<DeviceInfo> device() override { return planted::device()->info(); }
  Status prepare(const Problem&, const DataOptions&) override { return {}; }
  Result<Measurement> measure(const Config& c, const MeasureSettings&) override {
    Measurement m;
    m.config = c;
    m.us = static_cast<double>(*c.find("us"));
    m.spread = 0.005;
    return m;
  }
  Result<std::vector<Timing>> compare(const std::vector<Config>& configs, const MeasureSettings&) override {
    std::vector<Timing> t;
    for (const Config& c : configs) t.push_back({compared.contains(c) ? compared[c] : static_cast<double>(*c.find("us")), 0, 0, 9});
    return t;
  }
  Result<std::optional<double>> read_ceiling(std::int64_t) override { return ceiling; }

  std::optional<double> ceiling;
  std::map<Config, double> compared;
};

TEST_F(Tuning, TheRooflineEndsTheSearch) {
  InProcess bench;
  bench.ceiling = 10.0;
  TuneOptions options;
  const auto f = family({kRight}, {20, 15, 10, 9, 8});
  options.candidates = source({f.get()});
  const auto r = tune({problem()}, {{"planted", &bench, compiler_.get()}}, *store_, options, {});
  EXPECT_EQ(r[0].tried, 3);
  EXPECT_EQ(r[0].reasons.at("roofline"), 2);
  EXPECT_EQ(r[0].read_ceiling_us, 10.0);
}

TEST_F(Tuning, AStopEndsARunInThisProcessToo) {
  InProcess bench;
  std::atomic<bool> stop{false};
  TuneOptions options;
  options.stop = &stop;
  const auto f = family({kRight}, numbers(10, 9));
  options.candidates = source({f.get()});
  const auto r =
      tune({problem()}, {{"planted", &bench, compiler_.get()}}, *store_, options, [&](const TuneProgress& p) { stop = p.done >= 2; });
  EXPECT_EQ(r[0].tried, 2);
  EXPECT_EQ(r[0].reasons.at("stopped"), 7);
}

TEST_F(Tuning, FinalistsAreComparedAndWithinNoiseTheSimplerFamilyWins) {
  InProcess bench;
  bench.compared = {{config(kRight, 1000), 980}, {config(kRight, 990, "second"), 975}};
  TuneOptions options;
  const auto simple = family({kRight}, {1000, 1100}), second = family({kRight}, {990, 1200}, "second");
  options.candidates = source({simple.get(), second.get()});
  const auto r = tune({problem()}, {{"planted", &bench, compiler_.get()}}, *store_, options, {});
  EXPECT_EQ(*r[0].winner, config(kRight, 1000));  // 0.5% slower than the fastest
  EXPECT_EQ(r[0].us, 980);
}

TEST_F(Tuning, TwoDevicesOfOneKindShareTheProblems) {
  InProcess one, two;
  TuneOptions options;
  const auto f = family({kRight}, {20, 10});
  options.candidates = source({f.get()});
  std::vector<Problem> problems;
  for (std::int64_t m = 1; m <= 6; ++m) problems.push_back(problem(m));
  const auto r = tune(problems, {{"a", &one, compiler_.get()}, {"b", &two, compiler_.get()}}, *store_, options, {});
  ASSERT_EQ(r.size(), 6u);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(r[i].problem, problems[i]);
    EXPECT_EQ(*r[i].winner, config(kRight, 10));
  }
}

TEST(WorkerProtocol, MessagesSurviveTheWire) {
  Measurement m;
  m.config = config(kNan, 3);
  m.verdict = Verdict::wrong_output;
  m.reason = "a \"quoted\"\nline";
  m.nmse = std::numeric_limits<double>::infinity();
  m.us = 1.0 / 3;
  m.unstable = true;
  m.artifact = "ab";
  auto answer = protocol::decode_answer(protocol::encode(protocol::Answer(protocol::Measured{m, true})));
  ASSERT_TRUE(answer);
  const auto& back = std::get<protocol::Measured>(*answer);
  EXPECT_TRUE(back.lost);
  EXPECT_EQ(back.measurement.config, m.config);
  EXPECT_EQ(back.measurement.reason, m.reason);
  EXPECT_EQ(back.measurement.nmse, m.nmse);
  EXPECT_EQ(back.measurement.us, m.us);
  DataOptions data{7, true, 1, 2, 3, 4, "path", "tensor", 9, true};
  auto request = protocol::decode_request(protocol::encode(protocol::Request(protocol::Prepare{problem(5), data})));
  ASSERT_TRUE(request);
  EXPECT_EQ(std::get<protocol::Prepare>(*request).problem, problem(5));
  EXPECT_EQ(std::get<protocol::Prepare>(*request).data, data);
  MeasureSettings settings{false, true, 7, 0.25, 0.5, 3, 12.5};
  request = protocol::decode_request(protocol::encode(protocol::Request(protocol::Measure{config(kRight, 1), settings})));
  ASSERT_TRUE(request);
  EXPECT_EQ(std::get<protocol::Measure>(*request).settings, settings);
  for (const char* torn : {"", "{", "{\"measurement\": {}}", "[1]", "{\"error\": {\"code\": 99, \"message\": \"\"}}"})
    EXPECT_FALSE(protocol::decode_answer(torn)) << torn;
}

}  // namespace
}  // namespace quern

int main(int argc, char** argv) {
  const std::string role = argc > 3 ? argv[1] : "";
  if (role == quern::kWorkerCommand) return quern::planted_worker(argv[2], argv[3]);
  if (role == "__tune_hanging_parent") {
    quern::tune_long(argv[2], argv[3], true);
    return 0;
  }
  if (role == "__tune_parent") {
    quern::tune_long(argv[2], argv[3]);
    return 0;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

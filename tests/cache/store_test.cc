#include "cache/store.h"

#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

#include "tests/cache/store_fixture.h"

namespace quern::cache {
namespace {

TEST(Store, ReturnsWhatWasPutAlsoAfterReopening) {
  TempDir dir;
  const auto measurement = sample_measurement(1);
  const auto winner = sample_winner(1);
  {
    auto store = Store::open(options_for(dir.path("made/by/the/store")));
    EXPECT_FALSE(store->find_artifact(sample_key(1)));
    EXPECT_TRUE(store->put_artifact(sample_key(1), sample_artifact(1)));
    EXPECT_TRUE(store->put_measurement(measurement));
    EXPECT_TRUE(store->put_winner(winner));
  }
  auto store = Store::open(options_for(dir.path("made/by/the/store")));
  const auto artifact = store->find_artifact(sample_key(1));
  ASSERT_TRUE(artifact);
  EXPECT_TRUE(same(*artifact, sample_artifact(1)));
  ASSERT_EQ(store->measurements(measurement.key).size(), 1u);
  EXPECT_TRUE(same(store->measurements(measurement.key)[0], measurement));
  ASSERT_TRUE(store->find_winner(winner.key));
  EXPECT_TRUE(same(*store->find_winner(winner.key), winner));
  EXPECT_FALSE(store->find_artifact(sample_key(2)));
  EXPECT_TRUE(store->measurements(sample_tuning(2)).empty());
}

// Failures are remembered with their reason, so that a rerun does not repeat them (field case 28).
TEST(Store, RemembersEveryVerdictWithItsReason) {
  TempDir dir;
  auto store = Store::open(options_for(dir.path()));
  const Verdict verdicts[] = {Verdict::ok,
                              Verdict::wrong_output,
                              Verdict::incomplete_output,
                              Verdict::out_of_bounds_write,
                              Verdict::compile_failed,
                              Verdict::launch_failed,
                              Verdict::crashed,
                              Verdict::timed_out,
                              Verdict::out_of_memory,
                              Verdict::rejected};
  int warps = 0;
  for (const Verdict v : verdicts) {
    auto row = sample_measurement(1, ++warps);
    row.measurement.verdict = v;
    row.measurement.reason = std::string("because of ") + to_string(v);
    row.measurement.unstable = warps % 2 == 0;
    row.measurement.artifact = v == Verdict::compile_failed ? "" : row.measurement.artifact;
    ASSERT_TRUE(store->put_measurement(row));
  }
  const auto rows = store->measurements(sample_tuning(1));
  ASSERT_EQ(rows.size(), std::size(verdicts));
  for (const auto& row : rows) {
    const auto n = row.measurement.config.find("warps").value();
    EXPECT_EQ(row.measurement.verdict, verdicts[n - 1]);
    EXPECT_EQ(row.measurement.reason, std::string("because of ") + to_string(row.measurement.verdict));
    EXPECT_EQ(row.measurement.unstable, n % 2 == 0);
  }
}

TEST(Store, KeepsErrorsThatAreNotFinite) {
  TempDir dir;
  auto store = Store::open(options_for(dir.path()));
  auto row = sample_measurement(1);
  row.measurement.nmse = std::numeric_limits<double>::quiet_NaN();
  row.measurement.max_error = std::numeric_limits<double>::infinity();
  row.measurement.us = -0.0;
  ASSERT_TRUE(store->put_measurement(row));
  const auto rows = store->measurements(row.key);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_TRUE(std::isnan(rows[0].measurement.nmse));
  EXPECT_TRUE(std::isinf(rows[0].measurement.max_error));
  EXPECT_EQ(rows[0].measurement.us, 0);
}

TEST(Store, KeepsMeasurementsOfTwoCompilersAndTwoBinariesApart) {
  TempDir dir;
  auto store = Store::open(options_for(dir.path()));
  auto row = sample_measurement(1);
  ASSERT_TRUE(store->put_measurement(row));
  row.measurement.us = 8;
  ASSERT_TRUE(store->put_measurement(row));  // the same again: replaces
  row.compiler = "NVRTC 12.8";
  ASSERT_TRUE(store->put_measurement(row));
  row.measurement.artifact = sample_key(9).hex();
  ASSERT_TRUE(store->put_measurement(row));
  const auto rows = store->measurements(row.key);
  ASSERT_EQ(rows.size(), 3u);
  for (const auto& r : rows) EXPECT_EQ(r.measurement.us, 8);
}

TEST(Store, RefusesAnEmptyArtifact) {
  TempDir dir;
  std::vector<std::string> warnings;
  auto store = Store::open(options_for(dir.path(), &warnings));
  Artifact empty = sample_artifact(1);
  empty.bytes.clear();
  EXPECT_FALSE(store->put_artifact(sample_key(1), empty));
  EXPECT_FALSE(store->find_artifact(sample_key(1)));
  bool made = false;
  const auto result = store->find_or_make(
      sample_key(1), [&]() -> Result<Artifact> { return empty; }, &made);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kCompileFailed);
  EXPECT_TRUE(made);
}

TEST(Store, RefusesAConfigThatDoesNotReadBack) {
  TempDir dir;
  std::vector<std::string> warnings;
  auto store = Store::open(options_for(dir.path(), &warnings));
  auto row = sample_measurement(1);
  row.measurement.config.values[0].name = "a=1,b";
  EXPECT_FALSE(store->put_measurement(row));
  auto winner = sample_winner(1);
  winner.config.family = "";
  EXPECT_FALSE(store->put_winner(winner));
  EXPECT_EQ(warnings.size(), 1u);
}

TEST(Store, ListsWinnersByDeviceAndGenerator) {
  TempDir dir;
  auto store = Store::open(options_for(dir.path()));
  auto foreign = sample_winner(2);
  foreign.key.device = "NVIDIA A100";
  auto older = sample_winner(3);
  older.key.generator_version = "0";
  for (const auto& w : {sample_winner(1), foreign, older}) ASSERT_TRUE(store->put_winner(w));
  EXPECT_EQ(store->winners("", "").size(), 3u);
  EXPECT_EQ(store->winners("NVIDIA A100", "").size(), 1u);
  EXPECT_EQ(store->winners("", "0").size(), 1u);
  EXPECT_TRUE(store->winners("NVIDIA A100", "0").empty());
}

// Field case 34, the store's part.
TEST(Store, DroppedWinnerIsGoneAndItsMeasurementsStay) {
  TempDir dir;
  auto store = Store::open(options_for(dir.path()));
  ASSERT_TRUE(store->put_winner(sample_winner(1)));
  ASSERT_TRUE(store->put_measurement(sample_measurement(1)));
  EXPECT_TRUE(store->drop_winner(sample_tuning(1)));
  EXPECT_FALSE(store->find_winner(sample_tuning(1)));
  EXPECT_TRUE(store->winners("", "").empty());
  EXPECT_EQ(store->measurements(sample_tuning(1)).size(), 1u);
  EXPECT_TRUE(store->put_winner(sample_winner(1, 8.0)));
  EXPECT_EQ(store->find_winner(sample_tuning(1)).value().us, 8.0);
}

TEST(FindOrMake, MakesOnceThenFinds) {
  TempDir dir;
  int runs = 0;
  const auto make = [&]() -> Result<Artifact> { return ++runs, sample_artifact(1); };
  for (int i = 0; i < 3; ++i) {
    auto store = Store::open(options_for(dir.path()));
    bool made = false;
    const auto artifact = store->find_or_make(sample_key(1), make, &made);
    ASSERT_TRUE(artifact);
    EXPECT_TRUE(same(*artifact, sample_artifact(1)));
    EXPECT_EQ(made, i == 0);
  }
  EXPECT_EQ(runs, 1);
}

TEST(FindOrMake, FailureIsReturnedAndNotStored) {
  TempDir dir;
  auto store = Store::open(options_for(dir.path()));
  const auto failed = store->find_or_make(
      sample_key(1),
      []() -> Result<Artifact> {
        return Error{ErrorCode::kCompileFailed, "no such type", "log"};
      },
      nullptr);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kCompileFailed);
  EXPECT_EQ(failed.error().log, "log");
  EXPECT_FALSE(store->find_artifact(sample_key(1)));
  EXPECT_TRUE(store->find_or_make(
      sample_key(1), []() -> Result<Artifact> { return sample_artifact(1); }, nullptr));
}

// Also without a folder to share through.
TEST(FindOrMake, ThreadsOfOneProcessShareOneCompile) {
  TempDir dir;
  for (const std::string& directory : {dir.path(), std::string()}) {
    auto store = Store::open(options_for(directory));
    std::atomic<int> runs{0}, made_count{0}, right{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i)
      threads.emplace_back([&] {
        bool made = false;
        const auto artifact = store->find_or_make(
            sample_key(1),
            [&]() -> Result<Artifact> {
              ++runs;
              std::this_thread::sleep_for(std::chrono::milliseconds(300));
              return sample_artifact(1);
            },
            &made);
        made_count += made;
        right += artifact && same(*artifact, sample_artifact(1));
      });
    for (auto& t : threads) t.join();
    EXPECT_EQ(runs, 1) << directory;
    EXPECT_EQ(made_count, 1);
    EXPECT_EQ(right, 8);
  }
}

TEST(FindOrMake, ThreadsThatWaitedForAFailureTryForThemselves) {
  TempDir dir;
  auto store = Store::open(options_for(dir.path()));
  std::atomic<int> runs{0}, failures{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      const auto result = store->find_or_make(
          sample_key(1),
          [&]() -> Result<Artifact> {
            ++runs;
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            return Error{ErrorCode::kCompileFailed, "refused"};
          },
          nullptr);
      failures += !result && result.error().code == ErrorCode::kCompileFailed;
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(runs, 4);
  EXPECT_EQ(failures, 4);
}

// The layers below: read, never written, overruled by the user's own rows.
class SystemLayer : public ::testing::Test {
 protected:
  void SetUp() override {
    auto system = Store::open(options_for(dir_.path("system")));
    ASSERT_TRUE(system->put_artifact(sample_key(1), sample_artifact(1)));
    ASSERT_TRUE(system->put_winner(sample_winner(1)));
    ASSERT_TRUE(system->put_measurement(sample_measurement(1, 4)));
    ASSERT_TRUE(system->put_measurement(sample_measurement(1, 8)));
  }
  StoreOptions layered(std::vector<std::string>* warnings) {
    auto options = options_for(dir_.path("user"), warnings);
    options.system_directories = {dir_.path("absent"), dir_.path("system")};
    return options;
  }
  TempDir dir_;
  std::vector<std::string> warnings_;
};

TEST_F(SystemLayer, IsReadAndNeverWritten) {
  const auto before = snapshot(dir_.path("system"));
  {
    auto store = Store::open(layered(&warnings_));
    ASSERT_TRUE(store->find_artifact(sample_key(1)));
    EXPECT_TRUE(same(*store->find_artifact(sample_key(1)), sample_artifact(1)));
    EXPECT_TRUE(store->find_winner(sample_tuning(1)));
    auto mine = sample_measurement(1, 8);
    mine.measurement.us = 1;
    EXPECT_TRUE(store->put_measurement(mine));
    EXPECT_TRUE(store->put_measurement(sample_measurement(1, 16)));
    const auto rows = store->measurements(sample_tuning(1));
    ASSERT_EQ(rows.size(), 3u);
    for (const auto& r : rows) EXPECT_EQ(r.measurement.us == 1, r.measurement.config.find("warps") == 8);
  }
  EXPECT_EQ(snapshot(dir_.path("system")), before);
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(SystemLayer, DroppedWinnerHidesTheLayersWinner) {
  auto store = Store::open(layered(&warnings_));
  EXPECT_EQ(store->winners("", "").size(), 1u);
  EXPECT_TRUE(store->drop_winner(sample_tuning(1)));
  EXPECT_FALSE(store->find_winner(sample_tuning(1)));
  EXPECT_TRUE(store->winners("", "").empty());
  EXPECT_TRUE(store->put_winner(sample_winner(1, 3.0)));
  EXPECT_EQ(store->find_winner(sample_tuning(1)).value().us, 3.0);
}

TEST_F(SystemLayer, AReplacedFileIsNoticedWhileOpen) {
  auto store = Store::open(layered(&warnings_));
  EXPECT_TRUE(store->find_artifact(sample_key(1)));
  {
    auto other = Store::open(options_for(dir_.path("other")));
    ASSERT_TRUE(other->put_artifact(sample_key(2), sample_artifact(2)));
  }
  std::filesystem::rename(store_path(dir_.path("other")), store_path(dir_.path("system")));
  EXPECT_TRUE(store->find_artifact(sample_key(2)));
  EXPECT_FALSE(store->find_artifact(sample_key(1)));
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(SystemLayer, ServesFromAReadOnlyFolder) {
  std::filesystem::permissions(store_path(dir_.path("system")), std::filesystem::perms(0444));
  std::filesystem::permissions(dir_.path("system"), std::filesystem::perms(0555));
  const int status = run_child([&] {
    if (!become_nobody()) return kCannotTryHere;
    auto store = Store::open(layered(nullptr));
    CHILD_EXPECT(store->find_artifact(sample_key(1)));
    CHILD_EXPECT(store->find_winner(sample_tuning(1)));
    CHILD_EXPECT(store->put_artifact(sample_key(2), sample_artifact(2)));
    return 0;
  });
  std::filesystem::permissions(dir_.path("system"), std::filesystem::perms(0755));
  if (status == kCannotTryHere) GTEST_SKIP() << "cannot give up root here";
  EXPECT_EQ(status, 0);
}

TEST(DefaultDirectory, PrefersTheVariableThenXdgThenHome) {
  EXPECT_EQ(default_directory("/a", "/x", "/h"), "/a");
  EXPECT_EQ(default_directory("rel", "/x", "/h"), "rel");
  EXPECT_EQ(default_directory(nullptr, "/x", "/h"), "/x/quern");
  EXPECT_EQ(default_directory("", nullptr, "/h"), "/h/.cache/quern");
  EXPECT_EQ(default_directory("", "relative", "/h"), "/h/.cache/quern");
  EXPECT_EQ(default_directory(nullptr, nullptr, nullptr), "");
  EXPECT_EQ(default_directory("", "", ""), "");
}

}  // namespace
}  // namespace quern::cache

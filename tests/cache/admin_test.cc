#include "cache/admin.h"

#include "cache/sqlite.h"
#include "tests/cache/store_fixture.h"

namespace quern::cache {
namespace {

void change(const std::string& directory, const std::string& sql) {
  auto db = sqlite::Connection::open(store_path(directory), sqlite::Connection::Mode::read_write, std::chrono::milliseconds(1000));
  ASSERT_TRUE(db && db->execute(sql.c_str()));
}

constexpr std::int64_t kNow = 1700000000;

// Six artifacts of 1000 bytes, each used a day before the next; the running generator made all but the fourth.
class Administration : public ::testing::Test {
 protected:
  void SetUp() override {
    auto store = Store::open(options_for(dir_.path()));
    for (int n = 0; n < 6; ++n) {
      auto artifact = sample_artifact(n, 1000);
      artifact.generator_version = n == 3 ? "0" : kGeneratorVersion;
      ASSERT_TRUE(store->put_artifact(sample_key(n), artifact));
    }
    ASSERT_TRUE(store->put_measurement(sample_measurement(0)));
    auto failed = sample_measurement(0, 8);
    failed.measurement.verdict = Verdict::timed_out;
    failed.measurement.unstable = true;
    ASSERT_TRUE(store->put_measurement(failed));
    ASSERT_TRUE(store->put_winner(sample_winner(0)));
    store.reset();
    for (int n = 0; n < 6; ++n)
      change(dir_.path(), "UPDATE artifacts SET last_used = " + std::to_string(kNow - (10 - n) * 86400) + " WHERE name LIKE '%#" +
                              std::to_string(n) + "'");
  }
  std::vector<std::string> removed_names(const GcReport& report) {
    std::vector<std::string> names;
    for (const auto& r : report.removed) names.push_back(r.name.substr(r.name.size() - 2));
    return names;
  }
  TempDir dir_;
};

TEST_F(Administration, ListsArtifactsAndTunings) {
  const auto artifacts = list_artifacts(dir_.path(), {});
  ASSERT_TRUE(artifacts);
  ASSERT_EQ(artifacts->size(), 6u);
  const auto& first = artifacts->front();
  EXPECT_EQ(first.key, sample_key(0).hex());
  EXPECT_EQ(first.name, "gemv_q8 q4_0 #0");
  EXPECT_EQ(first.target, "sm_90a");
  EXPECT_EQ(first.bytes, 1000);
  EXPECT_EQ(first.last_used_unix, kNow - 10 * 86400);
  EXPECT_GT(first.created_unix, 1700000000);
  const auto tunings = list_tunings(dir_.path(), {});
  ASSERT_TRUE(tunings);
  ASSERT_EQ(tunings->size(), 1u);
  EXPECT_EQ(tunings->front().measured, 2);
  EXPECT_EQ(tunings->front().failed, 1);
  EXPECT_EQ(tunings->front().unstable, 1);
  ASSERT_TRUE(tunings->front().winner);
  EXPECT_TRUE(same(*tunings->front().winner, sample_winner(0)));
}

TEST_F(Administration, ShowsByUniquePrefix) {
  const std::string key = sample_key(0).hex();
  std::string prefix = key.substr(0, 12);
  for (auto& c : prefix) c = static_cast<char>(toupper(c));
  const auto details = show(dir_.path(), prefix, {});
  ASSERT_TRUE(details) << details.error().message;
  ASSERT_EQ(details->size(), 1u);
  EXPECT_EQ(details->front().info.key, key);
  EXPECT_TRUE(details->front().intact);
  EXPECT_EQ(details->front().key_dump, sample_artifact(0).key_dump);
  EXPECT_EQ(details->front().usage_json, sample_artifact(0).usage_json);
  EXPECT_EQ(details->front().measured_as.size(), 2u);
  for (const std::string& bad : {std::string(), std::string("xyz"), std::string(65, 'a'), std::string(64, '0')})
    EXPECT_EQ(show(dir_.path(), bad, {}).error().code, ErrorCode::kInvalidArgument) << bad;
}

TEST_F(Administration, AnAmbiguousPrefixIsRefused) {
  std::map<char, int> by_first;
  char shared = 0;
  auto store = Store::open(options_for(dir_.path()));
  for (int n = 10; n < 30; ++n) {
    ASSERT_TRUE(store->put_artifact(sample_key(n), sample_artifact(n)));
    if (++by_first[sample_key(n).hex()[0]] == 2) shared = sample_key(n).hex()[0];
  }
  const auto details = show(dir_.path(), std::string(1, shared), {});
  ASSERT_FALSE(details);
  EXPECT_NE(details.error().message.find("need more digits"), std::string::npos);
}

TEST_F(Administration, AnAbsentStoreReadsAsEmpty) {
  EXPECT_TRUE(list_artifacts(dir_.path("none"), {}).value().empty());
  EXPECT_TRUE(list_tunings(dir_.path("none"), {}).value().empty());
  EXPECT_TRUE(verify(dir_.path("none")).value().ok());
  EXPECT_TRUE(gc(dir_.path("none"), {}).value().removed.empty());
  EXPECT_FALSE(std::filesystem::exists(dir_.path("none")));
  EXPECT_EQ(store_file("/a/b"), "/a/b/store-v1.sqlite");
}

TEST_F(Administration, LookingDoesNotChangeTheFile) {
  const auto before = snapshot(dir_.path());
  ASSERT_TRUE(list_artifacts(dir_.path(), {}));
  ASSERT_TRUE(list_tunings(dir_.path(), {}));
  ASSERT_TRUE(show(dir_.path(), sample_key(0).hex(), {}));
  GcOptions dry;
  dry.dry_run = true;
  dry.max_bytes = 0;
  ASSERT_TRUE(gc(dir_.path(), dry));
  EXPECT_EQ(snapshot(dir_.path()), before);
}

TEST_F(Administration, VerifyFindsAndMarksWhatFailsItsHash) {
  EXPECT_TRUE(verify(dir_.path()).value().ok());
  change(dir_.path(),
         "UPDATE artifacts SET log = log || 'x' WHERE name LIKE '%#2'; UPDATE winners SET config = 'gemv_q8:warps=99'; "
         "UPDATE measurements SET us = us / 2 WHERE verdict = 'ok'");
  const auto report = verify(dir_.path());
  ASSERT_TRUE(report);
  EXPECT_EQ(report->artifacts, 6);
  EXPECT_EQ(report->measurements, 2);
  EXPECT_EQ(report->winners, 1);
  ASSERT_EQ(report->bad.size(), 3u);
  EXPECT_EQ(report->bad[0].table + " " + report->bad[0].row, "artifacts " + sample_key(2).hex());
  EXPECT_EQ(report->bad[1].table, "measurements");
  EXPECT_EQ(report->bad[2].table, "winners");
  int marked = 0;
  for (const auto& a : artifacts_in(dir_.path())) marked += a.bad;
  EXPECT_EQ(marked, 1);
}

TEST_F(Administration, VerifyReportsADamagedStructure) {
  auto bytes = read_bytes(store_path(dir_.path()));
  bytes.resize(bytes.size() - 8192);
  write_bytes(store_path(dir_.path()), bytes);
  const auto report = verify(dir_.path());
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_FALSE(report->ok());
  EXPECT_EQ(report->bad[0].table, "file");
}

// Oldest first, whoever made it; the winner's kernel (oldest of all) and today's go last.
TEST_F(Administration, GcTakesTheLeastRecentlyUsedAndSparesTheLive) {
  change(dir_.path(), "UPDATE artifacts SET last_used = " + std::to_string(kNow - 60) + " WHERE name LIKE '%#5'");
  GcOptions options;
  options.now_unix = kNow;
  options.max_bytes = 3000;
  options.dry_run = true;
  const auto dry = gc(dir_.path(), options);
  ASSERT_TRUE(dry);
  EXPECT_EQ(removed_names(*dry), (std::vector<std::string>{"#1", "#2", "#3"}));
  EXPECT_EQ(list_artifacts(dir_.path(), {}).value().size(), 6u);

  options.dry_run = false;
  const auto real = gc(dir_.path(), options);
  ASSERT_TRUE(real);
  EXPECT_EQ(removed_names(*real), removed_names(*dry));
  EXPECT_EQ(real->bytes_before, 6000);
  EXPECT_EQ(real->bytes_after, 3000);
  EXPECT_EQ(list_artifacts(dir_.path(), {}).value().size(), 3u);

  options.max_bytes = 0;
  const auto rest = gc(dir_.path(), options);
  ASSERT_TRUE(rest);
  EXPECT_EQ(removed_names(*rest), (std::vector<std::string>{"#4", "#0", "#5"}));
  EXPECT_FALSE(rest->removed[0].live);
  EXPECT_TRUE(rest->removed[1].live);
  EXPECT_EQ(list_tunings(dir_.path(), {}).value().size(), 1u);  // tunings are never evicted
  options.max_bytes = -1;
  EXPECT_EQ(gc(dir_.path(), options).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(Administration, GcSparesAnotherGeneratorsRowsThatAreUsed) {
  change(dir_.path(), "UPDATE artifacts SET last_used = " + std::to_string(kNow) + " WHERE name LIKE '%#3'");
  GcOptions options;
  options.now_unix = kNow + 2 * 86400;  // nothing of ours was used within a day
  options.max_bytes = 2000;
  EXPECT_EQ(removed_names(gc(dir_.path(), options).value()), (std::vector<std::string>{"#1", "#2", "#4", "#5"}));
}

TEST_F(Administration, GcGivesTheSpaceBack) {
  {
    auto store = Store::open(options_for(dir_.path()));
    for (int n = 20; n < 40; ++n) ASSERT_TRUE(store->put_artifact(sample_key(n), sample_artifact(n, 50000)));
  }
  const auto before = std::filesystem::file_size(store_path(dir_.path()));
  GcOptions options;
  options.max_bytes = 0;
  ASSERT_TRUE(gc(dir_.path(), options));
  EXPECT_LT(std::filesystem::file_size(store_path(dir_.path())), before / 10);
}

TEST_F(Administration, AHitKeepsAnArtifactYoung) {
  ASSERT_TRUE(Store::open(options_for(dir_.path()))->find_artifact(sample_key(1)));
  for (const auto& a : artifacts_in(dir_.path())) EXPECT_EQ(a.last_used_unix > time(nullptr) - 60, a.key == sample_key(1).hex()) << a.name;
}

}  // namespace
}  // namespace quern::cache

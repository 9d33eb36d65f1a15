// Whatever happens to the file: every row reads back as it was written, or not at all.
#include <gtest/gtest.h>

#include "cache/admin.h"
#include "cache/sqlite.h"
#include "tests/cache/store_fixture.h"

namespace quern::cache {
namespace {

constexpr int kRows = 8;

void fill(const std::string& directory) {
  auto store = Store::open(options_for(directory));
  for (int n = 0; n < kRows; ++n) {
    ASSERT_TRUE(store->put_artifact(sample_key(n), sample_artifact(n, 1500 + 700 * static_cast<std::size_t>(n))));
    ASSERT_TRUE(store->put_measurement(sample_measurement(n)));
    ASSERT_TRUE(store->put_winner(sample_winner(n)));
  }
}

struct Found {
  int artifacts = 0, measurements = 0, winners = 0, wrong = 0;
  int all() const { return artifacts + measurements + winners; }
};

Found read_all(Store& store) {
  Found found;
  for (int n = 0; n < kRows; ++n) {
    if (const auto a = store.find_artifact(sample_key(n)))
      ++(same(*a, sample_artifact(n, 1500 + 700 * static_cast<std::size_t>(n))) ? found.artifacts : found.wrong);
    for (const auto& m : store.measurements(sample_tuning(n))) ++(same(m, sample_measurement(n)) ? found.measurements : found.wrong);
    if (const auto w = store.find_winner(sample_tuning(n))) ++(same(*w, sample_winner(n)) ? found.winners : found.wrong);
  }
  for (const auto& w : store.winners("", "")) {
    bool known = false;
    for (int n = 0; n < kRows; ++n) known = known || same(w, sample_winner(n));
    found.wrong += !known;
  }
  return found;
}

TEST(DamagedStore, TruncatedAnywhereIsAMissOrIntact) {
  TempDir dir;
  fill(dir.path("good"));
  const std::string good = read_bytes(store_path(dir.path("good")));
  ASSERT_GT(good.size(), 40000u);
  std::vector<std::size_t> cuts;
  for (std::size_t n = 0; n < 100; n += 3) cuts.push_back(n);
  for (std::size_t n = 100; n < good.size(); n += 509) cuts.push_back(n);
  for (std::size_t n = 4096; n < good.size(); n += 4096) cuts.push_back(n);
  std::filesystem::create_directories(dir.path("cut"));
  for (const std::size_t cut : cuts) {
    for (const auto& entry : std::filesystem::directory_iterator(dir.path("cut"))) std::filesystem::remove(entry.path());
    write_bytes(store_path(dir.path("cut")), good.substr(0, cut));
    std::vector<std::string> warnings;
    auto store = Store::open(options_for(dir.path("cut"), &warnings));
    const Found found = read_all(*store);
    EXPECT_EQ(found.wrong, 0) << "cut at " << cut;
    EXPECT_GE(warnings.size(), 1u) << "cut at " << cut;
    EXPECT_LE(warnings.size(), 5u) << "cut at " << cut << ": " << warnings.back();
    const auto made = store->find_or_make(
        sample_key(0), []() -> Result<Artifact> { return sample_artifact(0, 1500); }, nullptr);
    EXPECT_TRUE(made && same(*made, sample_artifact(0, 1500))) << "cut at " << cut;
  }
}

TEST(DamagedStore, AnyFlippedByteIsAMissOrIntact) {
  TempDir dir;
  fill(dir.path("good"));
  const std::string good = read_bytes(store_path(dir.path("good")));
  std::filesystem::create_directories(dir.path("flip"));
  int missed = 0;
  for (std::size_t at = 0; at < good.size(); at += at < 128 ? 1 : 83) {
    for (const auto& entry : std::filesystem::directory_iterator(dir.path("flip"))) std::filesystem::remove(entry.path());
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << at % 8));
    write_bytes(store_path(dir.path("flip")), bytes);
    auto store = Store::open(options_for(dir.path("flip")));
    const Found found = read_all(*store);
    EXPECT_EQ(found.wrong, 0) << "flipped at " << at;
    missed += found.all() < 3 * kRows;
    if (at % 16 == 0) (void)store->put_artifact(sample_key(100), sample_artifact(100));
  }
  EXPECT_GT(missed, 100);  // the flips did hit rows
}

// A crash leaves the -wal file behind, cut anywhere: what was committed before the cut is there, in order, the rest is not.
TEST(DamagedStore, TruncatedLogKeepsAPrefixOfTheRows) {
  TempDir dir;
  ASSERT_EQ(run_child([&] {
              auto store = Store::open(options_for(dir.path("good")));
              for (int n = 0; n < kRows; ++n) CHILD_EXPECT(store->put_measurement(sample_measurement(n)));
              _exit(0);  // as a crash does: no close, no checkpoint
            }),
            0);
  const auto files = snapshot(dir.path("good"));
  const std::string wal = files.at("store-v1.sqlite-wal");
  ASSERT_GT(wal.size(), 20000u);
  std::filesystem::create_directories(dir.path("cut"));
  int last = 0;
  for (std::size_t cut = 0; cut <= wal.size(); cut += cut + 1021 > wal.size() && cut < wal.size() ? wal.size() - cut : 1021) {
    for (const auto& entry : std::filesystem::directory_iterator(dir.path("cut"))) std::filesystem::remove(entry.path());
    write_bytes(store_path(dir.path("cut")), files.at("store-v1.sqlite"));
    write_bytes(store_path(dir.path("cut")) + "-wal", wal.substr(0, cut));
    auto store = Store::open(options_for(dir.path("cut")));
    const Found found = read_all(*store);
    EXPECT_EQ(found.wrong, 0);
    EXPECT_GE(found.measurements, last) << "cut at " << cut;
    for (int n = 0; n < found.measurements; ++n) EXPECT_EQ(store->measurements(sample_tuning(n)).size(), 1u) << "cut at " << cut;
    last = found.measurements;
  }
  EXPECT_EQ(last, kRows);
}

// SQLite sees nothing wrong here: only the row's hash does.
TEST(DamagedStore, AnArtifactThatFailsItsHashIsMarkedAndMadeAgain) {
  TempDir dir;
  fill(dir.path());
  {
    auto db = sqlite::Connection::open(store_path(dir.path()), sqlite::Connection::Mode::read_write, std::chrono::milliseconds(1000));
    ASSERT_TRUE(db);
    ASSERT_TRUE(db->execute(
        "UPDATE artifacts SET bytes = zeroblob(size) WHERE name LIKE '%#3'; UPDATE artifacts SET target = 'sm_80' WHERE name LIKE '%#4'"));
    ASSERT_TRUE(
        db->execute("UPDATE winners SET us = 1 WHERE problem LIKE '% m=5 %'; UPDATE measurements SET verdict = 'rejected' WHERE problem "
                    "LIKE '% m=6 %'"));
  }
  std::vector<std::string> warnings;
  {
    auto store = Store::open(options_for(dir.path(), &warnings));
    EXPECT_FALSE(store->find_artifact(sample_key(3)));
    EXPECT_FALSE(store->find_artifact(sample_key(4)));
    EXPECT_FALSE(store->find_artifact(sample_key(3)));
    EXPECT_FALSE(store->find_winner(sample_tuning(5)));
    EXPECT_TRUE(store->measurements(sample_tuning(6)).empty());
    EXPECT_EQ(warnings.size(), 3u);  // one for artifacts, one for winners, one for measurements
  }
  int marked = 0;
  for (const auto& a : artifacts_in(dir.path())) marked += a.bad && a.why_not == "does not match its hash; replaced at the next compile";
  EXPECT_EQ(marked, 2);
  warnings.clear();
  auto store = Store::open(options_for(dir.path(), &warnings));
  bool made = false;
  ASSERT_TRUE(store->find_or_make(
      sample_key(3), []() -> Result<Artifact> { return sample_artifact(3); }, &made));
  EXPECT_TRUE(made);
  EXPECT_TRUE(same(store->find_artifact(sample_key(3)).value(), sample_artifact(3)));
  EXPECT_TRUE(warnings.empty());  // a marked row was reported when it was marked
}

}  // namespace
}  // namespace quern::cache

// export_store and import_store: what travels, what wins, and what is refused without a trace.
#include <gtest/gtest.h>

#include "cache/admin.h"
#include "cache/sqlite.h"
#include "tests/cache/store_fixture.h"

namespace quern::cache {
namespace {

void change(const std::string& file, const std::string& sql) {
  auto db = sqlite::Connection::open(file, sqlite::Connection::Mode::read_write, std::chrono::milliseconds(1000));
  ASSERT_TRUE(db);
  const auto done = db->execute(sql.c_str());
  ASSERT_TRUE(done) << done.error().message;
}

class Exchange : public ::testing::Test {
 protected:
  void SetUp() override {
    auto store = Store::open(options_for(from_));
    for (int n = 0; n < 4; ++n) {
      auto artifact = sample_artifact(n);
      artifact.generator_version = n == 3 ? "0" : kGeneratorVersion;
      ASSERT_TRUE(store->put_artifact(sample_key(n), artifact));
      ASSERT_TRUE(store->put_measurement(sample_measurement(n)));
      ASSERT_TRUE(store->put_winner(sample_winner(n)));
    }
    ASSERT_TRUE(store->drop_winner(sample_tuning(3)));
    store.reset();
    const auto report = export_store(from_, file_);
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_EQ(report->artifacts, 4);
    EXPECT_EQ(report->measurements, 4);
    EXPECT_EQ(report->winners, 3);
    EXPECT_EQ(report->left, 1);
  }
  // Refused with one error, and the store is byte for byte what it was.
  void expect_refused(const std::string& file, ErrorCode code, const std::string& part) {
    const auto before = snapshot(to_);
    const auto report = import_store(to_, file);
    ASSERT_FALSE(report) << part;
    EXPECT_EQ(report.error().code, code) << report.error().message;
    EXPECT_NE(report.error().message.find(part), std::string::npos) << report.error().message;
    EXPECT_EQ(report.error().message.find('\n'), std::string::npos);
    EXPECT_EQ(snapshot(to_), before);
  }
  void fill_target() {
    auto store = Store::open(options_for(to_));
    ASSERT_TRUE(store->put_artifact(sample_key(7), sample_artifact(7)));
    ASSERT_TRUE(store->put_winner(sample_winner(7)));
  }
  TempDir dir_;
  const std::string from_ = dir_.path("from"), to_ = dir_.path("to"), file_ = dir_.path("kernels ?100%.sqlite");
};

TEST_F(Exchange, ARoundTripBringsEveryRow) {
  std::filesystem::create_directories(dir_.path("alone"));
  EXPECT_EQ(snapshot(dir_.path()).size(), 3u);  // from, alone and one file: no -wal beside it
  const auto report = import_store(to_, file_);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->artifacts, 4);
  EXPECT_EQ(report->measurements, 4);
  EXPECT_EQ(report->winners, 3);
  EXPECT_EQ(report->kept, 0);
  auto store = Store::open(options_for(to_));
  for (int n = 0; n < 3; ++n) {
    EXPECT_TRUE(same(store->find_artifact(sample_key(n)).value(), sample_artifact(n)));
    EXPECT_TRUE(same(store->measurements(sample_tuning(n)).at(0), sample_measurement(n)));
    EXPECT_TRUE(same(store->find_winner(sample_tuning(n)).value(), sample_winner(n)));
  }
  EXPECT_FALSE(store->find_artifact(sample_key(3)));  // generator 0's, imported as such
  auto older = options_for(to_);
  older.generator_version = "0";
  EXPECT_TRUE(Store::open(older)->find_artifact(sample_key(3)));
  EXPECT_FALSE(store->find_winner(sample_tuning(3)));
  store.reset();
  const auto again = import_store(to_, file_);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->artifacts + again->measurements + again->winners, 0);
  EXPECT_EQ(again->kept, 11);
}

TEST_F(Exchange, AnExportServesAsALayer) {
  std::filesystem::create_directories(dir_.path("layer"));
  std::filesystem::rename(file_, store_path(dir_.path("layer")));
  auto options = options_for("");
  options.system_directories = {dir_.path("layer")};
  EXPECT_TRUE(Store::open(options)->find_artifact(sample_key(1)));
  EXPECT_TRUE(Store::open(options_for(dir_.path("layer")))->put_artifact(sample_key(9), sample_artifact(9)));  // and as a user's store
}

TEST_F(Exchange, AnExistingFileIsNotOverwritten) {
  write_bytes(dir_.path("mine"), "mine");
  EXPECT_EQ(export_store(from_, dir_.path("mine")).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(read_bytes(dir_.path("mine")), "mine");
  EXPECT_FALSE(export_store(from_, dir_.path("no/such/folder/file")));
  EXPECT_EQ(snapshot(dir_.path()).size(), 3u);  // no draft left
}

TEST_F(Exchange, NewerOrBetterRowsOfTheStoreStay) {
  auto newer = sample_measurement(0), older = sample_measurement(1), unstable = sample_measurement(2);
  newer.created_unix += 10, older.created_unix -= 10, unstable.created_unix -= 10;
  newer.measurement.us = older.measurement.us = unstable.measurement.us = 1;
  unstable.measurement.unstable = true;
  auto newer_slower = sample_winner(0, 20), older_faster = sample_winner(1, 1), older_slower = sample_winner(2, 20);
  newer_slower.created_unix += 10, older_faster.created_unix -= 10, older_slower.created_unix -= 10;
  {
    auto store = Store::open(options_for(to_));
    auto other = sample_artifact(40);
    ASSERT_TRUE(store->put_artifact(sample_key(0), other));
    for (const auto& m : {newer, older, unstable}) ASSERT_TRUE(store->put_measurement(m));
    for (const auto& w : {newer_slower, older_faster, older_slower}) ASSERT_TRUE(store->put_winner(w));
  }
  const auto report = import_store(to_, file_);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->kept, 1 + 1 + 2);
  auto store = Store::open(options_for(to_));
  EXPECT_TRUE(same(store->find_artifact(sample_key(0)).value(), sample_artifact(40)));
  EXPECT_TRUE(same(store->measurements(sample_tuning(0)).at(0), newer));
  EXPECT_TRUE(same(store->measurements(sample_tuning(1)).at(0), sample_measurement(1)));
  EXPECT_TRUE(same(store->measurements(sample_tuning(2)).at(0), sample_measurement(2)));
  EXPECT_TRUE(same(store->find_winner(sample_tuning(0)).value(), newer_slower));
  EXPECT_TRUE(same(store->find_winner(sample_tuning(1)).value(), older_faster));
  EXPECT_TRUE(same(store->find_winner(sample_tuning(2)).value(), sample_winner(2)));
}

TEST_F(Exchange, AnUnstableTimingDoesNotReplaceAStableOne) {
  auto stable = sample_measurement(0), busy = sample_measurement(0);
  busy.measurement.unstable = true;
  busy.created_unix += 100;
  ASSERT_TRUE(Store::open(options_for(to_))->put_measurement(stable));
  ASSERT_TRUE(Store::open(options_for(dir_.path("busy")))->put_measurement(busy));
  ASSERT_TRUE(export_store(dir_.path("busy"), dir_.path("busy.sqlite")));
  ASSERT_TRUE(import_store(to_, dir_.path("busy.sqlite")));
  EXPECT_TRUE(same(Store::open(options_for(to_))->measurements(stable.key).at(0), stable));
}

TEST_F(Exchange, ADamagedRowOfTheStoreIsHealedByAnImport) {
  ASSERT_TRUE(import_store(to_, file_));
  change(store_path(to_),
         "UPDATE artifacts SET bytes = zeroblob(10) WHERE name LIKE '%#1'; UPDATE winners SET us = 0 WHERE problem LIKE '% m=2 %'");
  const auto report = import_store(to_, file_);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->artifacts, 1);
  EXPECT_EQ(report->winners, 1);
  EXPECT_TRUE(verify(to_).value().ok());
}

TEST_F(Exchange, HostileFilesAreRefusedAndTheStoreIsAsItWas) {
  fill_target();
  expect_refused(dir_.path("absent"), ErrorCode::kInvalidArgument, "no such file");
  expect_refused(store_path(to_), ErrorCode::kInvalidArgument, "is the store itself");
  write_bytes(dir_.path("garbage"), std::string(5000, 'g'));
  expect_refused(dir_.path("garbage"), ErrorCode::kCorrupt, "not a");
  write_bytes(dir_.path("empty"), "");
  expect_refused(dir_.path("empty"), ErrorCode::kCorrupt, "not a");
  std::filesystem::create_directories(dir_.path("folder"));
  expect_refused(dir_.path("folder"), ErrorCode::kInvalidArgument, "is not a regular file");

  const auto altered = [&](const std::string& name, const std::string& sql) {
    std::filesystem::copy_file(file_, dir_.path(name));
    change(dir_.path(name), sql);
    return dir_.path(name);
  };
  expect_refused(altered("newer", "PRAGMA user_version = 2"), ErrorCode::kVersionMismatch, "schema version 2");
  expect_refused(altered("older", "PRAGMA user_version = 0"), ErrorCode::kVersionMismatch, "schema version 0");
  expect_refused(altered("other", "PRAGMA application_id = 1"), ErrorCode::kCorrupt, "not a quern store");
  expect_refused(altered("trigger", "CREATE TRIGGER t AFTER INSERT ON winners BEGIN DELETE FROM artifacts; END"), ErrorCode::kCorrupt,
                 "trigger t");
  expect_refused(
      altered("view",
              "DROP TABLE winners; CREATE VIEW winners AS WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM r) SELECT x FROM r"),
      ErrorCode::kCorrupt, "view winners");
  expect_refused(altered("dropped", "DROP TABLE winners"), ErrorCode::kCorrupt, "tables and indexes");
  expect_refused(altered("bytes", "UPDATE artifacts SET bytes = zeroblob(size) WHERE name LIKE '%#3'"), ErrorCode::kCorrupt,
                 "does not match its hash");
  expect_refused(altered("size", "UPDATE artifacts SET size = 1"), ErrorCode::kCorrupt, "does not match its hash");
  expect_refused(altered("huge", "UPDATE artifacts SET bytes = zeroblob(100000000), size = 100000000 WHERE name LIKE '%#3'"),
                 ErrorCode::kCorrupt, "hash");
  expect_refused(altered("us", "UPDATE winners SET us = 0.001"), ErrorCode::kCorrupt, "does not match its hash");
  expect_refused(altered("moved", "UPDATE measurements SET device = 'NVIDIA A100'"), ErrorCode::kCorrupt, "does not match its hash");
}

TEST_F(Exchange, ATruncatedFileIsRefusedOrWhole) {
  fill_target();
  const std::string whole = read_bytes(file_);
  const auto before = snapshot(to_);
  for (std::size_t cut = 0; cut < whole.size(); cut += 3001) {
    write_bytes(dir_.path("cut"), whole.substr(0, cut));
    EXPECT_FALSE(import_store(to_, dir_.path("cut"))) << cut;
    EXPECT_EQ(snapshot(to_), before) << cut;
  }
}

}  // namespace
}  // namespace quern::cache

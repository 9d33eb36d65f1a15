// A failing store is a miss: the caller goes on, with one warning per kind of trouble (field cases 30 and 36).
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include "cache/admin.h"
#include "cache/sqlite.h"
#include "tests/cache/store_fixture.h"

namespace quern::cache {
namespace {

// Every call, several times over: look-ups miss, puts are dropped, make runs. Returns a line number, or 0.
int use_without_a_store(Store& store) {
  for (int i = 0; i < 3; ++i) {
    CHILD_EXPECT(!store.find_artifact(sample_key(1)));
    CHILD_EXPECT(!store.put_artifact(sample_key(1), sample_artifact(1)));
    bool made = false;
    const auto artifact = store.find_or_make(
        sample_key(1), []() -> Result<Artifact> { return sample_artifact(1); }, &made);
    CHILD_EXPECT(artifact && made && same(*artifact, sample_artifact(1)));
    CHILD_EXPECT(store.measurements(sample_tuning(1)).empty());
    CHILD_EXPECT(!store.put_measurement(sample_measurement(1)));
    CHILD_EXPECT(!store.put_winner(sample_winner(1)));
    CHILD_EXPECT(!store.find_winner(sample_tuning(1)));
    CHILD_EXPECT(!store.drop_winner(sample_tuning(1)));
    CHILD_EXPECT(store.winners("", "").empty());
  }
  return 0;
}

void expect_one_warning(const std::string& directory, const std::string& part) {
  std::vector<std::string> warnings;
  auto store = Store::open(options_for(directory, &warnings));
  EXPECT_EQ(use_without_a_store(*store), 0) << directory;
  ASSERT_EQ(warnings.size(), 1u) << directory;
  EXPECT_NE(warnings[0].find(part), std::string::npos) << warnings[0];
}

TEST(FailingStore, NoDirectory) { expect_one_warning(default_directory(nullptr, nullptr, nullptr), "HOME"); }

TEST(FailingStore, AFileInTheDirectorysPlace) {
  TempDir dir;
  write_bytes(dir.path("file"), "mine");
  expect_one_warning(dir.path("file"), "cannot make its folder");
  expect_one_warning(dir.path("file/below"), "cannot make its folder");
  EXPECT_EQ(read_bytes(dir.path("file")), "mine");
}

// While it is open, by hand or by another program: rows written afterwards are in the store that is there then, and it stays whole.
TEST(FailingStore, AStoreThatIsRemovedOrReplacedIsOpenedAnew) {
  for (const std::string how : {"removed", "replaced", "moved"}) {
    SCOPED_TRACE(how);
    TempDir dir;
    const std::string folder = dir.path("s");
    // In a process of its own: the connection that is given up stays open to its end, and no store may be opened behind a fork of it.
    EXPECT_EQ(run_child([&] {
                std::vector<std::string> warnings;
                {
                  auto store = Store::open(options_for(folder, &warnings));
                  CHILD_EXPECT(store->put_measurement(sample_measurement(1)));
                  if (how == "moved")
                    std::filesystem::rename(folder, dir.path("t"));
                  else
                    std::filesystem::remove_all(folder);
                  if (how == "replaced") CHILD_EXPECT(Store::open(options_for(folder))->put_measurement(sample_measurement(2)));
                  CHILD_EXPECT(store->put_measurement(sample_measurement(3)));
                  CHILD_EXPECT(store->put_measurement(sample_measurement(4)));
                }
                CHILD_EXPECT(warnings.size() == 1 && warnings[0].find("was removed or replaced") != std::string::npos);
                return 0;
              }),
              0);
    EXPECT_TRUE(verify(folder).value().ok());
    auto after = Store::open(options_for(folder));
    EXPECT_EQ(after->measurements(sample_tuning(2)).size(), how == "replaced" ? 1u : 0u);
    for (const int n : {3, 4}) EXPECT_EQ(after->measurements(sample_tuning(n)).size(), 1u) << n;
    if (how == "moved") {
      EXPECT_EQ(Store::open(options_for(dir.path("t")))->measurements(sample_tuning(1)).size(), 1u);
    }
  }
}

TEST(FailingStore, AFolderInTheFilesPlace) {
  TempDir dir;
  std::filesystem::create_directories(store_path(dir.path()));
  expect_one_warning(dir.path(), "store-v1.sqlite: ");
}

TEST(FailingStore, GarbageInTheFilesPlaceIsLeftAlone) {
  TempDir dir;
  for (const std::string& garbage :
       {std::string("#!/bin/sh\necho no database\n"), std::string(100000, 'x'), std::string(), std::string(4096, '\0')}) {
    write_bytes(store_path(dir.path()), garbage);
    expect_one_warning(dir.path(), "not a");
    EXPECT_EQ(read_bytes(store_path(dir.path())), garbage);
  }
}

TEST(FailingStore, AnotherProgramsDatabaseIsLeftAlone) {
  TempDir dir;
  {
    auto db = sqlite::Connection::open(store_path(dir.path()), sqlite::Connection::Mode::create, std::chrono::milliseconds(1000));
    ASSERT_TRUE(db && db->execute("CREATE TABLE notes(text); INSERT INTO notes VALUES('precious')"));
  }
  const auto before = snapshot(dir.path());
  expect_one_warning(dir.path(), "not a quern store");
  EXPECT_EQ(snapshot(dir.path()), before);
}

TEST(FailingStore, AFolderThatCannotBeWritten) {
  TempDir dir;
  std::filesystem::create_directories(dir.path("locked"));
  std::filesystem::permissions(dir.path("locked"), std::filesystem::perms(0555));
  const int status = run_child([&] {
    if (!become_nobody()) return kCannotTryHere;
    for (const auto& directory : {dir.path("locked"), dir.path("locked/below")}) {
      std::vector<std::string> warnings;
      auto store = Store::open(options_for(directory, &warnings));
      CHILD_EXPECT(use_without_a_store(*store) == 0);
      CHILD_EXPECT(warnings.size() == 1);
    }
    return 0;
  });
  if (status == kCannotTryHere) GTEST_SKIP() << "cannot give up root here";
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(std::filesystem::is_empty(dir.path("locked")));
}

TEST(FailingStore, AReadOnlyStoreIsStillRead) {
  TempDir dir;
  {
    auto store = Store::open(options_for(dir.path("ro")));
    ASSERT_TRUE(store->put_artifact(sample_key(1), sample_artifact(1)));
  }
  std::filesystem::permissions(dir.path("ro"), std::filesystem::perms(0555));
  const int status = run_child([&] {
    if (!become_nobody()) return kCannotTryHere;
    std::vector<std::string> warnings;
    auto store = Store::open(options_for(dir.path("ro"), &warnings));
    CHILD_EXPECT(store->find_artifact(sample_key(1)));
    CHILD_EXPECT(warnings.empty());
    CHILD_EXPECT(!store->put_artifact(sample_key(2), sample_artifact(2)));
    CHILD_EXPECT(!store->put_measurement(sample_measurement(2)));
    CHILD_EXPECT(warnings.size() == 1 && warnings[0].find("read-only") != std::string::npos);
    return 0;
  });
  std::filesystem::permissions(dir.path("ro"), std::filesystem::perms(0755));
  if (status == kCannotTryHere) GTEST_SKIP() << "cannot give up root here";
  EXPECT_EQ(status, 0);
}

TEST(FailingStore, LockedByAnotherProcessIsReadAndNotWritten) {
  TempDir dir;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(run_child([&] { return Store::open(options_for(dir.path()))->put_artifact(sample_key(1), sample_artifact(1)) ? 0 : 1; }), 0);
  const pid_t holder = start_child([&] {
    auto db = sqlite::Connection::open(store_path(dir.path()), sqlite::Connection::Mode::read_write, std::chrono::milliseconds(1000));
    CHILD_EXPECT(db && db->execute("BEGIN EXCLUSIVE"));
    CHILD_EXPECT(write(ready[1], "x", 1) == 1);
    pause();
    return 0;
  });
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  std::vector<std::string> warnings;
  auto options = options_for(dir.path(), &warnings);
  options.busy_timeout = std::chrono::milliseconds(50);
  auto store = Store::open(options);
  EXPECT_TRUE(store->find_artifact(sample_key(1)));
  EXPECT_FALSE(store->put_artifact(sample_key(2), sample_artifact(2)));
  EXPECT_FALSE(store->put_winner(sample_winner(2)));
  EXPECT_TRUE(store->find_or_make(
      sample_key(2), []() -> Result<Artifact> { return sample_artifact(2); }, nullptr));
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("locked"), std::string::npos) << warnings[0];
  kill(holder, SIGKILL);
  exit_status(holder);
  close(ready[0]), close(ready[1]);
  EXPECT_TRUE(store->put_artifact(sample_key(2), sample_artifact(2)));  // and the store recovers by itself
}

// Puts until one is dropped, then goes on without: in a child, because the limits are the process's.
// `make_room` is called before the store is verified: a full disk has no room for the reader's index of the log.
int fill_until_full(const std::string& directory, const std::function<bool()>& make_room) {
  std::vector<std::string> warnings;
  auto store = Store::open(options_for(directory, &warnings));
  int kept = 0;
  while (kept < 1000 && store->put_artifact(sample_key(kept), sample_artifact(kept, 20000))) ++kept;
  CHILD_EXPECT(kept > 0 && kept < 1000);
  CHILD_EXPECT(warnings.size() == 1);
  bool made = false;
  const auto artifact = store->find_or_make(
      sample_key(kept), [&]() -> Result<Artifact> { return sample_artifact(kept, 20000); }, &made);
  CHILD_EXPECT(artifact && made && same(*artifact, sample_artifact(kept, 20000)));
  CHILD_EXPECT(!store->find_artifact(sample_key(kept)));
  for (int n = 0; n < kept; ++n) {
    const auto found = store->find_artifact(sample_key(n));
    CHILD_EXPECT(found && same(*found, sample_artifact(n, 20000)));
  }
  CHILD_EXPECT(warnings.size() == 1);
  store.reset();
  CHILD_EXPECT(make_room());
  const auto report = verify(directory);
  if (!report) fprintf(stderr, "%s\n", report.error().message.c_str());
  CHILD_EXPECT(report);
  for (const auto& bad : report->bad) fprintf(stderr, "%s %s: %s\n", bad.table.c_str(), bad.row.c_str(), bad.reason.c_str());
  CHILD_EXPECT(report->ok());
  CHILD_EXPECT(report->artifacts == kept);
  return 0;
}

TEST(FullStore, ATinyDiskGetsNoPartialRow) {
  TempDir dir;
  const int status = run_child([&] {
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return kCannotTryHere;
    if (mount("tmpfs", dir.path().c_str(), "tmpfs", 0, "size=600k") != 0) return kCannotTryHere;
    return fill_until_full(dir.path(), [&] { return mount("tmpfs", dir.path().c_str(), "tmpfs", MS_REMOUNT, "size=8m") == 0; });
  });
  if (status == kCannotTryHere) GTEST_SKIP() << "cannot mount here";
  EXPECT_EQ(status, 0);
}

TEST(FullStore, AFileSizeLimitGetsNoPartialRow) {
  TempDir dir;
  EXPECT_EQ(run_child([&] {
              signal(SIGXFSZ, SIG_IGN);
              const rlimit limit{300000, 300000};
              if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
              return fill_until_full(dir.path(), [] { return true; });
            }),
            0);
}

TEST(FullStore, ADiskWithoutRoomForAnEmptyStore) {
  TempDir dir;
  EXPECT_EQ(run_child([&] {
              signal(SIGXFSZ, SIG_IGN);
              const rlimit limit{1000, 1000};
              if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
              std::vector<std::string> warnings;
              auto store = Store::open(options_for(dir.path(), &warnings));
              CHILD_EXPECT(use_without_a_store(*store) == 0);
              CHILD_EXPECT(warnings.size() == 1);
              return 0;
            }),
            0);
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));  // no draft left behind
}

// Field case 36: a finite size that spares what is in use.
TEST(FullStore, APutBeyondTheLimitEvictsTheLeastRecentlyUsed) {
  TempDir dir;
  auto options = options_for(dir.path());
  options.max_bytes = 100000;
  auto store = Store::open(options);
  ASSERT_TRUE(store->put_artifact(sample_key(0), sample_artifact(0, 20000)));
  ASSERT_TRUE(store->put_winner(sample_winner(0)));  // names artifact 0
  for (int n = 1; n < 12; ++n) ASSERT_TRUE(store->put_artifact(sample_key(n), sample_artifact(n, 20000)));
  EXPECT_TRUE(store->find_artifact(sample_key(11)));
  std::int64_t bytes = 0;
  for (const auto& a : artifacts_in(dir.path())) bytes += a.bytes;
  EXPECT_LE(bytes, 100000);
  EXPECT_GE(bytes, 60000);
  EXPECT_TRUE(store->put_artifact(sample_key(50), sample_artifact(50, 200000)));  // larger than the limit: kept all the same
  EXPECT_TRUE(store->find_artifact(sample_key(50)));
}

TEST(StoreOptions, TheDefaultSizeIsFinite) { EXPECT_EQ(StoreOptions{}.max_bytes, std::int64_t{2} << 30); }

}  // namespace
}  // namespace quern::cache

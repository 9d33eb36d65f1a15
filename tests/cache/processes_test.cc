// Several processes on one store: one compile per key, owners that die or stop, and forks (field cases 29, 31, 33, 36).
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>

#include <atomic>
#include <thread>

#include "cache/admin.h"
#include "tests/cache/store_fixture.h"

namespace quern::cache {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

class Pipe {
 public:
  Pipe() { EXPECT_EQ(pipe(ends_), 0); }
  ~Pipe() { ::close(ends_[0]), ::close(ends_[1]); }
  void signal() { EXPECT_EQ(::write(ends_[1], "x", 1), 1); }
  void wait() {  // ends, with a failure, if the other side died without a signal
    pollfd end{ends_[0], POLLIN, 0};
    ASSERT_EQ(::poll(&end, 1, 20000), 1);
    char byte = 0;
    EXPECT_EQ(::read(ends_[0], &byte, 1), 1);
  }

 private:
  int ends_[2];
};

// Counts across processes: one byte per call.
void count_in(const std::string& file) {
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
  EXPECT_EQ(::write(fd, "x", 1), 1);
  ::close(fd);
}

TEST(Processes, EightOnAFreshStoreCompileOnce) {
  TempDir dir;
  for (int round = 0; round < 2; ++round) {
    Pipe go;
    std::vector<pid_t> children;
    for (int i = 0; i < 8; ++i)
      children.push_back(start_child([&] {
        go.wait();
        std::vector<std::string> warnings;
        auto store = Store::open(options_for(dir.path("fresh"), &warnings));
        const auto make = [&]() -> Result<Artifact> {
          count_in(dir.path("runs"));
          std::this_thread::sleep_for(milliseconds(150));
          return sample_artifact(1, 50000);
        };
        const auto artifact = store->find_or_make(sample_key(1), make, nullptr);
        CHILD_EXPECT(artifact && same(*artifact, sample_artifact(1, 50000)));
        CHILD_EXPECT(store->put_measurement(sample_measurement(1, i + 1)));
        CHILD_EXPECT(warnings.empty());
        return 0;
      }));
    for (int i = 0; i < 8; ++i) go.signal();
    for (const pid_t child : children) EXPECT_EQ(exit_status(child), 0);
    EXPECT_EQ(read_bytes(dir.path("runs")).size(), 1u) << "round " << round;  // the second round compiles nothing (case 33)
  }
  auto store = Store::open(options_for(dir.path("fresh")));
  EXPECT_EQ(store->measurements(sample_tuning(1)).size(), 8u);
}

TEST(Processes, AFailingCompilerFailsEachAndStoresNothing) {
  TempDir dir;
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i)
    children.push_back(start_child([&] {
      auto store = Store::open(options_for(dir.path("fresh")));
      const auto result = store->find_or_make(
          sample_key(1),
          [&]() -> Result<Artifact> {
            count_in(dir.path("runs"));
            return Error{ErrorCode::kCompileFailed, "refused", "line 1: error"};
          },
          nullptr);
      CHILD_EXPECT(!result && result.error().code == ErrorCode::kCompileFailed && result.error().log == "line 1: error");
      return 0;
    }));
  for (const pid_t child : children) EXPECT_EQ(exit_status(child), 0);
  EXPECT_EQ(read_bytes(dir.path("runs")).size(), 8u);  // one each
  EXPECT_TRUE(list_artifacts(dir.path("fresh"), {}).value().empty());
}

// An owner inside `make`, and a waiter that has begun to wait.
class OwnerAndWaiter : public ::testing::Test {
 protected:
  void start(milliseconds limit) {
    owner_ = start_child([this] {
      auto store = Store::open(options_for(dir_.path("s")));
      const auto made = store->find_or_make(
          sample_key(1),
          [this]() -> Result<Artifact> {
            making_.signal();
            finish_.wait();
            return sample_artifact(1);
          },
          nullptr);
      return made ? 0 : 1;
    });
    making_.wait();
    waiter_ = start_child([this, limit] {
      auto options = options_for(dir_.path("s"));
      options.compile_wait = limit;
      auto store = Store::open(options);
      waiting_.signal();
      bool made = false;
      const auto artifact = store->find_or_make(
          sample_key(1), []() -> Result<Artifact> { return sample_artifact(1); }, &made);
      CHILD_EXPECT(artifact && same(*artifact, sample_artifact(1)));
      return made ? 10 : 20;
    });
    waiting_.wait();
    std::this_thread::sleep_for(milliseconds(100));
    EXPECT_EQ(waitpid(waiter_, nullptr, WNOHANG), 0) << "the waiter did not wait";
  }
  TempDir dir_;
  Pipe making_, waiting_, finish_;
  pid_t owner_ = 0, waiter_ = 0;
};

TEST_F(OwnerAndWaiter, TheWaiterGetsWhatTheOwnerMade) {
  start(milliseconds(30000));
  finish_.signal();
  EXPECT_EQ(exit_status(waiter_), 20);
  EXPECT_EQ(exit_status(owner_), 0);
}

TEST_F(OwnerAndWaiter, AKilledOwnerIsReplacedAtOnce) {
  start(milliseconds(30000));
  const auto begin = Clock::now();
  kill(owner_, SIGKILL);
  EXPECT_EQ(exit_status(waiter_), 10);
  EXPECT_LT(Clock::now() - begin, milliseconds(3000));  // long before the limit
  EXPECT_EQ(exit_status(owner_), 1000 + SIGKILL);
}

TEST_F(OwnerAndWaiter, AStoppedOwnerIsWaitedForUntilTheLimit) {
  const auto begin = Clock::now();
  start(milliseconds(600));
  kill(owner_, SIGSTOP);
  EXPECT_EQ(exit_status(waiter_), 10);
  EXPECT_GE(Clock::now() - begin, milliseconds(600));
  EXPECT_LT(Clock::now() - begin, milliseconds(5000));
  kill(owner_, SIGCONT);  // the late owner does no harm
  finish_.signal();
  EXPECT_EQ(exit_status(owner_), 0);
  EXPECT_TRUE(same(Store::open(options_for(dir_.path("s")))->find_artifact(sample_key(1)).value(), sample_artifact(1)));
  EXPECT_TRUE(verify(dir_.path("s")).value().ok());
}

TEST_F(OwnerAndWaiter, ACancelledWaiterGivesUpAndMakesNothing) {
  std::atomic<bool> cancelled{false};
  start(milliseconds(30000));
  auto options = options_for(dir_.path("s"));
  options.cancelled = [&] { return cancelled.load(); };
  auto store = Store::open(options);
  const auto begin = Clock::now();
  std::jthread signal([&] {
    std::this_thread::sleep_for(milliseconds(100));
    cancelled = true;
  });
  bool made = false;
  const auto artifact = store->find_or_make(
      sample_key(1), []() -> Result<Artifact> { return sample_artifact(1); }, &made);
  EXPECT_TRUE(!artifact && artifact.error().code == ErrorCode::kCancelled);
  EXPECT_FALSE(made);
  EXPECT_LT(Clock::now() - begin, milliseconds(5000));  // long before the limit
  finish_.signal();
  EXPECT_EQ(exit_status(waiter_), 20);
  EXPECT_EQ(exit_status(owner_), 0);
}

// A tuner that is killed between two puts loses neither (field case 28).
TEST(Processes, WhatAPutConfirmedSurvivesAKill) {
  TempDir dir;
  Pipe done;
  const pid_t child = start_child([&] {
    auto store = Store::open(options_for(dir.path("s")));
    for (int warps = 1; warps <= 20; ++warps) CHILD_EXPECT(store->put_measurement(sample_measurement(1, warps)));
    done.signal();
    for (int warps = 21;; ++warps) store->put_measurement(sample_measurement(1, warps));
    return 0;
  });
  done.wait();
  kill(child, SIGKILL);
  exit_status(child);
  const auto rows = Store::open(options_for(dir.path("s")))->measurements(sample_tuning(1));
  ASSERT_GE(rows.size(), 20u);
  for (const auto& row : rows) {
    const auto warps = static_cast<int>(row.measurement.config.find("warps").value());
    EXPECT_TRUE(same(row, sample_measurement(1, warps)));
  }
}

TEST(Processes, ManyWritersLoseNothing) {
  TempDir dir;
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i)
    children.push_back(start_child([&] {
      auto store = Store::open(options_for(dir.path("s")));
      for (int n = 0; n < 25; ++n) CHILD_EXPECT(store->put_artifact(sample_key(100 * i + n), sample_artifact(n)));
      return 0;
    }));
  for (const pid_t child : children) EXPECT_EQ(exit_status(child), 0);
  const auto report = verify(dir.path("s"));
  ASSERT_TRUE(report);
  EXPECT_TRUE(report->ok());
  EXPECT_EQ(report->artifacts, 100);
}

// Field case 36, velox#17863. The rule: cache/store.h, "Fork".
TEST(Fork, TheChildMissesAndTheParentIsNotDisturbed) {
  TempDir dir;
  auto store = Store::open(options_for(dir.path("s")));
  ASSERT_TRUE(store->put_artifact(sample_key(1), sample_artifact(1)));
  Pipe used, close_it;
  const pid_t child = start_child([&] {
    CHILD_EXPECT(!store->find_artifact(sample_key(1)));
    CHILD_EXPECT(!store->put_artifact(sample_key(2), sample_artifact(2)));
    CHILD_EXPECT(!store->put_measurement(sample_measurement(1)));
    CHILD_EXPECT(store->winners("", "").empty());
    bool made = false;
    CHILD_EXPECT(store->find_or_make(
        sample_key(1), []() -> Result<Artifact> { return sample_artifact(1); }, &made));
    CHILD_EXPECT(made);
    std::vector<std::string> warnings;
    auto fresh = Store::open(options_for(dir.path("s"), &warnings));  // while the parent's is open
    CHILD_EXPECT(!fresh->find_artifact(sample_key(1)));
    CHILD_EXPECT(!fresh->put_artifact(sample_key(2), sample_artifact(2)));
    CHILD_EXPECT(warnings.size() == 1 && warnings[0].find("forked") != std::string::npos);
    used.signal();
    close_it.wait();
    store.reset();  // must not touch the parent's locks or log
    return 0;
  });
  used.wait();
  EXPECT_TRUE(store->put_artifact(sample_key(3), sample_artifact(3)));
  close_it.signal();
  EXPECT_EQ(exit_status(child), 0);
  EXPECT_TRUE(store->put_artifact(sample_key(4), sample_artifact(4)));
  EXPECT_TRUE(store->find_artifact(sample_key(3)));
  store.reset();
  EXPECT_TRUE(verify(dir.path("s")).value().ok());
  EXPECT_EQ(list_artifacts(dir.path("s"), {}).value().size(), 3u);
}

TEST(Fork, TheChildIsWarnedOnce) {
  TempDir dir;
  std::vector<std::string> warnings;
  auto store = Store::open(options_for(dir.path("s"), &warnings));
  EXPECT_EQ(run_child([&] {
              for (int i = 0; i < 3; ++i) CHILD_EXPECT(!store->find_artifact(sample_key(i)));
              CHILD_EXPECT(warnings.size() == 1 && warnings[0].find("fork") != std::string::npos);
              return 0;
            }),
            0);
  EXPECT_TRUE(warnings.empty());
}

TEST(Fork, BeforeAnyStoreIsOpenGivesAChildAStoreOfItsOwn) {
  TempDir dir;
  Store::open(options_for(dir.path("s")))->put_artifact(sample_key(1), sample_artifact(1));  // opened and closed
  EXPECT_EQ(run_child([&] { return Store::open(options_for(dir.path("s")))->find_artifact(sample_key(1)) ? 0 : 1; }), 0);
}

// The fork may find another thread inside a call, with every lock of the store taken.
TEST(Fork, WhileAThreadIsInsideACallDoesNotHangTheChild) {
  TempDir dir;
  auto store = Store::open(options_for(dir.path("s")));
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    for (int n = 0; !stop; ++n) store->put_artifact(sample_key(n % 50), sample_artifact(n % 50, 20000));
  });
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(run_child([&] {
                alarm(5);
                CHILD_EXPECT(!store->find_artifact(sample_key(1)));
                CHILD_EXPECT(!store->put_measurement(sample_measurement(1)));
                CHILD_EXPECT(store->find_or_make(
                    sample_key(1), []() -> Result<Artifact> { return sample_artifact(1); }, nullptr));
                return 0;
              }),
              0);
  }
  stop = true;
  busy.join();
  store.reset();
  EXPECT_TRUE(verify(dir.path("s")).value().ok());
}

// The owner's own child, alive after the owner is done, must not keep the key locked.
TEST(Fork, AChildForkedDuringMakeDoesNotKeepTheKeyLocked) {
  TempDir dir;
  Pipe finish;
  pid_t sleeper = 0;
  {
    auto store = Store::open(options_for(dir.path("s")));
    const auto failed = store->find_or_make(
        sample_key(1),
        [&]() -> Result<Artifact> {
          sleeper = start_child([&] { return finish.wait(), 0; });
          return Error{ErrorCode::kCompileFailed, "refused"};
        },
        nullptr);
    ASSERT_FALSE(failed);
  }
  const auto begin = Clock::now();
  EXPECT_TRUE(Store::open(options_for(dir.path("s")))
                  ->find_or_make(
                      sample_key(1), []() -> Result<Artifact> { return sample_artifact(1); }, nullptr));
  EXPECT_LT(Clock::now() - begin, milliseconds(3000));
  finish.signal();
  EXPECT_EQ(exit_status(sleeper), 0);
}

}  // namespace
}  // namespace quern::cache

// Spreads the blocks of a launch over OS threads. Threads start with the first launch that has blocks for them and sleep between launches.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/host/block_runner.h"

namespace quern::host {

class Executor {
 public:
  explicit Executor(int threads) : threads_(threads < 1 ? 1 : threads) {}
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Runs blocks [0, blocks) to completion; empty on success, else the error of the first block that was seen to fail. Thread-safe: launches
  // of one block, and launches that come while another has the threads, run on the caller's thread.
  std::string launch(const BlockLaunch& launch, std::int64_t blocks);

 private:
  struct Job {
    const BlockLaunch* launch = nullptr;
    std::int64_t blocks = 0;
    std::int64_t chunk = 1;
    std::atomic<std::int64_t> next{0};
    std::atomic<bool> failed{false};
    std::mutex mutex;
    std::string error;  // guarded by mutex
  };

  static void run_blocks(BlockRunner& runner, Job& job);
  std::unique_ptr<BlockRunner> take_runner();
  void give_runner(std::unique_ptr<BlockRunner> runner);
  void start_workers();
  void work();

  const int threads_;
  std::mutex pool_;  // held by the launch that uses the workers

  std::mutex mutex_;  // guards all below
  std::condition_variable wake_;
  std::condition_variable idle_;
  std::vector<std::unique_ptr<BlockRunner>> runners_;
  std::vector<std::thread> workers_;
  Job* job_ = nullptr;
  std::uint64_t generation_ = 0;  // one more with each job
  int busy_ = 0;                  // workers inside the job
  bool stopping_ = false;
};

}  // namespace quern::host

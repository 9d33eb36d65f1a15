#include "runtime/host/executor.h"

#include <algorithm>

namespace quern::host {

Executor::~Executor() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (auto& worker : workers_) worker.join();
}

std::unique_ptr<BlockRunner> Executor::take_runner() {
  {
    std::lock_guard lock(mutex_);
    if (!runners_.empty()) {
      auto runner = std::move(runners_.back());
      runners_.pop_back();
      return runner;
    }
  }
  return std::make_unique<BlockRunner>();
}

void Executor::give_runner(std::unique_ptr<BlockRunner> runner) {
  std::lock_guard lock(mutex_);
  runners_.push_back(std::move(runner));
}

void Executor::run_blocks(BlockRunner& runner, Job& job) {
  while (!job.failed.load(std::memory_order_relaxed)) {
    const std::int64_t begin = job.next.fetch_add(job.chunk, std::memory_order_relaxed);
    if (begin >= job.blocks) return;
    const std::int64_t end = std::min(begin + job.chunk, job.blocks);
    for (std::int64_t block = begin; block < end; ++block) {
      if (runner.run(*job.launch, block)) continue;
      std::lock_guard lock(job.mutex);
      if (job.error.empty()) job.error = runner.error();
      job.failed.store(true, std::memory_order_relaxed);
      return;
    }
  }
}

void Executor::start_workers() {
  while (static_cast<int>(workers_.size()) < threads_ - 1) workers_.emplace_back([this] { work(); });
}

void Executor::work() {
  BlockRunner runner;
  std::uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stopping_ || (job_ != nullptr && generation_ != seen); });
    if (stopping_) return;
    seen = generation_;
    Job& job = *job_;
    ++busy_;
    lock.unlock();
    run_blocks(runner, job);
    lock.lock();
    if (--busy_ == 0) idle_.notify_all();
  }
}

std::string Executor::launch(const BlockLaunch& launch, std::int64_t blocks) {
  Job job;
  job.launch = &launch;
  job.blocks = blocks;
  auto runner = take_runner();
  std::unique_lock pool(pool_, std::defer_lock);
  if (blocks > 1 && threads_ > 1 && pool.try_lock()) {
    // Small enough chunks to even out slow blocks, large enough to keep the counter out of the way.
    job.chunk = std::clamp<std::int64_t>(blocks / (threads_ * 16), 1, 256);
    {
      std::lock_guard lock(mutex_);
      start_workers();
      job_ = &job;
      ++generation_;
    }
    wake_.notify_all();
    run_blocks(*runner, job);
    std::unique_lock lock(mutex_);
    job_ = nullptr;  // a worker that wakes only now finds nothing to do
    idle_.wait(lock, [this] { return busy_ == 0; });
  } else {
    job.chunk = blocks;
    run_blocks(*runner, job);
  }
  give_runner(std::move(runner));
  return job.error;
}

}  // namespace quern::host

// Threads that compile candidates ahead of their measurement.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

namespace quern {

class CompilePool {
 public:
  explicit CompilePool(int threads);
  // Finishes the tasks under way; those still queued are dropped and their futures broken.
  ~CompilePool();
  CompilePool(const CompilePool&) = delete;
  CompilePool& operator=(const CompilePool&) = delete;

  template <class T>
  std::future<T> submit(std::function<T()> task) {
    auto packaged = std::make_shared<std::packaged_task<T()>>(std::move(task));
    add([packaged] { (*packaged)(); });
    return packaged->get_future();
  }

 private:
  void add(std::function<void()> task);
  void work();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> queue_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace quern

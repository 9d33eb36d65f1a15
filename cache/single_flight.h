// SingleFlight: within one process, one maker per key; threads that want the same key meanwhile get a copy of what it made. It holds even
// where there is no store to share through. Thread-safe. Internal to cache/.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "cache/store.h"

namespace quern::cache {

class SingleFlight {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  struct Flight {
    bool landed = false;
    std::optional<Artifact> artifact;  // empty after landing: the maker failed
  };

  // The right to make, and the duty to land. Landing without an artifact sends every waiter to try for itself.
  class Lead {
   public:
    Lead(SingleFlight& owner, const Key& key) : owner_(&owner), key_(key) {}
    Lead(Lead&& other) noexcept : owner_(std::exchange(other.owner_, nullptr)), key_(other.key_) {}
    Lead& operator=(Lead&&) = delete;
    ~Lead();
    void land(const Artifact& artifact);

   private:
    SingleFlight* owner_;
    Key key_;
  };

  struct Entry {
    std::optional<Lead> lead;
    std::optional<Artifact> artifact;  // neither: the maker was not done by the deadline
  };
  Entry enter(const Key& key, Deadline deadline);

 private:
  void land(const Key& key, std::optional<Artifact> artifact);
  std::mutex mutex_;
  std::condition_variable landed_;
  std::map<Key, std::shared_ptr<Flight>> flights_;
};

}  // namespace quern::cache

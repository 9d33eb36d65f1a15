#include "cache/single_flight.h"

namespace quern::cache {

SingleFlight::Entry SingleFlight::enter(const Key& key, Deadline deadline) {
  std::unique_lock lock(mutex_);
  for (;;) {
    auto& slot = flights_[key];
    if (!slot) {
      slot = std::make_shared<Flight>();
      return {Lead(*this, key), std::nullopt};
    }
    const auto flight = slot;
    if (!landed_.wait_until(lock, deadline, [&] { return flight->landed; })) return {};
    if (flight->artifact) return {std::nullopt, flight->artifact};
  }
}

void SingleFlight::land(const Key& key, std::optional<Artifact> artifact) {
  std::lock_guard lock(mutex_);
  const auto found = flights_.find(key);
  found->second->landed = true;
  found->second->artifact = std::move(artifact);
  flights_.erase(found);
  landed_.notify_all();
}

SingleFlight::Lead::~Lead() {
  if (owner_ != nullptr) owner_->land(key_, std::nullopt);
}

void SingleFlight::Lead::land(const Artifact& artifact) { std::exchange(owner_, nullptr)->land(key_, artifact); }

}  // namespace quern::cache

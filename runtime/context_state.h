// The state behind Context and Plan. Private to runtime/.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/context_parts.h"
#include "runtime/lookup.h"

namespace quern {

struct LaunchCounter {
  LaunchRecord record;
  std::atomic<std::uint64_t> count{0};
};

struct Context::Impl {
  ContextParts parts;
  Target target;  // what is compiled for: parts.device's own, or what the compiler can do for it
  std::atomic<std::uint64_t> compiles{0};
  std::mutex mutex;
  std::vector<std::shared_ptr<LaunchCounter>> counters;  // guarded by mutex

  void warn(const std::string& line) const {
    if (parts.warn) parts.warn(line);
  }
};

// One step, resolved.
struct ReadyStep {
  Module::Function function;
  LaunchStep step;
};

// One way to run the problem. Rendered first; loaded when it is compiled.
struct PlanState {
  Candidate candidate;
  KernelSource source;
  std::string artifact;  // hex key; empty until compiled
  ResourceUsage usage;
  std::unique_ptr<Module> module;
  std::vector<ReadyStep> steps;
  std::shared_ptr<LaunchCounter> counter;  // null unless launches are recorded
};

struct Plan::Impl {
  std::shared_ptr<Context::Impl> context;
  Problem problem;
  bool empty = false;  // nothing to compute: ready without a kernel

  // Read without a lock. Both point into `states`, which only grows, so references handed out stay valid.
  std::atomic<const PlanState*> ready{nullptr};  // compiled and loaded; set once
  std::atomic<const PlanState*> shown{nullptr};  // rendered last: what the accessors describe
  std::mutex mutex;
  PlanState* pending = nullptr;                    // guarded by mutex: rendered, not compiled yet
  std::vector<std::unique_ptr<PlanState>> states;  // guarded by mutex
  std::vector<Candidate> remaining;                // guarded by mutex: what to try next, best first
};

}  // namespace quern

// What stands behind the opaque handles. Each begins with a mark of its kind, so that one passed in another's place is an error, not a
// crash.
#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "quern/context.h"
#include "quern/quern.h"
#include "runtime/c/border.h"

struct quern_context {
  static constexpr std::uint64_t kMark = 0x7478746e63757131;
  static constexpr const char* kName = "context";
  explicit quern_context(quern::Context opened)
      : context(std::move(opened)), device(to_string(context.device())), target(to_string(context.target())) {}

  std::uint64_t mark = kMark;
  quern::Context context;
  std::string device, target;
};

struct quern_plan {
  static constexpr std::uint64_t kMark = 0x6e616c7063757131;
  static constexpr const char* kName = "plan";
  explicit quern_plan(quern::Plan made) : plan(std::move(made)), problem(to_string(plan.problem())) {}

  std::uint64_t mark = kMark;
  quern::Plan plan;
  std::string problem;
  // The config's text changes when a lazy plan moves on, and what was handed out has to stay.
  mutable std::mutex mutex;
  mutable std::set<std::string> configs;  // guarded by mutex
};

struct quern_launch_records {
  static constexpr std::uint64_t kMark = 0x7364636563757131;
  static constexpr const char* kName = "launch records";
  struct Record {
    quern::LaunchRecord record;
    std::string config, entries;
  };

  std::uint64_t mark = kMark;
  std::vector<Record> records;
};

namespace quern::c {

template <class Handle>
Status check(const Handle* handle) {
  if (handle == nullptr) return invalid(std::string(Handle::kName) + " is null");
  if (handle->mark != Handle::kMark) return invalid(std::string("this is no ") + Handle::kName + ", but something else or already closed");
  return {};
}

template <class Handle>
void destroy(Handle* handle) noexcept {
  if (!check(handle)) return;
  handle->mark = 0;
  delete handle;
}

}  // namespace quern::c

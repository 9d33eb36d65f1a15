// The primary context of one GPU and what every call in it shares: making it current, and remembering that it is lost.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "quern/result.h"
#include "runtime/cuda/driver_api.h"

namespace quern::cuda {

// Shared by a device and every buffer and module made from it; the context is released with the last of them. Thread-safe.
class PrimaryContext {
 public:
  static Result<std::shared_ptr<PrimaryContext>> retain(std::shared_ptr<const DriverApi> api, CUdevice device);
  ~PrimaryContext();
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;

  const DriverApi& api() const { return *api_; }
  CUcontext handle() const { return handle_; }
  bool lost() const { return lost_.load(std::memory_order_relaxed); }
  Error lost_error() const;

  // Ok, or an Error of `code` that says what was being done and what the driver answered; sticky results mark the context lost.
  Status check(CUresult result, const char* doing, ErrorCode code);

 private:
  PrimaryContext(std::shared_ptr<const DriverApi> api, CUdevice device, CUcontext handle)
      : api_(std::move(api)), device_(device), handle_(handle) {}

  std::shared_ptr<const DriverApi> api_;
  CUdevice device_ = 0;
  CUcontext handle_ = nullptr;
  std::atomic<bool> lost_{false};
  mutable std::mutex mutex_;
  std::string lost_reason_;  // guarded by mutex_
};

// Makes the context current for a scope. One cheap query when it is current already.
class ContextScope {
 public:
  explicit ContextScope(const PrimaryContext& context) : api_(context.api()) {
    CUcontext current = nullptr;
    if (api_.context_get_current(&current) == kSuccess && current == context.handle()) return;
    pushed_ = api_.context_push(context.handle()) == kSuccess;
  }
  ~ContextScope() {
    CUcontext ignored = nullptr;
    if (pushed_) api_.context_pop(&ignored);
  }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  const DriverApi& api_;
  bool pushed_ = false;
};

}  // namespace quern::cuda

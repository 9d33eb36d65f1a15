#include "runtime/cuda/context_scope.h"

namespace quern::cuda {

Result<std::shared_ptr<PrimaryContext>> PrimaryContext::retain(std::shared_ptr<const DriverApi> api, CUdevice device) {
  CUcontext handle = nullptr;
  if (const CUresult result = api->primary_context_retain(&handle, device); result != kSuccess)
    return Error{ErrorCode::kEnvironment, "the GPU's primary context does not start: " + api->describe(result), {}};
  return std::shared_ptr<PrimaryContext>(new PrimaryContext(std::move(api), device, handle));
}

PrimaryContext::~PrimaryContext() { api_->primary_context_release(device_); }

Error PrimaryContext::lost_error() const {
  const std::lock_guard lock(mutex_);
  return {ErrorCode::kDeviceLost, "the GPU context is lost since " + lost_reason_ + "; only a new process can use the GPU again", {}};
}

Status PrimaryContext::check(CUresult result, const char* doing, ErrorCode code) {
  if (result == kSuccess) return {};
  const std::string message = std::string(doing) + ": " + api_->describe(result);
  if (!is_sticky(result)) return Error{code, message, {}};
  const std::lock_guard lock(mutex_);
  if (lost_reason_.empty()) lost_reason_ = message;
  lost_.store(true, std::memory_order_relaxed);
  return Error{ErrorCode::kDeviceLost, message, {}};
}

}  // namespace quern::cuda

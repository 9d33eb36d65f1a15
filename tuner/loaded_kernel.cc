#include "tuner/loaded_kernel.h"

#include <algorithm>

#include "tuner/bench_data.h"

namespace quern {

Result<std::unique_ptr<LoadedKernel>> LoadedKernel::load(Device& device, const KernelSource& source, const Binary& binary) {
  std::unique_ptr<LoadedKernel> kernel(new LoadedKernel(device, source));
  QUERN_ASSIGN(kernel->module_, device.load(binary));
  for (const LaunchStep& step : source.steps) {
    QUERN_ASSIGN(auto function, kernel->module_->function(step.entry, step.shared_bytes));
    kernel->functions_.push_back(function);
  }
  if (source.workspace_bytes > 0) {
    QUERN_ASSIGN(kernel->workspace_, device.allocate(kFenceBytes + source.workspace_bytes + kFenceBytes));
    QUERN_TRY(kernel->poison_workspace());
  }
  return kernel;
}

void* LoadedKernel::workspace() const { return workspace_ ? static_cast<std::byte*>(workspace_->data()) + kFenceBytes : nullptr; }

std::vector<Launch> LoadedKernel::launches(const KernelArgs& args) const {
  std::vector<Launch> out;
  for (std::size_t i = 0; i < functions_.size(); ++i) out.push_back(Launch{functions_[i], source_.steps[i], args});
  return out;
}

Status LoadedKernel::run(const KernelArgs& args) {
  for (std::size_t i = 0; i < functions_.size(); ++i) QUERN_TRY(device_.launch(functions_[i], source_.steps[i], args, nullptr));
  return device_.synchronize(nullptr);
}

Status LoadedKernel::poison_workspace() {
  if (!workspace_) return {};
  QUERN_TRY(device_.fill(workspace_->data(), kFenceByte, workspace_->size()));
  return device_.fill(workspace(), kScratchByte, source_.workspace_bytes);
}

Result<std::string> LoadedKernel::workspace_fault() const {
  if (!workspace_) return std::string();
  std::vector<std::byte> fence(2 * kFenceBytes);
  const auto* base = static_cast<const std::byte*>(workspace_->data());
  QUERN_TRY(device_.copy_to_host(fence.data(), base, kFenceBytes));
  QUERN_TRY(device_.copy_to_host(fence.data() + kFenceBytes, base + kFenceBytes + source_.workspace_bytes, kFenceBytes));
  const auto hit = std::find_if(fence.begin(), fence.end(), [](std::byte b) { return b != std::byte{kFenceByte}; });
  if (hit == fence.end()) return std::string();
  const auto at = static_cast<std::size_t>(hit - fence.begin());
  return at < kFenceBytes ? "byte " + std::to_string(kFenceBytes - at) + " before the workspace was written"
                          : "byte " + std::to_string(at - kFenceBytes) + " past the workspace was written";
}

}  // namespace quern

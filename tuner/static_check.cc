#include "tuner/static_check.h"

#include <cstdint>

namespace quern {
namespace {

constexpr std::int64_t kMaxThreads = 1024;
constexpr std::int64_t kRegistersPerBlock = 65536;
constexpr std::int64_t kRegistersPerWarpUnit = 256;  // registers are allocated to a warp in units of this many
// Registers saved outside the loop may cost this much (out_prod with every register in use, at its fastest); beyond it the inner loop
// spills.
constexpr int kTolerableSpillBytes = 128;

std::string limit_text(const std::string& what, std::int64_t found, std::int64_t limit) {
  return what + ": found " + std::to_string(found) + ", needed " + std::to_string(limit) + " or less";
}

}  // namespace

std::string static_fault(const KernelSource& source, const ResourceUsage& usage, const DeviceInfo& device, bool keep_spilling) {
  if (device.target.kind == Target::Kind::host) return {};
  for (const LaunchStep& step : source.steps) {
    const std::int64_t threads = std::int64_t{step.block.x} * step.block.y * step.block.z;
    if (threads > kMaxThreads) return limit_text("threads per block of " + step.entry, threads, kMaxThreads);
    const std::int64_t shared = std::int64_t{step.shared_bytes} + usage.static_shared_bytes;
    if (device.max_shared_bytes > 0 && shared > device.max_shared_bytes)
      return limit_text("shared memory of " + step.entry, shared, device.max_shared_bytes);
    const std::int64_t warps = (threads + 31) / 32;
    const std::int64_t per_warp =
        (std::int64_t{usage.registers} * 32 + kRegistersPerWarpUnit - 1) / kRegistersPerWarpUnit * kRegistersPerWarpUnit;
    // The usage is the largest over all entries; a module with several steps is judged by its launches, not by this sum.
    if (source.steps.size() == 1 && warps * per_warp > kRegistersPerBlock)
      return limit_text("registers per block of " + step.entry, warps * per_warp, kRegistersPerBlock);
  }
  if (!keep_spilling && usage.spill_bytes > kTolerableSpillBytes)
    return limit_text("spilled bytes", usage.spill_bytes, kTolerableSpillBytes);
  return {};
}

}  // namespace quern

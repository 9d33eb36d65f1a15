// What a binary's resource usage already tells, before anything runs.
#pragma once

#include <string>

#include "quern/kernel.h"
#include "runtime/device.h"

namespace quern {

// Why this kernel is not worth measuring, or cannot be launched: shared memory above the device's limit, more threads or registers than an
// SM has (65536 registers and 1024 threads per block on every architecture from sm_75), or registers spilled to local memory (unless
// `keep_spilling`). Empty: nothing is wrong. The host target has no such limits.
std::string static_fault(const KernelSource& source, const ResourceUsage& usage, const DeviceInfo& device, bool keep_spilling);

}  // namespace quern

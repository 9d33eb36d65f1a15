// The CPU as a device: kernels compiled by the host plugin, each CUDA thread a fiber. For correctness, not for speed.
#pragma once

#include <memory>

#include "quern/result.h"
#include "runtime/compiler.h"
#include "runtime/device.h"

namespace quern {

// Errors: kEnvironment naming where the plugin was looked for, and why it does not load.
Result<std::unique_ptr<Device>> open_host_device(const LibraryPaths& paths);

}  // namespace quern

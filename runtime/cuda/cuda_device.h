// A CUDA GPU through the Driver API.
#pragma once

#include <memory>
#include <string>

#include "quern/result.h"
#include "runtime/device.h"

namespace quern::cuda {

// Retains the primary context of GPU `ordinal` (the one that the CUDA runtime uses too, so pointers and streams are shared with it). Every
// call makes that context current for its own duration, unless it is current already: the caller's current context never changes.
// After a sticky error every later call answers kDeviceLost; only a new process can use the GPU again.
// Errors: kEnvironment when there is no driver or no such GPU.
Result<std::unique_ptr<Device>> open_cuda_device(int ordinal, const std::string& driver_path);

}  // namespace quern::cuda

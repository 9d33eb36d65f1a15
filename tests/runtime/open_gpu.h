// What tests on a real GPU need, or why they are skipped.
#pragma once

#include <memory>
#include <string>

#include "runtime/compiler.h"
#include "runtime/device.h"

namespace quern::test {

struct OpenGpu {
  std::unique_ptr<Device> device;
  std::unique_ptr<Compiler> compiler;
  std::string missing;  // empty: both are there
};

inline OpenGpu open_gpu() {
  OpenGpu gpu;
  auto device = open_device("cuda:0", {});
  auto compiler = open_nvrtc({});
  if (!device || !compiler)
    gpu.missing = (device ? compiler.error() : device.error()).message;
  else
    gpu.device = std::move(*device), gpu.compiler = std::move(*compiler);
  return gpu;
}

}  // namespace quern::test

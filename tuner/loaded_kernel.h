// A compiled kernel on a device with its scratch, ready to be launched. Scratch lies between fences and is filled with a huge value: a
// kernel that relies on its contents shows.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "quern/kernel.h"
#include "quern/result.h"
#include "runtime/device.h"

namespace quern {

class LoadedKernel {
 public:
  // Errors: those of Device::load, Module::function and Device::allocate (kEnvironment: out of memory).
  static Result<std::unique_ptr<LoadedKernel>> load(Device& device, const KernelSource& source, const Binary& binary);

  const KernelSource& source() const { return source_; }
  // 256-byte aligned on a GPU; null when the kernel needs none.
  void* workspace() const;
  // All steps of the op with these arguments.
  std::vector<Launch> launches(const KernelArgs& args) const;
  // Launches every step and waits.
  Status run(const KernelArgs& args);

  Status poison_workspace();
  // Which byte around the workspace was written; empty when none was.
  Result<std::string> workspace_fault() const;

 private:
  LoadedKernel(Device& device, KernelSource source) : device_(device), source_(std::move(source)) {}

  Device& device_;
  KernelSource source_;
  std::unique_ptr<Buffer> workspace_;
  std::unique_ptr<Module> module_;
  std::vector<Module::Function> functions_;
};

}  // namespace quern

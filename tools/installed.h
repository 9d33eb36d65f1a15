// What this machine has: devices and compilers, each with the reason when it is missing.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/admin.h"
#include "runtime/compiler.h"
#include "runtime/device.h"

namespace quern::tools {

struct Installed {
  std::vector<DeviceInfo> gpus;
  std::string no_gpu;  // the reason when there is none
  std::unique_ptr<Compiler> nvrtc;
  std::string no_nvrtc;
  std::optional<DeviceInfo> host;
  std::string no_host;
  std::unique_ptr<Compiler> host_compiler;

  std::vector<std::string> compilers() const;  // identities
  // GPUs with a compiler, the host, and compile-only: what a problem can be run on or compiled for here.
  std::vector<std::string> working_targets() const;
};

// Opens and closes every device. Costs a GPU context each.
Installed look_around(const LibraryPaths& paths);
// For listings: which rows of a store could be used here.
cache::Running running_here(const Installed& installed);

}  // namespace quern::tools

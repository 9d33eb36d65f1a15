// The host plugin, opened on demand. It stays loaded for the life of the process: LLVM keeps state of its own.
#pragma once

#include <string>

#include "quern/result.h"
#include "runtime/compiler.h"
#include "runtime/host/plugin_abi.h"

namespace quern {

struct HostPlugin {
  const QuernHostPlugin* table = nullptr;
  std::string path;  // the file it was loaded from
};

// Errors: kEnvironment naming every place that was looked at, or the versions that do not fit.
Result<HostPlugin> open_host_plugin(const LibraryPaths& paths);

}  // namespace quern

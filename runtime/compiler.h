// A compiler of rendered kernels: NVRTC for CUDA targets, clang for the host. Found at run time, never linked.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "quern/kernel.h"
#include "quern/result.h"
#include "quern/target.h"

namespace quern {

class Compiler {
 public:
  virtual ~Compiler() = default;
  // Name and version, as hashed into artifact keys: "nvrtc 13.0", "clang 14.0.6 x86_64".
  virtual std::string identity() const = 0;
  // The file it was loaded from; empty when it is part of this program.
  virtual std::string location() const { return {}; }
  // Compute capabilities times ten that it generates machine code for, ascending; empty for a compiler of the host.
  virtual std::vector<int> architectures() const { return {}; }
  // Whether this compiler can generate code for the target; kUnsupported names the target and the range it knows.
  virtual Status supports(const Target& target) const = 0;
  // Thread-safe: any number of compiles may run at once. Errors: kCompileFailed with the compiler's log.
  virtual Result<Binary> compile(const KernelSource& source, const Target& target) const = 0;
};

// Options of the search for libraries; filled once, at the edge, from the environment.
struct LibraryPaths {
  std::string nvrtc;        // QUERN_NVRTC: path of libnvrtc.so, or empty to search
  std::string driver;       // QUERN_CUDA_DRIVER: path of libcuda.so, or empty to search
  std::string host_plugin;  // QUERN_HOST_PLUGIN: path of libquern_host.so, or empty to search beside the executable
};

// Errors: kEnvironment, naming every place that was looked at.
Result<std::unique_ptr<Compiler>> open_nvrtc(const LibraryPaths& paths);
// `sanitize`: instrument kernels with the address and undefined-behaviour sanitizers this process was built with.
Result<std::unique_ptr<Compiler>> open_host_compiler(const LibraryPaths& paths);

}  // namespace quern

// A device that runs kernels: a CUDA GPU through the Driver API, or the host through the LLVM plugin. RAII handles only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "quern/kernel.h"
#include "quern/result.h"
#include "quern/target.h"
#include "templates/args.h"

namespace quern {

// A CUstream on CUDA (null: the legacy default stream); ignored on the host, where launches are synchronous.
using Stream = void*;

// Device memory; freed on destruction. Host memory on the host target, allocated to the exact size so that a sanitizer sees overruns.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual void* data() const = 0;
  virtual std::size_t size() const = 0;
};

// A loaded binary. Outlives every launch of its functions.
class Module {
 public:
  // Resolved entry of one step; opaque, owned by the module.
  struct Function {
    void* handle = nullptr;
  };
  virtual ~Module() = default;
  // Errors: kInvalidArgument naming the entry that the binary lacks.
  // Raises the dynamic shared memory limit to `shared_bytes` where the device needs to be asked.
  virtual Result<Function> function(const std::string& entry, std::uint32_t shared_bytes) = 0;
  // What the loaded module itself calls a function of it; empty where the device cannot tell. For records: a launch never asks.
  virtual std::string loaded_name(Function function) const = 0;
};

struct DeviceInfo {
  std::string spec;         // "cuda:0" or "host"
  Target target;            // what to compile for
  DeviceIdentity identity;  // what measurements are filed under
  std::int64_t l2_bytes = 0;
  std::int64_t memory_bytes = 0;
  std::int64_t max_shared_bytes = 0;  // dynamic shared memory per block, opt-in limit
  int driver_version = 0;             // 13000 for CUDA 13.0; 0 on the host
};

// One launch with its arguments, for timing and graphs.
struct Launch {
  Module::Function function;
  LaunchStep step;
  KernelArgs args;
};

struct Timing {
  double us_median = 0;  // one pass over `ops` divided by the number of ops
  double us_p10 = 0;
  double us_p90 = 0;
  int samples = 0;
};

// Thread-safe: any number of threads may use one device; the order of launches is the order of calls on each stream.
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  virtual Result<std::unique_ptr<Buffer>> allocate(std::size_t bytes) = 0;                      // kEnvironment when out of memory
  virtual Status copy_to_device(void* destination, const void* source, std::size_t bytes) = 0;  // synchronous
  virtual Status copy_to_host(void* destination, const void* source, std::size_t bytes) = 0;    // synchronous
  virtual Status copy_on_device(void* destination, const void* source, std::size_t bytes) = 0;  // synchronous
  virtual Status fill(void* destination, unsigned char value, std::size_t bytes) = 0;           // synchronous
  virtual Result<std::unique_ptr<Module>> load(const Binary& binary) = 0;
  // Asynchronous on CUDA; errors are kLaunchFailed, or kDeviceLost when nothing more can run in this context.
  virtual Status launch(Module::Function function, const LaunchStep& step, const KernelArgs& args, Stream stream) = 0;
  virtual Status synchronize(Stream stream) = 0;
  // Times `ops` (each a sequence of launches) by capturing them all into one CUDA graph and replaying it until `max_seconds` or
  // `max_samples`; at least 5 replays after a warm-up. On the host: a wall clock around plain launches, of use only to compare within a
  // run.
  virtual Result<Timing> time(std::span<const std::vector<Launch>> ops, int max_samples, double max_seconds) = 0;
  // As time(), for work that something else enqueues, such as a library: `enqueue` stands for `ops` ops. It is called twice on a stream of
  // the device, with its context current: once plainly, where it may set itself up, and once while the stream is captured into the graph
  // that is timed.
  virtual Result<Timing> time_work(const std::function<Status(Stream)>& enqueue, int ops, int max_samples, double max_seconds) {
    (void)enqueue, (void)ops, (void)max_samples, (void)max_seconds;
    return Error{ErrorCode::kUnsupported, "this device times its own kernels only", {}};
  }
  virtual Result<Stream> create_stream() = 0;
  virtual Status destroy_stream(Stream stream) = 0;
  // Whether a call has answered kDeviceLost; every later one does. Asks no driver.
  virtual bool is_lost() const { return false; }
  // Whether launches on `stream` are being recorded into a graph, where nothing may be compiled or loaded.
  virtual bool is_capturing(Stream stream) {
    (void)stream;
    return false;
  }
};

// spec: "cuda:N", "host", or "auto" (cuda:0 where there is one, else the host).
// Errors: kEnvironment naming what is missing (driver library, device, plugin); kInvalidArgument for a malformed spec.
Result<std::unique_ptr<Device>> open_device(const std::string& spec, const struct LibraryPaths& paths);

}  // namespace quern

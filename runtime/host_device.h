// The CPU as a device: kernels compiled by the host plugin, each CUDA thread a fiber. For correctness, not for speed.
#pragma once

#include <cstdint>
#include <memory>

#include "quern/result.h"
#include "runtime/compiler.h"
#include "runtime/device.h"

namespace quern {

// How launches are run. A correct kernel computes the same under every choice; a wrong one is found by trying several.
struct HostExecution {
  // The order in which lanes that may run do: a missing barrier shows as a different result.
  enum class Order : std::uint8_t { forward, reverse, random };
  // When a cp.async lands: at the wait that covers it shows a missing wait, at once shows a buffer that is refilled while still read.
  enum class Copies : std::uint8_t { deferred, eager, random };
  int threads = 0;  // OS threads to spread blocks over; 0: as many as the hardware has
  Order order = Order::forward;
  Copies copies = Copies::deferred;
  std::uint64_t seed = 1;  // of the random choices; the same seed runs the same
};

// Launches are synchronous and thread-safe. A launch whose kernel breaks a rule (divergent barrier or collective, misaligned load, write
// past shared memory, more threads than its launch bound) is kLaunchFailed, naming kernel, block and rule; a fault of the CPU is a fault of
// the process. Errors: kEnvironment naming where the plugin was looked for, and why it does not load.
Result<std::unique_ptr<Device>> open_host_device(const LibraryPaths& paths, const HostExecution& execution);
Result<std::unique_ptr<Device>> open_host_device(const LibraryPaths& paths);

}  // namespace quern

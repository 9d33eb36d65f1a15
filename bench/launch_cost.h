// What quern adds around a kernel: the time of a warm launch over the driver's own, and how long a process takes to its first launch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "quern/context.h"
#include "quern/problem.h"
#include "quern/result.h"

namespace quern::bench {

struct LaunchCost {
  double plan_us = 0;    // Plan::launch, on the host's clock, per op
  double driver_us = 0;  // cuLaunchKernel for the same kernels with the same arguments
  double overhead_us() const { return plan_us - driver_us; }
};
// Enqueues the planned kernel over and over. Errors: kUnsupported without CUDA; those of plan and launch.
Result<LaunchCost> measure_launch_cost(const Context& context, const Problem& problem, const std::string& driver_library);

struct FirstLaunch {
  double ms = 0;                    // from before Context::open to after the first launch has finished
  std::uint64_t compile_count = 0;  // kernels compiled on the way
};
// In this process: the caller starts a fresh one for it.
Result<FirstLaunch> first_launch(const ContextOptions& options, const Problem& problem);

}  // namespace quern::bench

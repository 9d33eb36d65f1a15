// Timing by CUDA graph: a sequence of launches captured once, replayed, and measured with event pairs.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "quern/result.h"
#include "runtime/cuda/context_scope.h"
#include "runtime/device.h"

namespace quern::cuda {

// Device::time. Works on a stream of its own, so other work on the device disturbs the figures but not the calls. The context must be
// current.
Result<Timing> time_graph(PrimaryContext& context, Device& device, std::span<const std::vector<Launch>> ops, int max_samples,
                          double max_seconds);

// Device::time_work. `enqueue` must leave the stream as it found it; the context must be current.
Result<Timing> time_captured(PrimaryContext& context, const std::function<Status(Stream)>& enqueue, std::size_t ops, int max_samples,
                             double max_seconds);

// Median, p10 and p90 of `us` (microseconds per op, any order; at least one).
Timing summarize(std::vector<double> us);

}  // namespace quern::cuda

// From the caller's views to the kernels' parameter block, with every check that a launch makes.
#pragma once

#include <cstddef>

#include "quern/context.h"
#include "quern/problem.h"
#include "quern/result.h"
#include "templates/args.h"

namespace quern {

// Fills `out`, strides of 0 becoming dense ones. Requires a valid problem that computes something. Touches no memory behind the pointers
// and allocates only to report an error: kInvalidArgument naming the argument, the value found and the value needed.
Status fill_kernel_args(const Problem& problem, std::size_t workspace_needed, const LaunchArgs& args, KernelArgs* out);

// Bytes at which W must start and, in the gguf layout, be spaced: 16 for planar, else the largest power of two up to 16 that divides a
// block.
int weight_alignment(WeightType type, Layout layout);

}  // namespace quern

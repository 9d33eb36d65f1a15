// Where several blocks share an output, each with a part of the reduction: their f32 partial sums [split][row][column] lie in the
// workspace.
#pragma once

#include "families/element.cuh"

namespace quern {

// Adds the partial sums, which begin `partials` bytes into the workspace, in the order of their splits. One thread per output.
template <class Out, int kSplit, int kThreads>
QUERN_FN void sum_splits(const KernelArgs& args, i64 partials, i64 columns) {
  i64 index = ptx::block_x() * kThreads + ptx::thread_x(), outputs = args.m * columns;
  if (index >= outputs) return;
  const f32* partial = reinterpret_cast<const f32*>(static_cast<const u8*>(args.workspace) + partials);
  f32 sum = 0;
  QUERN_UNROLL
  for (int s = 0; s < kSplit; ++s) sum = ptx::add(sum, ptx::load_cached(partial + s * outputs + index));
  Out::store(args, index / columns, index % columns, sum);
}

}  // namespace quern

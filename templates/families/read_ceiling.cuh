// The fastest plain read: every 16 bytes are loaded once, as weights are, and folded into a word that is stored only when it has one value
// of 2^32, so that the loads cannot be dropped. What a kernel that reads as many bytes is compared with.
//
//   args.w  the bytes, 16-byte aligned      args.n  their number, a multiple of 16
//   args.m  threads of the whole grid       args.y  one word
#pragma once

#include "args.h"
#include "ptx/ptx.cuh"

namespace quern {

template <int kThreads, int kUnroll>
QUERN_FN void read_ceiling(const KernelArgs& args) {
  const u32x4* words = static_cast<const u32x4*>(args.w);
  const i64 count = args.n / 16, stride = args.m;
  i64 i = ptx::block_x() * kThreads + ptx::thread_x();
  u32 folded = 0;
  for (; i + (kUnroll - 1) * stride < count; i += kUnroll * stride) {
    u32x4 v[kUnroll];
    QUERN_UNROLL
    for (int u = 0; u < kUnroll; ++u) v[u] = ptx::load_stream(words + i + u * stride);
    QUERN_UNROLL
    for (int u = 0; u < kUnroll; ++u) folded ^= v[u].x ^ v[u].y ^ v[u].z ^ v[u].w;
  }
  for (; i < count; i += stride) {
    u32x4 v = ptx::load_stream(words + i);
    folded ^= v.x ^ v.y ^ v.z ^ v.w;
  }
  if (folded == 0x9E3779B9u) *static_cast<u32*>(args.y) = folded;
}

}  // namespace quern

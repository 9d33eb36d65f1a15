// Shape of the decode GEMV: what a block and a warp cover. Host code launches by it, the kernel is compiled with it.
#pragma once

#include "geometry/activations.h"
#include "geometry/limits.h"

namespace quern {

struct GemvGeometry {
  int k;  // columns of W: a constant, so that the loop along it unrolls into loads at fixed offsets (Q4_K at M=1: half the instructions)
  int m;  // rows of X, 1..8: accumulators live in registers
  int warps;       // per block
  int warps_k;     // warps that share a row, each with a part of K
  int lanes;       // lanes that share a row: 8, 16 or 32; the rest of the warp works on further rows
  int rows;        // rows per lane group: each activation loaded serves so many weights
  int unroll;      // slices per row in flight
  int passes;      // row groups that one block works through; its activations are staged once
  int stage;       // 1: activations live in shared memory; 0: they are read through L1
  int prefetch;    // 1: the first pass's rows are prefetched to L2 while the activations are being prepared
  int min_blocks;  // blocks per SM that the registers must leave room for; 0: the compiler's choice
  int fuse;        // 1: the block prepares the activations itself; 0: a kernel of its own does, through the workspace

  constexpr int threads() const { return warps * kWarpLanes; }
  constexpr int rows_per_warp() const { return rows * (kWarpLanes / lanes); }
  constexpr int rows_per_block() const { return warps / warps_k * rows_per_warp(); }
  constexpr long long row_groups(long long n) const { return ceil_div(n, rows_per_block()); }
  constexpr long long grid(long long n) const { return ceil_div(row_groups(n), passes); }
  // f32 partial sums that the warps of a row hand to its first warp; 16-byte vectors follow them.
  constexpr long long partial_bytes() const { return warps_k > 1 ? round_up(4LL * warps * rows_per_warp() * m, 16) : 0; }
};

// Activations quantized to 8 bits.
constexpr long long gemv_q8_shared_bytes(const GemvGeometry& g, long long k) {
  return g.partial_bytes() + (g.stage ? QuantizedActivations{g.m, k / kSliceWeights}.bytes() : 0);
}
constexpr long long gemv_q8_workspace_bytes(const GemvGeometry& g, long long k) {
  return g.fuse ? 0 : QuantizedActivations{g.m, k / kSliceWeights}.bytes();
}
// Activations as f32, in slice order: [m][8 quads][slices][16 bytes].
constexpr long long gemv_f32_shared_bytes(const GemvGeometry& g, long long k) { return g.partial_bytes() + (g.stage ? 4LL * g.m * k : 0); }

}  // namespace quern

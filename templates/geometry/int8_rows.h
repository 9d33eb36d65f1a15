// Shape of the integer row product by dot products: what a block and a warp cover. Host code launches by it, the kernel is compiled with
// it.
#pragma once

#include "geometry/limits.h"

namespace quern {

struct Int8DotGeometry {
  int k;       // codes per row: a constant, so that the loop along it unrolls into loads at fixed offsets
  int m;       // rows of X per block, 1..8: accumulators live in registers
  int warps;   // per block
  int lanes;   // lanes that share a row of W: 8, 16 or 32
  int rows;    // rows of W per lane group: each chunk of X loaded serves so many
  int unroll;  // 16-byte chunks per row in flight
  int passes;  // row groups that one block works through; its X is staged once

  static constexpr int kChunk = 16;  // bytes, one load
  constexpr int chunks() const { return static_cast<int>(ceil_div(k, kChunk)); }
  constexpr int threads() const { return warps * kWarpLanes; }
  constexpr int rows_per_warp() const { return rows * (kWarpLanes / lanes); }
  constexpr int rows_per_block() const { return warps * rows_per_warp(); }
  constexpr long long row_groups(long long n) const { return ceil_div(n, rows_per_block()); }
  constexpr long long blocks_n(long long n) const { return ceil_div(row_groups(n), passes); }
  constexpr long long grid(long long rows_of_x, long long n) const { return ceil_div(rows_of_x, m) * blocks_n(n); }
  constexpr long long shared_bytes() const { return static_cast<long long>(m) * chunks() * kChunk; }
};

}  // namespace quern

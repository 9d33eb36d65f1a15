// Shapes of the integer row product, first by dot products: what a block and a warp cover. Host code launches by it, the kernel is compiled
// with it.
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

// The same on tensor cores: rows of W are their 16 rows, rows of X their 8 columns.
struct Int8MmaGeometry {
  int k;
  int warps;    // per block, side by side along N
  int frags_n;  // 16 rows of W each, per warp
  int frags_m;  // 8 rows of X each

  static constexpr int kSegment = 64;  // bytes of a row in one step: four lanes, a chunk each
  constexpr int segments() const { return static_cast<int>(ceil_div(k, kSegment)); }
  constexpr int threads() const { return warps * kWarpLanes; }
  constexpr int tile_n() const { return 16 * frags_n * warps; }
  constexpr int tile_m() const { return 8 * frags_m; }
  constexpr long long blocks_n(long long n) const { return ceil_div(n, tile_n()); }
  constexpr long long grid(long long m, long long n) const { return ceil_div(m, tile_m()) * blocks_n(n); }
};

}  // namespace quern

// Shapes of the products of rows of codes: what a block and a warp cover. Host code launches by it, the kernel is compiled with it. A chunk
// is 16 bytes of a row, one load; a piece is 16 codes, one byte each: a chunk of int8 codes is one piece, a chunk of packed 4-bit indices
// stands for two.
#pragma once

#include "geometry/limits.h"

namespace quern {

inline constexpr int kChunkBytes = 16;

// By dot products.
struct CodeDotGeometry {
  int row_bytes;    // of a row of W: a constant, so that the loop along it unrolls into loads at fixed offsets
  int pieces;       // per chunk
  int table_bytes;  // of a look-up table in shared memory
  int m;            // rows of X per block, 1..8: accumulators live in registers
  int tiles_m;      // blocks along M
  int warps;        // per block
  int lanes;        // lanes that share a row of W: 8, 16 or 32
  int rows;         // rows of W per lane group: each piece of X loaded serves so many
  int unroll;       // chunks per row in flight
  int passes;       // row groups that one block works through; its X is staged once

  // The same rows for each block, one after the other: what a kernel does with addresses that are no multiples of 16 bytes, so that loads
  // of single bytes do not decide how many registers all take (129 where 102 do, of w4a4 at m=1).
  constexpr CodeDotGeometry slim() const {
    CodeDotGeometry g = *this;
    g.passes *= g.rows;
    g.rows = g.unroll = 1;
    return g;
  }

  constexpr int chunks() const { return static_cast<int>(ceil_div(row_bytes, kChunkBytes)); }
  constexpr int threads() const { return warps * kWarpLanes; }
  constexpr int rows_per_warp() const { return rows * (kWarpLanes / lanes); }
  constexpr int rows_per_block() const { return warps * rows_per_warp(); }
  constexpr long long row_groups(long long n) const { return ceil_div(n, rows_per_block()); }
  constexpr long long blocks_n(long long n) const { return ceil_div(row_groups(n), passes); }
  constexpr long long grid(long long n) const { return tiles_m * blocks_n(n); }
  constexpr long long staged_bytes() const { return static_cast<long long>(m) * chunks() * pieces * kChunkBytes; }
  constexpr long long shared_bytes() const { return staged_bytes() + table_bytes; }
};

// By dot products where W is k-major: a lane has four neighbouring columns of the stored matrix, which are rows of W, and the warps of a
// block share the bytes along K. A step is 8 bytes of each, one piece of X.
struct KMajorGeometry {
  int row_bytes;
  int table_bytes;
  int m;
  int tiles_m;
  int warps;

  static constexpr int kColumns = 4 * kWarpLanes, kStepBytes = 8;
  constexpr int steps() const { return row_bytes / kStepBytes; }
  constexpr int threads() const { return warps * kWarpLanes; }
  constexpr long long blocks_n(long long n) const { return ceil_div(n, kColumns); }
  constexpr long long grid(long long n) const { return tiles_m * blocks_n(n); }
  constexpr long long staged_bytes() const { return static_cast<long long>(m) * steps() * kChunkBytes; }
  constexpr long long sums_bytes() const { return 4LL * warps * kColumns * m; }  // take the place of what was staged
  constexpr long long table_offset() const { return staged_bytes() > sums_bytes() ? staged_bytes() : sums_bytes(); }
  constexpr long long shared_bytes() const { return table_offset() + table_bytes; }
};

// On tensor cores: rows of W are their 16 rows, rows of X their 8 columns.
struct CodeMmaGeometry {
  int row_bytes;
  int pieces;   // per chunk
  int n;        // rows of W
  int x_rows;   // of X that a block stages in shared memory, as codes; 0: they come from global memory
  int tiles_m;  // blocks along M
  int warps;    // per block, side by side along N
  int warps_k;  // that share a tile, each a part of K: few rows of W per warp are in flight
  int frags_n;  // 16 rows of W each, per warp
  int frags_m;  // 8 rows of X each
  int stages;   // steps on their way through shared memory; 1: one, through registers
  int passes;   // tiles that one block works through; its X is staged once
  int halves;   // 1: a codebook whose halves have one sign each is looked up as two planes

  // For addresses that are no multiples of 16 bytes and rows of W with gaps, as CodeDotGeometry's.
  constexpr CodeMmaGeometry slim() const {
    CodeMmaGeometry g = *this;
    g.stages = 1, g.halves = 0;
    return g;
  }

  constexpr bool staged() const { return x_rows > 0; }
  constexpr int chunks() const { return static_cast<int>(ceil_div(row_bytes, kChunkBytes)); }
  // Bytes of a row of W in one step: a chunk for each of the four lanes of a row, through shared memory two, a whole line.
  constexpr int segment_bytes() const { return stages == 1 ? 64 : 128; }
  constexpr int segments() const { return static_cast<int>(ceil_div(row_bytes, segment_bytes())); }
  constexpr int iterations() const { return static_cast<int>(ceil_div(segments(), warps_k)); }  // per tile
  constexpr int all_warps() const { return warps * warps_k; }
  constexpr int threads() const { return all_warps() * kWarpLanes; }
  constexpr int sums() const { return 4 * frags_n * frags_m; }  // per lane
  // Chunks from one staged row to the next: 64 bytes past a multiple of 128, so that eight lanes, four of a row and four of the next, read
  // 32 banks.
  constexpr int pitch() const { return (pieces * chunks() + 3) / 8 * 8 + 4; }
  constexpr long long staged_bytes() const { return static_cast<long long>(x_rows) * pitch() * kChunkBytes; }
  // Where warps share a tile each leaves its sums for every pass. The pitch between rows of X puts the lanes of a store into 32 banks.
  constexpr int columns() const { return x_rows > 0 ? x_rows : tile_m(); }
  constexpr int part_pitch() const { return 16 * frags_n + 4; }
  constexpr int part_size() const { return columns() * part_pitch(); }
  constexpr long long parts_bytes() const { return warps_k == 1 ? 0 : 4LL * passes * all_warps() * part_size(); }
  constexpr long long ring_offset() const { return ceil_div(staged_bytes() + parts_bytes(), kChunkBytes) * kChunkBytes; }
  constexpr long long ring_bytes() const { return stages == 1 ? 0 : 16LL * segment_bytes() * stages * frags_n * all_warps(); }
  constexpr long long shared_bytes() const { return ring_offset() + ring_bytes(); }
  constexpr int tile_n() const { return 16 * frags_n * warps; }
  constexpr int tile_m() const { return 8 * frags_m; }
  constexpr int tiles_n() const { return static_cast<int>(ceil_div(n, tile_n())); }
  constexpr int blocks_n() const { return static_cast<int>(ceil_div(tiles_n(), passes)); }
  constexpr long long grid() const { return static_cast<long long>(tiles_m) * blocks_n(); }
};

}  // namespace quern

// Shapes of the tensor-core out_prod, Y[M,K] = X[M,N] * W[N,K]: tokens are the tensor cores' rows, columns of W their columns, and N is
// walked in runs whose weights are decoded into shared memory.
#pragma once

#include "geometry/limits.h"

namespace quern {

// W's run in shared memory as 16-bit floats: chunks of 64 columns, each [row][128 bytes] with a row's 16-byte pieces XOR-ed with its low
// three bits. It is the 128-byte swizzle that wgmma reads, and the eight rows of an ldmatrix hit all 32 banks.
struct WeightTileLayout {
  int rows, columns;
  static constexpr int kChunkColumns = 64;
  constexpr int chunk_bytes() const { return rows * 128; }
  constexpr int bytes() const { return columns / kChunkColumns * chunk_bytes(); }
  constexpr int at(int row, int column) const {
    return column / kChunkColumns * chunk_bytes() + row * 128 + (((column / 8) & 7) ^ (row & 7)) * 16 + column % 8 * 2;
  }
};

// What both kernels' grids and workspaces are made of. Tiles along K are innermost: neighbours share the rows of X.
struct OutProdTiles {
  int tile_m, tile_k;
  int run;    // rows of W per step
  int split;  // blocks that share an output tile, each with a part of N
  int wave;   // tiles in whole waves of so many blocks are not split, only those behind them; 0: every tile is

  constexpr long long tiles_m(long long m) const { return ceil_div(m, tile_m); }
  constexpr long long tiles_k(long long k) const { return ceil_div(k, tile_k); }
  constexpr long long tiles(long long m, long long k) const { return tiles_m(m) * tiles_k(k); }
  // The first tiles, which one block each computes; the others are split.
  constexpr long long whole(long long m, long long k) const {
    if (split == 1) return tiles(m, k);
    return wave == 0 ? 0 : tiles(m, k) / wave * wave;
  }
  constexpr long long grid(long long m, long long k) const { return whole(m, k) + (tiles(m, k) - whole(m, k)) * split; }
  constexpr WeightTileLayout weights() const { return {run, tile_k}; }
  static constexpr int kStages = 2;  // one is multiplied while the next is decoded
  constexpr int shared_bytes() const { return kStages * weights().bytes(); }
};

// f32 scale of each row of X (f16 operands alone), then the partial sums [split][split tile][row][column].
struct OutProdWorkspace {
  OutProdTiles tiles;
  long long m, k;
  int scaled;
  constexpr long long partials() const { return scaled ? round_up(4 * m, 256) : 0; }
  // Outputs of all split tiles.
  constexpr long long outputs() const { return (tiles.tiles(m, k) - tiles.whole(m, k)) * tiles.tile_m * tiles.tile_k; }
  constexpr long long bytes() const { return partials() + (tiles.split > 1 ? 4LL * tiles.split * outputs() : 0); }
};

struct GemmTGeometry {
  int warps_m;  // warps side by side along the tokens
  int warps_k;  // along the columns of W
  int frags_m;  // 16-token fragments per warp
  int frags_k;  // 8-column fragments per warp, even
  int run;      // 32 or 64
  int split, wave;
  int bf16;  // 1: bf16 operands; 0: f16 operands, X scaled per row

  constexpr int threads() const { return warps_m * warps_k * kWarpLanes; }
  constexpr int accumulators() const { return frags_m * frags_k * 4; }  // f32 per lane
  constexpr OutProdTiles tiles() const { return {16 * frags_m * warps_m, 8 * frags_k * warps_k, run, split, wave}; }
};

struct WgmmaTGeometry {
  int groups;  // warpgroups, 64 tokens each
  int tile_k;  // 64, 128 or 256 columns of W
  int split, wave;
  int spread;  // over how many of a step's four multiplies its decoding is spread; 0: behind all of them
  int hold;    // 1: X's conversions are held behind a step's barrier, as W's decoding is
  int bf16;

  static constexpr int kRun = 64;
  constexpr int threads() const { return 128 * groups; }
  constexpr OutProdTiles tiles() const { return {64 * groups, tile_k, kRun, split, wave}; }
};

}  // namespace quern

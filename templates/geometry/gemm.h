// Shape of the tensor-core GEMM. Weights are the 16-row operand, tokens the 8-column one.
#pragma once

#include "geometry/activations.h"
#include "geometry/limits.h"

namespace quern {

struct GemmGeometry {
  int warps_n;  // warps side by side along N
  int warps_m;  // along the tokens
  int warps_k;  // along K, inside the block
  int frags_n;  // 16-row fragments per warp
  int frags_m;  // 8-token fragments per warp: 1 or even
  int stages;   // shared-memory stages of activations
  int split_k;  // blocks that share an output tile, each with a part of K
  int bf16;     // 1: bf16 operands; 0: f16 operands, activations scaled per row

  static constexpr int kRun = 128;  // K per stage and warp: one slice per lane of a fragment row
  constexpr int warps() const { return warps_n * warps_m * warps_k; }
  constexpr int threads() const { return warps() * kWarpLanes; }
  constexpr int tile_n() const { return 16 * frags_n * warps_n; }
  constexpr int tile_m() const { return 8 * frags_m * warps_m; }
  constexpr int accumulators() const { return 4 * frags_n * frags_m; }  // f32 per lane
  constexpr int stage_bytes() const { return tile_m() * warps_k * kRun * 2; }
  constexpr int reduce_bytes() const { return warps_k > 1 ? warps_n * warps_m * kWarpLanes * accumulators() * 4 : 0; }
  constexpr int shared_bytes() const { return stages * stage_bytes() > reduce_bytes() ? stages * stage_bytes() : reduce_bytes(); }
  constexpr long long tiles_n(long long n) const { return ceil_div(n, tile_n()); }
  constexpr long long tiles_m(long long m) const { return ceil_div(m, tile_m()); }
  constexpr long long grid(long long m, long long n) const { return tiles_n(n) * tiles_m(m) * split_k; }
  // Runs of K that one stage covers, and how many stages there are along K.
  constexpr long long steps(long long k) const { return ceil_div(ceil_div(k, kRun), warps_k); }
  // Workspace: the prepared activations, then the f32 partial sums [split][m][n].
  constexpr long long partials(long long m, long long k) const { return round_up(FragmentActivations{m, k}.bytes(), 256); }
  constexpr long long workspace_bytes(long long m, long long n, long long k) const {
    return partials(m, k) + (split_k > 1 ? 4LL * split_k * m * n : 0);
  }
  // Of mul_mat_id: behind the stages 8 bytes per token for where its output goes, and 4 for its row of prepared activations.
  constexpr int routed_shared_bytes() const { return shared_bytes() + 12 * tile_m(); }
};

// What routing leaves behind the prepared activations: 16 bytes per token tile {expert, first, end, 0}, and the rows of Y, 4 bytes each,
// those of an expert next to one another and ascending, from `first` of its first tile to `end` of its last. A tile's rows are of one
// expert.
//
// Expert e, whose first row is number r there, has the tiles from r / tile_m + e on. That is room for any number of rows, since
// floor((r + c) / t) + 1 - floor(r / t) >= ceil(c / t), and needs r alone: no expert waits for the others' counts. What is left over is
// empty.
struct RoutedTiles {
  long long rows, experts;
  int tile_m;
  constexpr long long first_tile(long long expert, long long row) const { return row / tile_m + expert; }
  constexpr long long tiles() const { return first_tile(experts, rows); }
  constexpr long long order() const { return 16 * tiles(); }
  constexpr long long bytes() const { return order() + 4 * rows; }
};

}  // namespace quern

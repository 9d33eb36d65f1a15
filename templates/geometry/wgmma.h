// Shape of the Hopper GEMM: one warpgroup holds 64 rows of W in registers, all tokens of the tile come from shared memory.
#pragma once

#include "geometry/activations.h"
#include "geometry/limits.h"

namespace quern {

struct WgmmaGeometry {
  int groups;  // warpgroups per block, 64 rows of W each
  int tile_m;  // tokens per block: 64, 128 or 256
  int stages;  // shared-memory stages of activations, one run of K each
  int bf16;    // 1: bf16 operands; 0: f16 operands, activations scaled per row

  static constexpr int kRun = 128;  // K per stage: one slice per lane of a fragment row
  constexpr int threads() const { return 128 * groups; }
  constexpr int tile_n() const { return 64 * groups; }
  constexpr int stage_bytes() const { return tile_m * kRun * 2; }
  constexpr int shared_bytes() const { return stages * stage_bytes(); }
  constexpr long long tiles_n(long long n) const { return ceil_div(n, tile_n()); }
  constexpr long long tiles_m(long long m) const { return ceil_div(m, tile_m); }
  constexpr long long grid(long long m, long long n) const { return tiles_n(n) * tiles_m(m); }
};

}  // namespace quern

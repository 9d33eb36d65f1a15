// Where prepared activations lie in the workspace. Both forms follow the order in which lanes hold weights, not the order of K, so that the
// kernels that consume them read whole vectors.
#pragma once

#include "geometry/limits.h"

namespace quern {

// 8-bit activations. One group is the 32 activations that meet one slice of weights: 16 that meet quads 0-3 and 16 that meet quads 4-7.
//   first half  [m][slices][16 bytes], second half [m][slices][16 bytes], meta [m][slices] {f32 scale, i16 sum of half 0, i16 sum of half
//   1}
// The sums are of the quants.
struct QuantizedActivations {
  long long m, slices;
  constexpr long long half(int h) const { return h * m * slices * 16; }
  constexpr long long meta() const { return m * slices * 32; }
  constexpr long long bytes() const { return m * slices * 40; }
};

// 16-bit activations for the tensor cores: [m][k_padded] in fragment order, then one f32 scale per row.
// In each run of 128, position 16*s + p is quad s of the slice of lane t, where p = 2t, 2t+1, 2t+8, 2t+9 are its four elements: the places
// where m16n8k16 expects lane t's part of K. K is padded with zeros to a multiple of 128.
struct FragmentActivations {
  long long m, k;
  constexpr long long k_padded() const { return round_up(k, 128); }
  constexpr long long scales() const { return round_up(m * k_padded() * 2, 16); }
  constexpr long long bytes() const { return scales() + m * 4; }
};

// The same for the Hopper GEMM: tiles of `tile_m` tokens, each [k_padded / 64][token][128 bytes] with the 16-byte pieces of a token's 128
// bytes XOR-ed with the token's low three bits: the 128-byte swizzle that wgmma reads, so that a stage is one contiguous copy. Then one f32
// scale per row. Tokens past m are zeros.
struct TiledActivations {
  long long m, k;
  int tile_m;
  constexpr long long k_padded() const { return round_up(k, 128); }
  constexpr long long rows() const { return round_up(m, tile_m); }
  constexpr long long scales() const { return rows() * k_padded() * 2; }
  constexpr long long bytes() const { return scales() + rows() * 4; }
  // Byte offset of piece `piece` (0..7) of 64-wide chunk `chunk` of token m.
  constexpr long long piece(long long token, int chunk, int piece) const {
    return ((token / tile_m * (k_padded() / 64) + chunk) * tile_m + token % tile_m) * 128 + ((piece ^ static_cast<int>(token & 7)) * 16);
  }
};

}  // namespace quern

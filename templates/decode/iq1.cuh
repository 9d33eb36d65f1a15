// IQ1_S and IQ1_M: ternary codebook levels g shifted by an eighth, as integers: 8 * (g +- 1/8) = 8g +- 1, with the eighth in the scale
// (exact). A table entry holds g + 1 of eight weights in nibbles: weight j in the low nibble of byte j, weight j+4 in its high one.
#pragma once

#include "decode/grid_iq1.cuh"

namespace quern::decode {

inline constexpr int kIq1Bias = 9;

// Half `high` of an entry as bytes 8(g + 1) + 2, or + 0 where the shift is negative.
QUERN_FN u32 iq1_quad(u32 entry, bool high, bool minus) {
  return ((high ? entry >> 1 : entry << 3) & 0x78787878u) | (minus ? 0u : 0x02020202u);
}

}  // namespace quern::decode

// The 6-bit scales and mins of Q4_K and Q5_K.
#pragma once

#include "ptx/ptx.cuh"

namespace quern::decode {

// Bytes: sc of subs 2c and 2c+1, m of subs 2c and 2c+1. header: d and dmin, then the 12 bytes. Subs 0-3 lie in bytes 0-7, subs 4-7 in the
// low and high nibbles of bytes 8-11 with their top two bits in bytes 0-7.
QUERN_FN u32 k_packed_scales(const u32 (&header)[4], int c) {
  int shift = 16 * (c & 1);
  u32 b0 = header[1] >> shift, b1 = header[2] >> shift, b2 = header[3] >> shift;
  u32 sc = c < 2 ? b0 & 0x3f3fu : (b2 & 0x0f0fu) | ((b0 >> 2) & 0x3030u);
  u32 m = c < 2 ? b1 & 0x3f3fu : ((b2 >> 4) & 0x0f0fu) | ((b1 >> 2) & 0x3030u);
  return sc | m << 16;
}

}  // namespace quern::decode

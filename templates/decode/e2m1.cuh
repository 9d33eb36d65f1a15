// 4-bit floats (E2M1), doubled so that they are integers: 0 1 2 3 4 6 8 12 and their negatives, as unsigned bytes with a bias. The negative
// zero is the positive one, as in the formats' reference.
#pragma once

#include "decode/bits.cuh"

namespace quern::decode {

inline constexpr int kE2m1Bias = 12;
inline constexpr NibbleTable kBiasedE2m1{{0x0f0e0d0cu, 0x18141210u, 0x090a0b0cu, 0x00040608u}};

}  // namespace quern::decode

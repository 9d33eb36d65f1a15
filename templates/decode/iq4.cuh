// The sixteen levels of IQ4_NL and IQ4_XS, as signed bytes:
// -127 -104 -83 -65, -49 -35 -22 -10, 1 13 25 38, 53 69 89 113.
#pragma once

#include "decode/bits.cuh"

namespace quern::decode {

inline constexpr NibbleTable kIq4Levels{{0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u}};

}  // namespace quern::decode

// The shape of rpbh_quantize: what a block keeps in shared memory. Host code launches by it, the kernel is compiled with it.
#pragma once

#include "geometry/limits.h"

namespace quern {

struct RpbhGeometry {
  int k;            // columns: a constant, so that the loops along them have known ends
  int block;        // columns turned together, a power of two that divides k
  int threads;      // per block, which has one row
  int staged;       // 1: X's row is copied into shared memory, where its elements may be fetched in any order
  int x_bytes;      // of an element of X
  unsigned factor;  // bits of the f32 nearest to 1/sqrt(block)

  static constexpr int kPartials = 256;  // part of the op's definition, not a choice
  // The row's values, the partial sums, the copy of X.
  constexpr long long shared_bytes() const { return 4LL * (k + kPartials) + (staged != 0 ? 1LL * k * x_bytes : 0); }
};

}  // namespace quern

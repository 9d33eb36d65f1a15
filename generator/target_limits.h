// What an architecture offers that decides whether a config can run there. Source: CUDA programming guide, compute capabilities.
#pragma once

#include <cstdint>

#include "quern/target.h"

namespace quern {

struct TargetLimits {
  std::int64_t shared_bytes_per_block = 0;  // dynamic shared memory a block may ask for
  int registers_per_sm = 65536;
  int threads_per_sm = 0;
  bool tensor_cores_bf16 = false;  // mma m16n8k16 with f16 and bf16 operands, and cp.async
};

TargetLimits limits_of(const Target& target);

}  // namespace quern

// BF16 weights.
#pragma once

#include "decode/dense.cuh"

namespace quern::decode {

struct bf16 : Dense<quern::bf16> {
  static constexpr auto kFields = planar::bf16_fields;
};

}  // namespace quern::decode

// F16 weights.
#pragma once

#include "decode/dense.cuh"

namespace quern::decode {

struct f16 : Dense<quern::f16> {
  static constexpr auto kFields = planar::f16_fields;
};

}  // namespace quern::decode

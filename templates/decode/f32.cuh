// F32 weights.
#pragma once

#include "decode/dense.cuh"

namespace quern::decode {

struct f32 : Dense<quern::f32> {
  static constexpr auto kFields = planar::f32_fields;
};

}  // namespace quern::decode

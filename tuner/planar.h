// Repacking between the gguf and the planar layout on the host: the reference that the repacking kernels are checked against. One byte at a
// time from the layout's definition (templates/geometry/planar.h holds the grammar and the field tables); slow on purpose.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "quern/weight_type.h"

namespace quern {

// `rows` holds n dense gguf rows of k weights. Requires k a multiple of the block's elements.
std::vector<std::byte> gguf_to_planar(WeightType type, std::int64_t n, std::int64_t k, std::span<const std::byte> rows);
// The inverse.
std::vector<std::byte> planar_to_gguf(WeightType type, std::int64_t n, std::int64_t k, std::span<const std::byte> planar);

}  // namespace quern

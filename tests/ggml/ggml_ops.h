// ggml's CPU back end on the operands that quern gets. The only file pair that sees ggml's headers.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "operands.h"
#include "quern/weight_type.h"

namespace quern::test {

std::string ggml_version_text();

// Whether this ggml has the type under the same id, with blocks of the same size.
bool ggml_knows(WeightType type);

// What ggml's own decoding makes of dense gguf blocks.
std::vector<float> ggml_dequantize(WeightType type, std::span<const std::byte> blocks);

// Y, dense; empty where ggml's CPU back end says that it does not have the op for these operands. The op alone is ggml's: X is quantized by
// ggml as it sees fit, and strides and broadcasts are its own. Aborts, as ggml does, on what its back end claims to support and does not.
std::optional<std::vector<float>> ggml_product(const Operands& operands);

}  // namespace quern::test

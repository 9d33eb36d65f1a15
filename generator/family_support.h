// Checks that several families make of a problem, each naming the property that is lacking.
#pragma once

#include <string>

#include "generator/source_text.h"
#include "quern/problem.h"
#include "quern/target.h"

namespace quern {

inline Error unsupported(std::string_view family, const std::string& what) {
  return {ErrorCode::kUnsupported, std::string(family) + ": " + what, {}};
}

inline bool is_dense(WeightType type) { return info(type).block_elements == 1; }

// Op and decoder.
inline Status supports_op(std::string_view family, const Problem& p, Op op) {
  if (p.op != op) return unsupported(family, "op is " + std::string(to_string(p.op)) + ", needed " + std::string(to_string(op)));
  if (!has_decoder(p.type)) return unsupported(family, "weight type " + std::string(to_string(p.type)) + " has no decoder");
  return {};
}

// A plain matrix: no batch dims.
inline Status supports_plain(std::string_view family, const Problem& p) {
  if (p.batch2 * p.batch3 == 1) return {};
  return unsupported(family, "batch is " + std::to_string(p.batch2) + "," + std::to_string(p.batch3) + ", needed 1,1");
}

// Matrices are counted by a grid's second dimension.
inline Status supports_batch(std::string_view family, std::int64_t matrices) {
  constexpr std::int64_t kMost = 65535;
  if (matrices <= kMost) return {};
  return unsupported(family, "batch has " + std::to_string(matrices) + " matrices, needed at most " + std::to_string(kMost));
}

inline Status supports_rows(std::string_view family, const Problem& p) {
  if (!p.x_transposed) return {};
  return unsupported(family, "X is transposed, needed rows of X");
}

// The class that a family meets must not be looser than the one the problem needs.
inline Status supports_accuracy(std::string_view family, const Problem& p, Accuracy met) {
  if (met <= p.accuracy) return {};
  return unsupported(family, "meets class " + std::string(to_string(met)) + ", the problem needs " + std::string(to_string(p.accuracy)));
}

// Whole slices along K: quantized types always have them, dense ones in runs of 128.
inline Status supports_slices(std::string_view family, const Problem& p) {
  if (!is_dense(p.type) || p.k % 128 == 0) return {};
  return unsupported(family, "k is " + std::to_string(p.k) + ", needed a multiple of 128 for dense weights");
}

// A one-dimensional grid of at most 2^31-1 blocks.
inline Status supports_grid(std::string_view family, long long blocks) {
  if (blocks <= 2147483647LL) return {};
  return unsupported(family, "needs " + std::to_string(blocks) + " blocks, a grid holds 2147483647");
}

inline LaunchStep step(std::string entry, long long blocks, int threads, long long shared_bytes = 0) {
  return {std::move(entry), Dim3{static_cast<std::uint32_t>(blocks)}, Dim3{static_cast<std::uint32_t>(threads)},
          static_cast<std::uint32_t>(shared_bytes)};
}

}  // namespace quern

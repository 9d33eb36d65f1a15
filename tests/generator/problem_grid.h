// Problems that the tests of the generator walk through: every decodable type, shapes at the edges of tiles, every kind of target.
#pragma once

#include <vector>

#include "generator/source_text.h"
#include "quern/problem.h"
#include "quern/target.h"

namespace quern::test {

constexpr Target cuda(int sm, bool exact = false) { return {Target::Kind::cuda, sm, exact}; }

inline std::vector<Target> all_targets() {
  return {cuda(75), cuda(80), cuda(86), cuda(89), cuda(90), cuda(90, true), cuda(100), cuda(120), Target{}};
}

inline std::vector<WeightType> decodable_types() {
  std::vector<WeightType> types;
  for (const auto& type : kWeightTypes)
    if (has_decoder(type.type)) types.push_back(type.type);
  return types;
}

// One block, an odd number of blocks, and a length that models have.
inline std::vector<std::int64_t> lengths(WeightType type) {
  const std::int64_t block = info(type).block_elements;
  if (block == 1) return {1, 37, 4096};
  return {block, 3 * block, 17 * block};
}

inline Problem mul_mat(WeightType type, Layout layout, std::int64_t m, std::int64_t n, std::int64_t k,
                       Accuracy accuracy = Accuracy::normal) {
  return {.op = Op::mul_mat, .type = type, .layout = layout, .m = m, .n = n, .k = k, .accuracy = accuracy};
}

}  // namespace quern::test

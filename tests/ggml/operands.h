// The operands of one product as both sides read them, the same bytes of W and the same views of X; and the right answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "quern/problem.h"

namespace quern::test {

struct Operands {
  Problem problem;              // its layout is quern's; ggml always gets the gguf rows
  std::vector<std::byte> w;     // dense gguf matrices
  std::vector<float> x;         // NaN wherever the view below does not reach
  std::int64_t row_stride = 0;  // elements, as in InputView
  std::int64_t stride2 = 0;
  std::int64_t stride3 = 0;
  std::vector<std::int32_t> ids;  // mul_mat_id: dense [m, used]

  std::int64_t matrix_bytes() const { return problem.n * row_bytes(problem.type, problem.k); }
  // Where the matrix (i2, i3) of X starts, and the matrix of W that the row `row` of it meets.
  std::int64_t x_offset(std::int64_t i2, std::int64_t i3) const { return i2 * stride2 + i3 * stride3; }
  std::int64_t w_matrix(std::int64_t row, std::int64_t i2, std::int64_t i3) const;
};

// Random operands of a product of f32 with f32 results, without bias and scale. `gap` elements lie between X's rows (its columns, where it
// is transposed), and as many more between its matrices. Every expert but the last has work.
Operands make_operands(const Problem& problem, std::int64_t gap);

// Y in double precision from quern's oracle, dense.
std::vector<double> reference(const Operands& operands);

}  // namespace quern::test

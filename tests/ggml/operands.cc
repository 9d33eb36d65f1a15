#include "operands.h"

#include <limits>

#include "tuner/oracle.h"
#include "tuner/random_weights.h"

namespace quern::test {
namespace {

// Spreads dense rows over the view: row r, column c of the matrix lies at r * row_stride + c, transposed at r + c * row_stride.
void scatter(const float* dense, const Extent& extent, bool transposed, std::int64_t row_stride, float* out) {
  for (std::int64_t r = 0; r < extent.rows; ++r)
    for (std::int64_t c = 0; c < extent.columns; ++c)
      out[transposed ? r + c * row_stride : r * row_stride + c] = dense[r * extent.columns + c];
}

void make_x(Operands& o, std::int64_t gap) {
  const Problem& p = o.problem;
  const Extent extent = x_extent(p);
  const Batches batches = xy_batches(p);
  const Extent stored = p.x_transposed ? Extent{extent.columns, extent.rows} : extent;
  o.row_stride = stored.columns + gap;
  o.stride2 = stored.rows * o.row_stride + gap;
  o.stride3 = batches.dim2 * o.stride2 + gap;
  o.x.assign(static_cast<std::size_t>(batches.dim3 * o.stride3), std::numeric_limits<float>::quiet_NaN());
  const auto bytes = random_activations(DType::f32, batches.count() * extent.rows, extent.columns, 17);
  const auto* dense = reinterpret_cast<const float*>(bytes.data());
  for (std::int64_t i3 = 0; i3 < batches.dim3; ++i3)
    for (std::int64_t i2 = 0; i2 < batches.dim2; ++i2)
      scatter(dense + (i3 * batches.dim2 + i2) * extent.rows * extent.columns, extent, p.x_transposed, o.row_stride,
              o.x.data() + o.x_offset(i2, i3));
}

// A token's experts are different ones, as a router chooses them.
void make_ids(Operands& o) {
  const Problem& p = o.problem;
  Random random(23);
  for (std::int64_t token = 0; token < p.m; ++token) {
    const auto first = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(p.experts - 1)));
    for (std::int64_t slot = 0; slot < p.used; ++slot) o.ids.push_back(static_cast<std::int32_t>((first + slot) % (p.experts - 1)));
  }
}

// One matrix of Y. A row of mul_mat_id has weights of its own, so it goes alone.
void add_mul_mat(const Operands& o, std::int64_t i2, std::int64_t i3, std::vector<double>& y) {
  const Problem& p = o.problem;
  const bool by_row = p.op == Op::mul_mat_id;
  const std::int64_t rows = y_extent(p).rows;
  for (std::int64_t first = 0; first < rows; first += by_row ? 1 : rows) {
    const WeightRows w{p.type, o.w.data() + o.w_matrix(first, i2, i3) * o.matrix_bytes(), p.n, p.k, row_bytes(p.type, p.k)};
    const float* x = o.x.data() + o.x_offset(i2, i3) + (p.x_broadcast ? 0 : first * o.row_stride);
    std::vector<OutputIndex> places;
    for (std::int64_t m = 0; m < (by_row ? 1 : rows); ++m)
      for (std::int64_t n = 0; n < p.n; ++n) places.push_back({m, n});
    const ActivationRows rows_of_x{DType::f32, reinterpret_cast<const std::byte*>(x), by_row ? 1 : p.m, p.k, o.row_stride};
    for (const auto& output : mul_mat_reference(w, rows_of_x, nullptr, DType::f32, places)) y.push_back(output.value);
  }
}

void add_out_prod(const Operands& o, std::int64_t i2, std::int64_t i3, std::vector<double>& y) {
  const Problem& p = o.problem;
  const WeightRows w{p.type, o.w.data() + o.w_matrix(0, i2, i3) * o.matrix_bytes(), p.n, p.k, row_bytes(p.type, p.k)};
  const ActivationRows x{DType::f32,    reinterpret_cast<const std::byte*>(o.x.data() + o.x_offset(i2, i3)), p.m, p.n, o.row_stride,
                         p.x_transposed};
  std::vector<OutputIndex> places;
  for (std::int64_t m = 0; m < p.m; ++m)
    for (std::int64_t k = 0; k < p.k; ++k) places.push_back({m, k});
  std::vector<OutputReference> sums(places.size());
  add_out_prod_reference(w, x, 0, p.n, places, sums);
  for (const auto& sum : sums) y.push_back(sum.value);
}

}  // namespace

std::int64_t Operands::w_matrix(std::int64_t row, std::int64_t i2, std::int64_t i3) const {
  if (problem.op == Op::mul_mat_id) return ids[static_cast<std::size_t>(i2 * problem.used + row)];
  return i3 / problem.ratio3 * w_batches(problem).dim2 + i2 / problem.ratio2;
}

Operands make_operands(const Problem& problem, std::int64_t gap) {
  Operands o{.problem = problem};
  o.w = random_weights(problem.type, w_batches(problem).count() * problem.n, problem.k, 11);
  make_x(o, gap);
  if (problem.op == Op::mul_mat_id) make_ids(o);
  return o;
}

std::vector<double> reference(const Operands& operands) {
  const Batches batches = xy_batches(operands.problem);
  std::vector<double> y;
  for (std::int64_t i3 = 0; i3 < batches.dim3; ++i3)
    for (std::int64_t i2 = 0; i2 < batches.dim2; ++i2)
      operands.problem.op == Op::out_prod ? add_out_prod(operands, i2, i3, y) : add_mul_mat(operands, i2, i3, y);
  return y;
}

}  // namespace quern::test

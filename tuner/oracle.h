// The reference every kernel is measured against: slow, obvious, and written from the formats' definitions, not from the templates.
// Stateless and thread-safe. Nothing here knows about layouts other than gguf, or about devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "quern/weight_type.h"

namespace quern {

// Decodes one gguf row of k weights. `row` holds row_bytes(type, k) bytes at any alignment; k is a multiple of the block's elements.
// Bit-identical in f32 to the `gguf` Python package (Q2_0 and Q1_0: to their definitions) for every finite result.
// NaN policy: a NaN or infinite scale gives what IEEE f32 arithmetic gives in the format's own order of operations; the sign and payload
// of a NaN are unspecified.
void dequantize_row(WeightType type, const std::byte* row, std::int64_t k, float* out);

// W[n,k] in gguf layout. row_bytes is the distance between rows: at least quern::row_bytes(type, k).
struct WeightRows {
  WeightType type = WeightType::f32;
  const std::byte* data = nullptr;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t row_bytes = 0;
};

// X[m,k], or a vector with m = 1. `stride` is the distance between rows in elements; with `transposed`, between columns.
struct ActivationRows {
  DType type = DType::f32;
  const std::byte* data = nullptr;
  std::int64_t m = 0;
  std::int64_t k = 0;
  std::int64_t stride = 0;
  bool transposed = false;
};

// Row and column of Y; what the columns are depends on the op.
struct OutputIndex {
  std::int64_t m = 0;
  std::int64_t n = 0;
  auto operator<=>(const OutputIndex&) const = default;
};

struct OutputReference {
  double value = 0;         // sum of w*x in double, plus the bias
  double absolute_sum = 0;  // sum of |w*x|: what a rounding error is relative to
  double square_sum = 0;    // sum of (w*x)^2: the expected energy of an output with random signs
};

// Y[m,n] at the chosen places, in the order asked. `bias` is null or n values of bias_type. Each W row that is asked for is decoded once
// per call, so ask for all outputs of a row together. Requires indices inside W and X, and equal k.
std::vector<OutputReference> mul_mat_reference(const WeightRows& w, const ActivationRows& x, const std::byte* bias, DType bias_type,
                                               std::span<const OutputIndex> outputs);

// out_prod, Y[m,column] = sum over the rows of W of x[m,row] * w[row,column]: adds what the rows [begin, end) contribute to the sums at the
// chosen places, so that callers can share the rows out. x.k counts rows of W.
void add_out_prod_reference(const WeightRows& w, const ActivationRows& x, std::int64_t begin, std::int64_t end,
                            std::span<const OutputIndex> outputs, std::span<OutputReference> sums);

// Integer ops, from their definitions (contracts of quantize_rows_int8 and matmul_int8_rows in quern/problem.h), in f32 arithmetic.
// One row of k elements to codes; returns its scale.
float quantize_row_int8(DType type, const std::byte* x, std::int64_t k, std::int8_t* codes);
// One output, before it is rounded to its type: f32(sum of x*w) * (x_scale * w_scale), plus the bias.
float int8_product(const std::int8_t* x, const std::int8_t* w, std::int64_t k, float x_scale, float w_scale, const float* bias);
// The exact sum of w4a4: packed indices x and w, k of each, into codebooks of 16.
std::int32_t w4a4_sum(const std::uint8_t* x, const std::uint8_t* w, std::int64_t k, std::span<const std::int8_t> x_codebook,
                      std::span<const std::int8_t> w_codebook);
// Its output before it is rounded to its type: f32(sum) * ((x_norm * w_norm) * scale), plus the bias; `fused` rounds the last product and
// the bias together.
float w4a4_output(std::int32_t sum, float x_norm, float w_norm, float scale, const float* bias, bool fused);

// What rpbh_quantize reads beside X. The codebook is empty where indices are asked for.
struct Rotation {
  std::span<const std::int32_t> permutation;  // as many as there are columns
  std::span<const std::int8_t> signs;
  std::span<const float> boundaries;
  std::span<const std::int8_t> codebook;
  float epsilon = 0;
};
// One row of x to indices, two a byte, or to codes, a byte each, turned by blocks of `block` columns; returns its norm.
float rpbh_quantize_row(DType type, const std::byte* x, std::int64_t block, const Rotation& rotation, std::int8_t* codes);

// One element of an array of `type`, at any alignment.
float load_element(DType type, const std::byte* data, std::int64_t index);
// Rounds to nearest even.
void store_element(DType type, std::byte* data, std::int64_t index, float value);

}  // namespace quern

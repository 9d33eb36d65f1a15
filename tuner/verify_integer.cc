// Integer ops: every bit as the oracle computes it.
#include <algorithm>
#include <cstring>

#include "tuner/oracle.h"
#include "tuner/verify_support.h"

namespace quern::verification {
namespace {

// What row m of codes has to be, byte by byte; returns the f32 beside it.
float expected_codes(const BenchData& data, std::int64_t m, std::vector<std::int8_t>& codes) {
  const Problem& p = data.problem();
  const std::byte* x = data.x().data() + m * data.ldx() * size_of(p.x_type);
  if (p.op == Op::quantize_rows_int8) return quantize_row_int8(p.x_type, x, p.k, codes.data());
  const CodeOperands& o = data.codes();
  return rpbh_quantize_row(p.x_type, x, p.block, {o.permutation, o.signs, o.boundaries, o.x_codebook, o.epsilon}, codes.data());
}

}  // namespace

Reference integer_outputs(const BenchData& data, double full_limit) {
  const Problem& p = data.problem();
  Reference reference;
  if (is_empty(p)) return reference;
  const double per_row = static_cast<double>(p.m) * static_cast<double>(p.k);
  reference.sampled = per_row * static_cast<double>(p.n) > full_limit;
  const auto fitting = static_cast<std::int64_t>(kSampledProducts / per_row);
  const std::int64_t count = reference.sampled ? std::clamp<std::int64_t>(fitting, 16, p.n) : p.n;
  const auto ns = sample_indices(p.n, count, data.options().seed);
  reference.outputs.resize(ns.size() * static_cast<std::size_t>(p.m));
  const CodeOperands& codes = data.codes();
  const float scale = codes.activation_scale * codes.weight_scale;
  const std::int64_t row = row_bytes(p.type, p.k);
  parallel_for(static_cast<std::int64_t>(ns.size()), [&](std::int64_t i) {
    const std::int64_t n = ns[static_cast<std::size_t>(i)];
    const float bias = p.bias ? load_element(p.y_type, data.bias().data(), n) : 0.0f;
    for (std::int64_t m = 0; m < p.m; ++m) {
      const std::byte *x = data.x().data() + m * data.ldx(), *w = data.weights().data() + n * row;
      const float xs = codes.x_scales[static_cast<std::size_t>(m)], ws = codes.w_scales[static_cast<std::size_t>(n)];
      const float* b = p.bias ? &bias : nullptr;
      const float y = p.op == Op::w4a4
                          ? w4a4_output(w4a4_sum(reinterpret_cast<const std::uint8_t*>(x), reinterpret_cast<const std::uint8_t*>(w), p.k,
                                                 codes.x_codebook, codes.w_codebook),
                                        xs, ws, scale, b, p.fused)
                          : int8_product(reinterpret_cast<const std::int8_t*>(x), reinterpret_cast<const std::int8_t*>(w), p.k, xs, ws, b);
      reference.outputs[static_cast<std::size_t>(i * p.m + m)] = {0, m, n, y, 0, 0};
    }
  });
  return reference;
}

Verification check_integer(const BenchData& data, const Reference& reference, const std::vector<std::byte>& y) {
  std::int64_t wrong = 0;
  std::string first;
  for (const auto& o : reference.outputs) {
    const std::int64_t at = o.m * data.ldy() + o.n;
    if (same_element(data.problem().y_type, y.data(), at, static_cast<float>(o.value))) continue;
    if (wrong++ == 0)
      first = place(o, data) + ": found " + number(load_element(data.problem().y_type, y.data(), at)) + ", needed " + number(o.value) +
              " rounded to " + std::string(to_string(data.problem().y_type));
  }
  const auto compared = static_cast<std::int64_t>(reference.outputs.size());
  if (wrong > 0) return wrong_output(wrong, compared, first);
  Verification v;
  v.compared = compared;
  return v;
}

Verification check_codes(const BenchData& data, const std::vector<std::byte>& y, const std::vector<float>& scales) {
  const Problem& p = data.problem();
  const std::int64_t columns = data.y_columns();
  std::int64_t wrong = 0;
  std::string first;
  std::vector<std::int8_t> codes(static_cast<std::size_t>(columns));
  for (std::int64_t m = 0; m < p.m; ++m) {
    const float scale = expected_codes(data, m, codes);
    if (std::memcmp(&scale, &scales[static_cast<std::size_t>(m)], sizeof scale) != 0 && wrong++ == 0)
      first =
          "the scale of m=" + std::to_string(m) + ": found " + number(scales[static_cast<std::size_t>(m)]) + ", needed " + number(scale);
    for (std::int64_t column = 0; column < columns; ++column) {
      const auto found = static_cast<std::int8_t>(y[static_cast<std::size_t>(m * data.ldy() + column)]);
      if (found == codes[static_cast<std::size_t>(column)] || wrong++ > 0) continue;
      first = "m=" + std::to_string(m) + " column=" + std::to_string(column) + ": found " + std::to_string(found) + ", needed " +
              std::to_string(codes[static_cast<std::size_t>(column)]);
    }
    for (std::int64_t column = columns; column < data.ldy() && m + 1 < p.m; ++column)
      if (y[static_cast<std::size_t>(m * data.ldy() + column)] != std::byte{kPoisonByte})
        return failure(Verdict::out_of_bounds_write, "the gap after row " + std::to_string(m) + " of the output was written");
  }
  if (wrong > 0) return wrong_output(wrong, p.m * (columns + 1), first);
  Verification v;
  v.compared = p.m * (columns + 1);
  return v;
}

}  // namespace quern::verification

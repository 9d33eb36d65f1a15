#include "tuner/oracle.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "tuner/half.h"
#include "tuner/oracle_blocks.h"

namespace quern {
namespace {

using DecodeBlock = void (*)(const std::byte* block, float* out);

DecodeBlock decoder(WeightType type) {
  switch (type) {
#define QUERN_WEIGHT_TYPE(name, id, elements, bytes, ...) \
  case WeightType::name:                                  \
    return oracle::decode_##name;
#include "quern/weight_types.def"
#undef QUERN_WEIGHT_TYPE
    case WeightType::i8:
    case WeightType::code4:
      break;
  }
  return nullptr;  // bare codes have no value of their own
}

void add_product(OutputReference& sum, float w, float x) {
  const double product = static_cast<double>(w) * x;
  sum.value += product;
  sum.absolute_sum += std::abs(product);
  sum.square_sum += product * product;
}

float load_activation(const ActivationRows& x, std::int64_t row, std::int64_t column) {
  return load_element(x.type, x.data, x.transposed ? column * x.stride + row : row * x.stride + column);
}

OutputReference dot(const float* w, const ActivationRows& x, std::int64_t row) {
  OutputReference sum;
  for (std::int64_t i = 0; i < x.k; ++i) add_product(sum, w[i], load_activation(x, row, i));
  return sum;
}

// In the order that rpbh_quantize's definition gives.
float square_sum(std::span<const float> values) {
  std::vector<float> partial(256, 0.0f);
  for (std::size_t c = 0; c < values.size(); ++c) partial[c % 256] = std::fma(values[c], values[c], partial[c % 256]);
  for (std::size_t half = 128; half > 0; half /= 2)
    for (std::size_t i = 0; i < half; ++i) partial[i] += partial[i + half];
  return partial[0];
}

// Times the Hadamard matrix of that size, without its factor.
void turn(std::span<float> values) {
  for (std::size_t width = 1; width < values.size(); width *= 2)
    for (std::size_t c = 0; c < values.size(); ++c) {
      if ((c & width) != 0) continue;
      const float a = values[c], b = values[c + width];
      values[c] = a + b;
      values[c + width] = a - b;
    }
}

}  // namespace

void dequantize_row(WeightType type, const std::byte* row, std::int64_t k, float* out) {
  const DecodeBlock decode = decoder(type);
  const WeightTypeInfo& format = info(type);
  for (std::int64_t block = 0; block < k / format.block_elements; ++block)
    decode(row + block * format.block_bytes, out + block * format.block_elements);
}

std::vector<OutputReference> mul_mat_reference(const WeightRows& w, const ActivationRows& x, const std::byte* bias, DType bias_type,
                                               std::span<const OutputIndex> outputs) {
  std::vector<std::size_t> order(outputs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return outputs[a].n < outputs[b].n; });
  std::vector<OutputReference> references(outputs.size());
  std::vector<float> row(static_cast<std::size_t>(w.k));
  std::int64_t decoded = -1;
  for (const std::size_t i : order) {
    const auto [m, n] = outputs[i];
    if (n != decoded) dequantize_row(w.type, w.data + n * w.row_bytes, w.k, row.data());
    decoded = n;
    references[i] = dot(row.data(), x, m);
    if (bias) references[i].value += load_element(bias_type, bias, n);
  }
  return references;
}

void add_out_prod_reference(const WeightRows& w, const ActivationRows& x, std::int64_t begin, std::int64_t end,
                            std::span<const OutputIndex> outputs, std::span<OutputReference> sums) {
  std::vector<float> row(static_cast<std::size_t>(w.k));
  for (std::int64_t n = begin; n < end; ++n) {
    dequantize_row(w.type, w.data + n * w.row_bytes, w.k, row.data());
    for (std::size_t i = 0; i < outputs.size(); ++i)
      add_product(sums[i], row[static_cast<std::size_t>(outputs[i].n)], load_activation(x, outputs[i].m, n));
  }
}

float quantize_row_int8(DType type, const std::byte* x, std::int64_t k, std::int8_t* codes) {
  float absmax = 0;
  for (std::int64_t i = 0; i < k; ++i) {
    const float a = std::abs(load_element(type, x, i));
    if (a > absmax) absmax = a;
  }
  const float scale = std::max(absmax, 1e-12f) / 127.0f;
  for (std::int64_t i = 0; i < k; ++i) {
    const float q = std::nearbyint(load_element(type, x, i) / scale);
    codes[i] = std::isnan(q) ? std::int8_t{0} : static_cast<std::int8_t>(std::clamp(q, -127.0f, 127.0f));
  }
  return scale;
}

float int8_product(const std::int8_t* x, const std::int8_t* w, std::int64_t k, float x_scale, float w_scale, const float* bias) {
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < k; ++i) sum += x[i] * w[i];
  // Each operation is rounded before the next: no fused multiply-add.
  volatile float y = static_cast<float>(sum) * static_cast<float>(x_scale * w_scale);
  if (bias != nullptr) y = y + *bias;
  return y;
}

std::int32_t w4a4_sum(const std::uint8_t* x, const std::uint8_t* w, std::int64_t k, std::span<const std::int8_t> x_codebook,
                      std::span<const std::int8_t> w_codebook) {
  std::int32_t sum = 0;
  for (std::int64_t i = 0; i < k / 2; ++i) {
    sum += x_codebook[x[i] & 15] * w_codebook[w[i] & 15];
    sum += x_codebook[x[i] >> 4] * w_codebook[w[i] >> 4];
  }
  return sum;
}

float w4a4_output(std::int32_t sum, float x_norm, float w_norm, float scale, const float* bias, bool fused) {
  volatile float factor = x_norm * w_norm;
  factor = factor * scale;
  if (bias != nullptr && fused) return std::fma(static_cast<float>(sum), factor, *bias);
  volatile float y = static_cast<float>(sum) * factor;
  if (bias != nullptr) y = y + *bias;
  return y;
}

float rpbh_quantize_row(DType type, const std::byte* x, std::int64_t block, const Rotation& rotation, std::int8_t* codes) {
  const auto k = static_cast<std::int64_t>(rotation.permutation.size());
  std::vector<float> v(static_cast<std::size_t>(k));
  for (std::size_t c = 0; c < v.size(); ++c) {
    const std::int64_t from = rotation.permutation[c];
    v[c] = load_element(type, x, from < 0 || from >= k ? k - 1 : from) * static_cast<float>(rotation.signs[c]);
  }
  const float norm = std::sqrt(square_sum(v));
  for (float& value : v) value = value / (norm + rotation.epsilon);
  for (std::int64_t first = 0; first < k; first += block)
    turn(std::span(v).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(block)));

  const auto factor = static_cast<float>(1.0 / std::sqrt(static_cast<double>(block)));
  std::fill_n(codes, rotation.codebook.empty() ? k / 2 : k, std::int8_t{0});
  for (std::size_t c = 0; c < v.size(); ++c) {
    const float value = v[c] * factor;
    const auto index =
        std::count_if(rotation.boundaries.begin(), rotation.boundaries.end(), [&](float boundary) { return value > boundary; });
    if (!rotation.codebook.empty())
      codes[c] = rotation.codebook[static_cast<std::size_t>(index)];
    else
      codes[c / 2] = static_cast<std::int8_t>(codes[c / 2] | (c % 2 == 0 ? index : index << 4));
  }
  return norm;
}

float load_element(DType type, const std::byte* data, std::int64_t index) {
  if (type == DType::f32) {
    float value;
    std::memcpy(&value, data + 4 * index, 4);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, data + 2 * index, 2);
  return type == DType::f16 ? half_to_float(bits) : bfloat16_to_float(bits);
}

void store_element(DType type, std::byte* data, std::int64_t index, float value) {
  if (type == DType::f32) {
    std::memcpy(data + 4 * index, &value, 4);
    return;
  }
  const std::uint16_t bits = type == DType::f16 ? float_to_half(value) : float_to_bfloat16(value);
  std::memcpy(data + 2 * index, &bits, 2);
}

}  // namespace quern

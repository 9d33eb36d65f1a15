#include "tuner/verify.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <thread>

#include "tuner/oracle.h"
#include "tuner/random_weights.h"
#include "tuner/verify_support.h"

namespace quern::verification {

std::string place(const Reference::Output& o, const BenchData& data) {
  const Op op = data.problem().op;
  const std::string row = op == Op::mul_mat_id ? "slot=" : "m=", column = op == Op::out_prod ? " k=" : " n=";
  const std::string s = row + std::to_string(o.m) + column + std::to_string(o.n);
  return data.matrices() > 1 ? std::string(data.problem().op == Op::mul_mat_id ? "token=" : "batch=") + std::to_string(o.batch) + " " + s
                             : s;
}

std::string number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

Verification failure(Verdict verdict, std::string reason) { return Verification{verdict, std::move(reason), 0, 0, 0}; }

Verification wrong_output(std::int64_t wrong, std::int64_t compared, const std::string& first) {
  Verification v;
  v.compared = compared;
  v.verdict = Verdict::wrong_output;
  v.max_error = v.nmse = std::numeric_limits<double>::infinity();
  v.reason = std::to_string(wrong) + " of " + std::to_string(compared) + " outputs differ, the first at " + first;
  return v;
}

bool same_element(DType type, const std::byte* y, std::int64_t at, float right) {
  std::byte expected[4];
  store_element(type, expected, 0, right);
  const int bytes = size_of(type);
  if (std::memcmp(y + at * bytes, expected, static_cast<std::size_t>(bytes)) == 0) return true;
  return std::isnan(right) && std::isnan(load_element(type, y, at));
}

}  // namespace quern::verification

namespace quern {
using namespace verification;

namespace {

constexpr std::int64_t kSampledXRows = 64;
constexpr std::int64_t kSampledWRowsLeast = 64, kSampledWRowsMost = 2048;
constexpr double kTiny = 1e-30;

// Half the distance between neighbouring values of `type` around `value`.
double half_ulp(DType type, double value) {
  const int mantissa = type == DType::f32 ? 23 : type == DType::f16 ? 10 : 7;
  const int least = type == DType::f16 ? -14 : -126;
  const int exponent = value == 0 ? least : std::max(std::ilogb(value), least);
  return std::ldexp(0.5, exponent - mantissa);
}

// Whether every byte of the element still is as poison() left it.
bool untouched(const BenchData& data, const std::vector<std::byte>& y, std::size_t at, std::size_t bytes) {
  if (bytes == 4) {
    std::uint32_t bits;
    std::memcpy(&bits, y.data() + at, 4);
    return bits == kPoisonByte * 0x01010101u;
  }
  if (bytes == 2) {
    std::uint16_t bits;
    std::memcpy(&bits, y.data() + at, 2);
    return bits == kPoisonByte * 0x0101u;
  }
  return y[at] == data.poison_at(at);  // repacking
}

// Elements still poisoned, and gaps that no longer are. Ok when all are as they should be.
Verification check_written(const BenchData& data, const std::vector<std::byte>& y) {
  const std::size_t element = static_cast<std::size_t>(data.y_element_bytes());
  const auto columns = static_cast<std::size_t>(data.y_columns()), ld = static_cast<std::size_t>(data.ldy());
  const std::size_t rows = y.empty() ? 0 : (y.size() / element + ld - columns) / ld;
  std::size_t unwritten = 0, first = 0;
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < ld && (r * ld + c) * element < y.size(); ++c) {
      const bool left = untouched(data, y, (r * ld + c) * element, element);
      if (c >= columns && !left)
        return failure(Verdict::out_of_bounds_write, "the gap after row " + std::to_string(r) + " of the output was written");
      if (c < columns && left && unwritten++ == 0) first = r * ld + c;
    }
  if (unwritten == 0) return {};
  return failure(Verdict::incomplete_output, std::to_string(unwritten) + " of " + std::to_string(rows * columns) +
                                                 " outputs were never written, the first at row " + std::to_string(first / ld) +
                                                 " column " + std::to_string(first % ld));
}

Verification check_product(const BenchData& data, const Reference& reference, const std::vector<std::byte>& y, Accuracy accuracy) {
  const AccuracyBars bars = accuracy_bars(accuracy);
  const DType type = data.problem().y_type;
  Verification v;
  double error_energy = 0, energy = 0, products = 0, rounding = 0, worst_excess = 0;
  const Reference::Output* worst = nullptr;
  double worst_value = 0;
  for (const auto& o : reference.outputs) {
    const double value = load_element(type, y.data(), (o.batch * data.y_rows() + o.m) * data.ldy() + o.n);
    // A model's own scales may be infinite or NaN: then the kernel's result has to be the same kind of value.
    if (!std::isfinite(o.value) && (std::isnan(o.value) ? std::isnan(value) : value == o.value)) continue;
    const double error = std::abs(value - o.value), ulp = half_ulp(type, o.value);
    if (!(error <= std::numeric_limits<double>::max())) {
      v = failure(Verdict::wrong_output, place(o, data) + ": found " + number(value) + ", needed " + number(o.value));
      v.nmse = v.max_error = std::numeric_limits<double>::infinity();
      return v;
    }
    error_energy += error * error;
    energy += o.value * o.value;
    products += o.square_sum;
    rounding += ulp * ulp;
    v.max_error = std::max(v.max_error, error / (o.absolute_sum + kTiny));
    const double excess = error - ulp - bars.worst * o.absolute_sum;
    if (excess > worst_excess || worst == nullptr) worst_excess = excess, worst = &o, worst_value = value;
    ++v.compared;
  }
  if (v.compared == 0) return v;
  const double scale = std::max({energy, products, kTiny});
  v.nmse = error_energy / scale;
  const double few = accuracy <= Accuracy::f32 ? 1 : 1 + 4 * std::sqrt(2.0 / static_cast<double>(v.compared));
  const double limit = std::sqrt(bars.nmse * few) + std::sqrt(rounding / scale);
  if (worst_excess > kTiny) {
    v.verdict = Verdict::wrong_output;
    v.reason = place(*worst, data) + ": found " + number(worst_value) + ", needed " + number(worst->value) + " within " +
               number(bars.worst * worst->absolute_sum) + " (class " + std::string(to_string(accuracy)) + ")";
  } else if (v.nmse > limit * limit) {
    v.verdict = Verdict::wrong_output;
    v.reason = "nmse " + number(v.nmse) + " over " + std::to_string(v.compared) + " outputs, needed " + number(limit * limit) +
               " or less for class " + std::string(to_string(accuracy));
  }
  return v;
}

Verification check_dequantize(const BenchData& data, const Reference& reference, const std::vector<std::byte>& y) {
  const Problem& p = data.problem();
  const std::int64_t row = row_bytes(p.type, p.k);
  std::atomic<std::int64_t> first{std::numeric_limits<std::int64_t>::max()}, wrong{0};
  parallel_for(static_cast<std::int64_t>(reference.rows.size()), [&](std::int64_t i) {
    const std::int64_t n = reference.rows[static_cast<std::size_t>(i)];
    std::vector<float> values(static_cast<std::size_t>(p.k));
    dequantize_row(p.type, data.weights().data() + n * row, p.k, values.data());
    for (std::int64_t k = 0; k < p.k; ++k) {
      if (same_element(p.y_type, y.data(), n * data.ldy() + k, values[static_cast<std::size_t>(k)] * data.scale_of(0))) continue;
      ++wrong;
      std::int64_t seen = first.load();
      while (n * p.k + k < seen && !first.compare_exchange_weak(seen, n * p.k + k)) {
      }
    }
  });
  Verification v;
  v.compared = static_cast<std::int64_t>(reference.rows.size()) * p.k;
  if (wrong == 0) return v;
  const std::int64_t n = first / p.k, k = first % p.k;
  std::vector<float> values(static_cast<std::size_t>(p.k));
  dequantize_row(p.type, data.weights().data() + n * row, p.k, values.data());
  v.verdict = Verdict::wrong_output;
  v.max_error = v.nmse = std::numeric_limits<double>::infinity();
  v.reason = std::to_string(wrong) + " of " + std::to_string(v.compared) + " weights differ, the first at n=" + std::to_string(n) +
             " k=" + std::to_string(k) + ": found " + number(load_element(p.y_type, y.data(), n * data.ldy() + k)) + ", needed " +
             number(values[static_cast<std::size_t>(k)] * data.scale_of(0));
  return v;
}

Verification check_repack(const BenchData& data, const std::vector<std::byte>& y) {
  Verification v;
  v.compared = static_cast<std::int64_t>(y.size());
  const auto [found, right] = std::mismatch(y.begin(), y.end(), data.expected().begin());
  if (found == y.end()) return v;
  v.verdict = Verdict::wrong_output;
  v.max_error = v.nmse = std::numeric_limits<double>::infinity();
  v.reason = "byte " + std::to_string(found - y.begin()) + ": found " + std::to_string(std::to_integer<int>(*found)) + ", needed " +
             std::to_string(std::to_integer<int>(*right));
  return v;
}

WeightRows weights_of(const BenchData& data, std::int64_t w_batch) {
  const Problem& p = data.problem();
  const std::int64_t row = row_bytes(p.type, p.k);
  return {p.type, data.weights().data() + w_batch * p.n * row, p.n, p.k, row};
}

ActivationRows activations_of(const BenchData& data, std::int64_t matrix) {
  const Problem& p = data.problem();
  const Extent x = x_extent(p);
  const std::int64_t at = matrix * data.x_stored().rows * data.ldx() * size_of(p.x_type);
  return {p.x_type, data.x().empty() ? nullptr : data.x().data() + at, x.rows, x.columns, data.ldx(), p.x_transposed};
}

// Sums become outputs: times the weight scale, plus the bias, as the kernels' epilogue does.
void finish_outputs(const BenchData& data, std::int64_t w_batch, std::span<const OutputReference> sums,
                    std::span<Reference::Output* const> outputs) {
  const Problem& p = data.problem();
  const double scale = data.scale_of(p.op == Op::mul_mat_id ? w_batch : 0);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    Reference::Output& o = *outputs[i];
    o.value = sums[i].value * scale;
    o.absolute_sum = sums[i].absolute_sum * std::abs(scale);
    o.square_sum = sums[i].square_sum * scale * scale;
    if (p.bias) o.value += load_element(p.y_type, data.bias().data(), (p.op == Op::mul_mat_id ? w_batch * p.n : 0) + o.n);
  }
}

// Fills in outputs of one matrix of Y: of mul_mat, and of mul_mat_id, where each row has the weights of its expert.
void fill_outputs(const BenchData& data, std::int64_t matrix, std::span<Reference::Output> outputs) {
  const Problem& p = data.problem();
  std::map<std::int64_t, std::vector<Reference::Output*>> by_weights;
  for (auto& o : outputs) by_weights[p.op == Op::mul_mat_id ? data.expert_of(matrix, o.m) : data.w_batch_of(matrix)].push_back(&o);
  for (const auto& [w_batch, group] : by_weights) {
    std::vector<OutputIndex> indices;
    for (const auto* o : group) indices.push_back({p.x_broadcast ? 0 : o->m, o->n});
    const auto sums = mul_mat_reference(weights_of(data, w_batch), activations_of(data, matrix), nullptr, p.y_type, indices);
    finish_outputs(data, w_batch, sums, group);
  }
}

// Fills in all chosen outputs of one matrix of Y = X * W; threads share the rows of W, each of which reaches every output.
void fill_out_prod(const BenchData& data, std::int64_t matrix, std::span<Reference::Output> outputs) {
  const Problem& p = data.problem();
  const std::int64_t w_batch = data.w_batch_of(matrix);
  std::vector<OutputIndex> indices;
  std::vector<Reference::Output*> pointers;
  for (auto& o : outputs) indices.push_back({o.m, o.n}), pointers.push_back(&o);
  const std::int64_t pieces = std::clamp<std::int64_t>(p.n / 64, 1, 64);
  std::vector<std::vector<OutputReference>> parts(static_cast<std::size_t>(pieces), std::vector<OutputReference>(indices.size()));
  parallel_for(pieces, [&](std::int64_t piece) {
    add_out_prod_reference(weights_of(data, w_batch), activations_of(data, matrix), p.n * piece / pieces, p.n * (piece + 1) / pieces,
                           indices, parts[static_cast<std::size_t>(piece)]);
  });
  for (std::size_t piece = 1; piece < parts.size(); ++piece)
    for (std::size_t i = 0; i < indices.size(); ++i) {
      parts[0][i].value += parts[piece][i].value;
      parts[0][i].absolute_sum += parts[piece][i].absolute_sum;
      parts[0][i].square_sum += parts[piece][i].square_sum;
    }
  finish_outputs(data, w_batch, parts[0], pointers);
}

Reference product_outputs(const BenchData& data, double full_limit) {
  const Problem& p = data.problem();
  Reference reference;
  if (is_empty(p)) return reference;
  const Extent y = y_extent(p);
  const std::int64_t reduction = p.op == Op::out_prod ? p.n : p.k;
  const double products = static_cast<double>(y.rows) * y.columns * reduction * data.matrices();
  reference.sampled = products > full_limit;
  std::int64_t columns = y.columns, rows = y.rows, matrix_count = data.matrices();
  if (reference.sampled) {
    matrix_count = std::min<std::int64_t>(matrix_count, 8);
    rows = std::min(y.rows, kSampledXRows);
    const double fitting = kSampledProducts / (static_cast<double>(rows) * std::max<std::int64_t>(reduction, 1) * matrix_count);
    columns = std::clamp(static_cast<std::int64_t>(fitting), kSampledWRowsLeast, kSampledWRowsMost);
  }
  const std::uint64_t seed = data.options().seed;
  const auto ns = sample_indices(y.columns, columns, seed), ms = sample_indices(y.rows, rows, seed + 1);
  const auto matrices = sample_indices(data.matrices(), matrix_count, seed + 2);
  for (const auto matrix : matrices)
    for (const auto n : ns)
      for (const auto m : ms) reference.outputs.push_back({matrix, m, n, 0, 0, 0});
  const std::size_t per_row = ms.size(), per_matrix = per_row * ns.size();
  const std::span all(reference.outputs);
  if (p.op == Op::out_prod) {
    for (std::size_t i = 0; i < matrices.size(); ++i) fill_out_prod(data, matrices[i], all.subspan(i * per_matrix, per_matrix));
    return reference;
  }
  // One task covers whole W rows of one matrix: a row is decoded once.
  const std::int64_t pieces = std::clamp<std::int64_t>(static_cast<std::int64_t>(ns.size()) / 8, 1, 64);
  parallel_for(static_cast<std::int64_t>(matrices.size()) * pieces, [&](std::int64_t task) {
    const std::size_t b = static_cast<std::size_t>(task / pieces), piece = static_cast<std::size_t>(task % pieces);
    const std::size_t begin = ns.size() * piece / static_cast<std::size_t>(pieces),
                      end = ns.size() * (piece + 1) / static_cast<std::size_t>(pieces);
    fill_outputs(data, matrices[b], all.subspan(b * per_matrix + begin * per_row, (end - begin) * per_row));
  });
  return reference;
}

}  // namespace

AccuracyBars accuracy_bars(Accuracy accuracy) {
  switch (accuracy) {
    case Accuracy::exact:
      return {0, 0};
    case Accuracy::f32:
      return {1e-10, 1e-5};
    case Accuracy::tight:
      return {1e-6, 2e-3};
    case Accuracy::normal:
      return {5e-5, 2e-2};
    case Accuracy::loose:
      return {5e-4, 5e-2};
  }
  return {0, 0};
}

std::vector<std::int64_t> sample_indices(std::int64_t limit, std::int64_t count, std::uint64_t seed) {
  if (count >= limit) {
    std::vector<std::int64_t> all(static_cast<std::size_t>(limit));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  std::set<std::int64_t> chosen;
  const std::int64_t middle = limit / 2 / 128 * 128;
  for (const std::int64_t i :
       {std::int64_t{0}, limit - 1, std::int64_t{1}, limit - 2, std::int64_t{15}, std::int64_t{16}, std::int64_t{31}, std::int64_t{32},
        std::int64_t{63}, std::int64_t{64}, std::int64_t{127}, std::int64_t{128}, limit - 16, limit - 17, middle - 1, middle})
    if (i >= 0 && i < limit && static_cast<std::int64_t>(chosen.size()) < count) chosen.insert(i);
  Random random(seed);
  while (static_cast<std::int64_t>(chosen.size()) < count)
    chosen.insert(static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(limit))));
  return {chosen.begin(), chosen.end()};
}

Reference make_reference(const BenchData& data, double full_limit) {
  const Problem& p = data.problem();
  if (is_product(p.op)) return product_outputs(data, full_limit);
  if (has_code_input(p.op)) return integer_outputs(data, full_limit);
  Reference reference;
  if (p.op != Op::dequantize) return reference;
  reference.sampled = static_cast<double>(p.n) * p.k > full_limit;
  reference.rows = sample_indices(p.n, reference.sampled ? std::max<std::int64_t>(16, static_cast<std::int64_t>(full_limit) / p.k) : p.n,
                                  data.options().seed);
  return reference;
}

Verification check_output(const BenchData& data, const Reference& reference, const std::vector<std::byte>& y, Accuracy accuracy) {
  if (Verification written = check_written(data, y); written.verdict != Verdict::ok) return written;
  switch (data.problem().op) {
    case Op::mul_mat:
    case Op::out_prod:
    case Op::mul_mat_id:
      return check_product(data, reference, y, accuracy);
    case Op::dequantize:
      return check_dequantize(data, reference, y);
    case Op::to_planar:
    case Op::to_gguf:
      return check_repack(data, y);
    case Op::matmul_int8_rows:
    case Op::w4a4:
      return check_integer(data, reference, y);
    case Op::quantize_rows_int8:
    case Op::rpbh_quantize:  // verify() compares it, with the scales beside it
      return y.empty() ? Verification{} : failure(Verdict::wrong_output, "codes were given without their scales");
  }
  return {};
}

Result<Verification> verify(LoadedKernel& kernel, BenchData& data, const Reference& reference, Accuracy accuracy) {
  QUERN_TRY(data.poison());
  QUERN_TRY(kernel.poison_workspace());
  QUERN_TRY(kernel.run(data.args(0, kernel.workspace())));
  std::string fault;
  QUERN_ASSIGN(const std::vector<std::byte> y, data.read_output(fault));
  if (fault.empty()) {
    QUERN_ASSIGN(fault, kernel.workspace_fault());
  }
  if (!fault.empty()) return failure(Verdict::out_of_bounds_write, fault);
  if (has_code_output(data.problem().op) && !y.empty()) {
    QUERN_ASSIGN(const auto scales, data.read_scales(fault));
    if (!fault.empty()) return failure(Verdict::out_of_bounds_write, fault);
    return check_codes(data, y, scales);
  }
  return check_output(data, reference, y, accuracy);
}

}  // namespace quern

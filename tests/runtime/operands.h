// A problem's operands in any view, on the host target: placed, launched and compared with plain sums in double precision, with poison in
// every gap.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "quern/context.h"
#include "tuner/oracle.h"
#include "tuner/planar.h"
#include "tuner/random_weights.h"
#include "tuner/verify.h"

namespace quern::test {

inline constexpr std::byte kPoison{0xA5};
inline constexpr std::size_t kRoom = std::size_t{1} << 19;  // bytes of each operand's memory, views with gaps included
inline constexpr std::size_t kStart = 256;                  // where a view starts in it

class Memory {
 public:
  Memory() : bytes_(kRoom + 256) {}
  std::byte* data() { return reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(bytes_.data()) + 255) / 256 * 256); }
  std::byte* start() { return data() + kStart; }
  void fill(std::byte value) { std::memset(data(), static_cast<int>(value), kRoom); }
  bool holds_only(std::byte value) { return data()[0] == value && std::memcmp(data(), data() + 1, kRoom - 1) == 0; }

 private:
  std::vector<std::byte> bytes_;
};

// One way to state an operand. `refusal` is what the error must speak of, "" where the view has to be honoured.
struct View {
  std::string name;
  std::string refusal;
  std::function<void(LaunchArgs&)> apply;
};

// A problem with random operands and the right answers, once for all views of it.
class Operands {
 public:
  explicit Operands(const Problem& p);

  // Dense, and complete.
  LaunchArgs args(const Plan& plan);
  // Checks and launches; "" when both agree with each other and with `views`, and what is honoured is right.
  std::string run(const Plan& plan, const std::vector<const View*>& views);

  const Problem& problem() const { return p_; }

 private:
  struct Expected {
    double value = 0, absolute_sum = 0;
  };
  struct Steps {
    std::int64_t row, dim2, dim3;
  };
  // Strides as documented: 0 is dense. That of a dim of one matrix decides nothing.
  static Steps steps(Steps given, std::int64_t dense_row, std::int64_t rows, Batches batches) {
    if (given.row == 0) given.row = dense_row;
    if (given.dim2 == 0 || batches.dim2 == 1) given.dim2 = rows * given.row;
    if (given.dim3 == 0 || batches.dim3 == 1) given.dim3 = batches.dim2 * given.dim2;
    return given;
  }

  float weight(std::int64_t matrix, std::int64_t n, std::int64_t k) const {
    return decoded_[static_cast<std::size_t>((matrix * p_.n + n) * p_.k + k)];
  }
  float input(std::int64_t matrix, std::int64_t row, std::int64_t column) const {
    return load_element(p_.x_type, x_values_.data(), (matrix * x_shape_.rows + row) * x_shape_.columns + column);
  }
  void make_expected();
  Expected expect_product(std::int64_t xy, std::int64_t row, std::int64_t column) const;
  void place_weights(const LaunchArgs& args);
  void place_input(const LaunchArgs& args);
  void place_ids(const LaunchArgs& args);
  std::string check_and_wipe_output(const LaunchArgs& args, Accuracy accuracy);
  std::string check_and_wipe_bytes(const LaunchArgs& args);

  Problem p_;
  Extent x_shape_, y_shape_;
  Batches w_count_, count_;
  std::vector<std::vector<std::byte>> weights_;  // gguf rows of each matrix
  std::vector<float> decoded_;
  std::vector<std::byte> x_values_, bias_values_;
  std::vector<std::int32_t> ids_values_;
  std::vector<float> scales_;
  std::vector<Expected> expected_;
  Memory w_, x_, y_, bias_, ids_, scale_, workspace_;
};

inline Operands::Operands(const Problem& p)
    : p_(p), x_shape_(is_product(p.op) ? x_extent(p) : Extent{}), y_shape_(y_extent(p)), w_count_(w_batches(p)), count_(xy_batches(p)) {
  for (std::int64_t b = 0; b < w_count_.count(); ++b) {
    weights_.push_back(random_weights(p.type, p.n, p.k, static_cast<std::uint64_t>(100 + b)));
    std::vector<float> row(static_cast<std::size_t>(p.k));
    for (std::int64_t n = 0; n < p.n; ++n) {
      dequantize_row(p.type, weights_.back().data() + n * row_bytes(p.type, p.k), p.k, row.data());
      decoded_.insert(decoded_.end(), row.begin(), row.end());
    }
  }
  Random random(5);
  const auto fill = [&](DType type, std::int64_t count) {
    std::vector<std::byte> values(static_cast<std::size_t>(count * size_of(type)));
    for (std::int64_t i = 0; i < count; ++i) store_element(type, values.data(), i, random.uniform(-1, 1));
    return values;
  };
  x_values_ = fill(p.x_type, count_.count() * x_shape_.rows * x_shape_.columns);
  if (p.bias) bias_values_ = fill(p.y_type, p.experts * p.n);
  for (std::int64_t i = 0; p.scale && i < p.experts; ++i) scales_.push_back(random.uniform(0.5f, 2.0f));
  for (std::int64_t i = 0; p.op == Op::mul_mat_id && i < p.m * p.used; ++i)  // one past the last expert now and then
    ids_values_.push_back(static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(p.experts) + 1)));
  if (!bias_values_.empty()) std::memcpy(bias_.start(), bias_values_.data(), bias_values_.size());
  if (!scales_.empty()) std::memcpy(scale_.start(), scales_.data(), scales_.size() * sizeof(float));
  y_.fill(kPoison);
  make_expected();
}

inline Operands::Expected Operands::expect_product(std::int64_t xy, std::int64_t row, std::int64_t column) const {
  const std::int64_t b2 = xy % count_.dim2, b3 = xy / count_.dim2;
  std::int64_t matrix = b2 / p_.ratio2 + b3 / p_.ratio3 * w_count_.dim2, x_row = row, expert = 0;
  if (p_.op == Op::mul_mat_id) {
    matrix = expert = ids_values_[static_cast<std::size_t>(xy * p_.used + row)];
    if (expert == p_.experts) return {std::nan(""), 0};
    if (p_.x_broadcast) x_row = 0;
  }
  Expected e;
  const std::int64_t terms = p_.op == Op::out_prod ? p_.n : p_.k;
  for (std::int64_t i = 0; i < terms; ++i) {
    const double product =
        static_cast<double>(input(xy, x_row, i)) * (p_.op == Op::out_prod ? weight(matrix, i, column) : weight(matrix, column, i));
    e.value += product, e.absolute_sum += std::abs(product);
  }
  const double scale = p_.scale ? scales_[static_cast<std::size_t>(expert)] : 1;
  e.value *= scale, e.absolute_sum *= scale;
  if (p_.bias) e.value += load_element(p_.y_type, bias_values_.data(), expert * p_.n + column);
  return e;
}

inline void Operands::make_expected() {
  if (is_repack(p_.op)) return;
  for (std::int64_t b = 0; b < count_.count(); ++b)
    for (std::int64_t row = 0; row < y_shape_.rows; ++row)
      for (std::int64_t column = 0; column < y_shape_.columns; ++column) {
        if (p_.op == Op::dequantize)
          expected_.push_back({p_.scale ? weight(0, row, column) * scales_[0] : weight(0, row, column), 0});
        else
          expected_.push_back(expect_product(b, row, column));
      }
}

inline LaunchArgs Operands::args(const Plan& plan) {
  LaunchArgs a{
      .w = {.data = w_.start()}, .y = {.data = y_.start()}, .workspace = workspace_.start(), .workspace_bytes = plan.workspace_bytes()};
  if (is_product(p_.op)) a.x.data = x_.start();
  if (p_.scale) a.w.scale = reinterpret_cast<const float*>(scale_.start());
  if (p_.bias) a.bias = bias_.start();
  if (p_.op == Op::mul_mat_id) a.ids.data = reinterpret_cast<const std::int32_t*>(ids_.start());
  return a;
}

inline void Operands::place_weights(const LaunchArgs& args) {
  w_.fill(std::byte{0xFF});
  const std::int64_t row = row_bytes(p_.type, p_.k);
  const Steps s = steps({args.w.row_bytes, args.w.stride2, args.w.stride3}, row, p_.n, w_count_);
  auto* base = static_cast<std::byte*>(const_cast<void*>(args.w.data));
  for (std::int64_t b = 0; b < w_count_.count(); ++b) {
    const auto& rows = weights_[static_cast<std::size_t>(b)];
    std::byte* matrix = base + b % w_count_.dim2 * s.dim2 + b / w_count_.dim2 * s.dim3;
    if (p_.layout == Layout::planar) {
      const auto image = gguf_to_planar(p_.type, p_.n, p_.k, rows);
      std::memcpy(matrix, image.data(), image.size());
    } else {
      for (std::int64_t n = 0; n < p_.n; ++n) std::memcpy(matrix + n * s.row, rows.data() + n * row, static_cast<std::size_t>(row));
    }
  }
}

inline void Operands::place_input(const LaunchArgs& args) {
  x_.fill(std::byte{0xFF});  // NaN in every type
  const Extent stored = p_.x_transposed ? Extent{x_shape_.columns, x_shape_.rows} : x_shape_;
  const Steps s = steps({args.x.row_stride, args.x.stride2, args.x.stride3}, stored.columns, stored.rows, count_);
  auto* base = static_cast<std::byte*>(const_cast<void*>(args.x.data));
  const std::int64_t size = size_of(p_.x_type);
  const std::byte* from = x_values_.data();
  for (std::int64_t b = 0; b < count_.count(); ++b)
    for (std::int64_t row = 0; row < x_shape_.rows; ++row)
      for (std::int64_t column = 0; column < x_shape_.columns; ++column, from += size) {
        const std::int64_t in_matrix = p_.x_transposed ? column * s.row + row : row * s.row + column;
        std::memcpy(base + (b % count_.dim2 * s.dim2 + b / count_.dim2 * s.dim3 + in_matrix) * size, from, static_cast<std::size_t>(size));
      }
}

inline void Operands::place_ids(const LaunchArgs& args) {
  ids_.fill(std::byte{0xFF});
  const std::int64_t row = args.ids.row_stride != 0 ? args.ids.row_stride : p_.used;
  for (std::size_t i = 0; i < ids_values_.size(); ++i) {
    const auto token = static_cast<std::int64_t>(i) / p_.used, slot = static_cast<std::int64_t>(i) % p_.used;
    const_cast<std::int32_t*>(args.ids.data)[token * row + slot] = ids_values_[i];
  }
}

// Compares every output, and poisons it again.
inline std::string Operands::check_and_wipe_output(const LaunchArgs& args, Accuracy accuracy) {
  if (is_repack(p_.op)) return check_and_wipe_bytes(args);
  const Steps s = steps({args.y.row_stride, args.y.stride2, args.y.stride3}, y_shape_.columns, y_shape_.rows, count_);
  const double half_unit = p_.y_type == DType::f32 ? 0x1p-24 : p_.y_type == DType::f16 ? 0x1p-11 : 0x1p-8;
  auto* base = static_cast<std::byte*>(args.y.data);
  std::size_t i = 0;
  std::string wrong;
  for (std::int64_t b = 0; b < count_.count(); ++b)
    for (std::int64_t row = 0; row < y_shape_.rows; ++row)
      for (std::int64_t column = 0; column < y_shape_.columns; ++column, ++i) {
        const std::int64_t at = b % count_.dim2 * s.dim2 + b / count_.dim2 * s.dim3 + row * s.row + column;
        const double got = load_element(p_.y_type, base, at), want = expected_[i].value;
        std::memset(base + at * size_of(p_.y_type), static_cast<int>(kPoison), static_cast<std::size_t>(size_of(p_.y_type)));
        const double bar = accuracy_bars(accuracy).worst * expected_[i].absolute_sum + half_unit * std::abs(want);
        if (wrong.empty() && !(std::isnan(want) ? std::isnan(got) : std::abs(got - want) <= bar))
          wrong = "y[" + std::to_string(b) + "," + std::to_string(row) + "," + std::to_string(column) + "] is " + std::to_string(got) +
                  ", needed " + std::to_string(want);
      }
  return wrong;
}

inline std::string Operands::check_and_wipe_bytes(const LaunchArgs& args) {
  const auto planar = gguf_to_planar(p_.type, p_.n, p_.k, weights_[0]);
  const auto& want = p_.op == Op::to_planar ? planar : weights_[0];
  const bool right = std::memcmp(args.y.data, want.data(), want.size()) == 0;
  std::memset(args.y.data, static_cast<int>(kPoison), want.size());
  return right ? "" : "the repacked bytes differ";
}

inline std::string Operands::run(const Plan& plan, const std::vector<const View*>& views) {
  LaunchArgs a = args(plan);
  bool honoured = true;
  for (const View* view : views) {
    view->apply(a);
    honoured = honoured && view->refusal.empty();
  }
  const Status claim = plan.check(a);
  if (bool(claim) != honoured) return claim ? "claimed, needed a refusal" : "refused: " + claim.error().message;
  if (honoured) {
    place_weights(a);
    if (is_product(p_.op)) place_input(a);
    if (p_.op == Op::mul_mat_id) place_ids(a);
  }
  const Status launched = plan.launch(nullptr, a);
  if (bool(launched) != honoured) return honoured ? "claimed, but: " + launched.error().message : "refused, but launched";
  if (honoured) {
    std::string wrong = check_and_wipe_output(a, plan.accuracy());
    if (!wrong.empty()) return wrong;
  } else {
    if (claim.error().code != ErrorCode::kInvalidArgument) return "code " + std::string(to_string(claim.error().code));
    if (claim.error().message != launched.error().message) return "launch says otherwise: " + launched.error().message;
    const bool named = std::any_of(views.begin(), views.end(), [&](const View* view) {
      return !view->refusal.empty() && claim.error().message.find(view->refusal) != std::string::npos;
    });
    if (!named) return "names none of the reasons: " + claim.error().message;
  }
  if (!y_.holds_only(kPoison)) return y_.fill(kPoison), "something beside the outputs was written";
  return "";
}

}  // namespace quern::test

// What Context::supports and Plan::check claim is what plan and launch do: every combination of a problem's fields, and of the views of
// one.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "generator/family.h"
#include "quern/context.h"
#include "tests/runtime/fakes.h"
#include "tests/runtime/take.h"
#include "tuner/oracle.h"
#include "tuner/planar.h"
#include "tuner/random_weights.h"
#include "tuner/verify.h"

namespace quern {
namespace {

using test::take;

Context host_context() {
  ContextOptions options;
  options.device = "host";
  options.host_plugin = QUERN_HOST_PLUGIN_PATH;
  return take(Context::open(options));
}

Context cuda_context(int sm) {
  auto device = std::make_unique<test::FakeDevice>();
  device->device_info.target = {Target::Kind::cuda, sm, sm >= 90};
  ContextParts parts;
  parts.device = std::move(device), parts.store = std::make_unique<test::FakeStore>(),
  parts.compiler = std::make_unique<test::FakeCompiler>();
  parts.kernels = generator_kernels();
  return make_context(std::move(parts));
}

// ---- Problems.

// What a refusal must speak of, or "" for a problem that has to be answered: the rules, written apart from the code that applies them.
std::string refusal(const Problem& p) {
  if (p.k % info(p.type).block_elements != 0) return "k is " + std::to_string(p.k);
  if (p.batch2 % p.ratio2 != 0 || p.batch3 % p.ratio3 != 0) return "ratio";
  const bool multiplies = p.op == Op::mul_mat || p.op == Op::mul_mat_id, repacks = p.op == Op::to_planar || p.op == Op::to_gguf;
  if (p.bias && !multiplies) return "a bias";
  if (p.scale && repacks) return "a weight scale";
  if (p.x_transposed && p.op != Op::mul_mat && p.op != Op::out_prod) return "a transposed X";
  if (p.op != Op::mul_mat_id && p.experts != 1) return "experts";
  if (p.experts < 1) return "experts is";
  if (p.op == Op::mul_mat_id && p.batch2 * p.batch3 != 1) return "batch is";
  const bool dense_op = p.op == Op::dequantize || repacks;
  if (p.n == 0 && p.op != Op::out_prod) return "";
  if (p.m == 0 && !dense_op) return "";
  if (repacks && (p.layout == Layout::planar) != (p.op == Op::to_gguf)) return "layout is";
  if (dense_op && p.batch2 * p.batch3 != 1) return "batch is";
  if (!dense_op && p.accuracy == Accuracy::exact) return "needs exact";
  return "";
}

struct Shape {
  WeightType type;
  std::int64_t n, k;
};
constexpr Shape kShapes[] = {{WeightType::q4_0, 20, 64},  {WeightType::q4_0, 20, 48}, {WeightType::q4_k, 20, 512},
                             {WeightType::q4_k, 20, 896}, {WeightType::f16, 20, 256}, {WeightType::f16, 20, 130},
                             {WeightType::q4_0, 0, 64}};
struct Batch {
  std::int64_t batch2, batch3, ratio2, ratio3;
};
constexpr Batch kBatches[] = {{1, 1, 1, 1}, {4, 2, 2, 1}, {4, 1, 3, 1}, {1, 6, 1, 3}, {2, 1, 4, 1}, {70000, 1, 70000, 1}};
constexpr std::pair<DType, DType> kElements[] = {
    {DType::f32, DType::f32}, {DType::f16, DType::f16}, {DType::bf16, DType::f32}, {DType::f32, DType::bf16}};
struct Routing {
  std::int64_t experts, used;
  bool broadcast;
};
constexpr Routing kRoutings[] = {{1, 1, false}, {4, 2, false}, {4, 2, true}, {0, 2, false}};

// Every combination, with the first `elements` pairs of types of X and Y.
void for_each_problem(std::size_t elements, const std::function<void(const Problem&)>& visit) {
  for (Op op : kOps)
    for (const Shape& shape : kShapes)
      for (Layout layout : {Layout::gguf, Layout::planar})
        for (std::size_t types = 0; types < elements; ++types)
          for (int flags = 0; flags < 8; ++flags)
            for (const Batch& batch : kBatches)
              for (const Routing& routing : kRoutings) {
                if (op != Op::mul_mat_id && routing.experts == 0) continue;
                for (Accuracy accuracy : {Accuracy::exact, Accuracy::f32, Accuracy::tight, Accuracy::normal, Accuracy::loose})
                  for (std::int64_t m : {0, 1, 9, 64})
                    visit({.op = op,
                           .type = shape.type,
                           .layout = layout,
                           .m = m,
                           .n = shape.n,
                           .k = shape.k,
                           .x_type = kElements[types].first,
                           .y_type = kElements[types].second,
                           .bias = (flags & 1) != 0,
                           .accuracy = accuracy,
                           .batch2 = batch.batch2,
                           .batch3 = batch.batch3,
                           .ratio2 = batch.ratio2,
                           .ratio3 = batch.ratio3,
                           .x_transposed = (flags & 2) != 0,
                           .scale = (flags & 4) != 0,
                           .experts = routing.experts,
                           .used = routing.used,
                           .x_broadcast = routing.broadcast});
              }
}

// "" or how the query and reality differ.
std::string disagreement(const Context& context, const Problem& p) {
  const Status claim = context.supports(p);
  const auto plan = context.plan(p, {.lazy = true});
  const std::string why = refusal(p);
  if (bool(claim) != bool(plan)) return claim ? "claimed, but: " + plan.error().message : "refused, but planned: " + claim.error().message;
  if (bool(claim) != why.empty()) return claim ? "answered, needed a refusal for '" + why + "'" : "refused: " + claim.error().message;
  if (claim) return "";
  const Error& error = claim.error();
  if (error.code != ErrorCode::kInvalidArgument && error.code != ErrorCode::kUnsupported)
    return "code " + std::string(to_string(error.code));
  if (error.code != plan.error().code || error.message != plan.error().message) return "plan says otherwise: " + plan.error().message;
  if (error.message.find(why) == std::string::npos) return "names no '" + why + "': " + error.message;
  return "";
}

void expect_agreement(const Context& context, std::size_t elements) {
  int problems = 0, answered = 0, wrong = 0;
  for_each_problem(elements, [&](const Problem& p) {
    ++problems;
    if (refusal(p).empty()) ++answered;
    const std::string what = disagreement(context, p);
    if (what.empty() || ++wrong > 10) return;
    ADD_FAILURE() << to_string(p) << "\n  " << what;
  });
  EXPECT_EQ(wrong, 0) << "of " << problems;
  EXPECT_GT(answered, 10000);
  EXPECT_EQ(context.compile_count(), 0u);
}

TEST(SupportQuery, IsWhatPlanDoesForEveryCombination) { expect_agreement(host_context(), std::size(kElements)); }
TEST(SupportQuery, IsWhatPlanDoesOnEveryKindOfGpu) {
  for (int sm : {75, 90}) expect_agreement(cuda_context(sm), 1);
}
// ---- Views of one problem.

constexpr std::byte kPoison{0xA5};
constexpr std::size_t kRoom = std::size_t{1} << 19;  // bytes of each operand's memory, views with gaps included
constexpr std::size_t kStart = 256;                  // where a view starts in it

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

Operands::Operands(const Problem& p)
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

Operands::Expected Operands::expect_product(std::int64_t xy, std::int64_t row, std::int64_t column) const {
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

void Operands::make_expected() {
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

LaunchArgs Operands::args(const Plan& plan) {
  LaunchArgs a{
      .w = {.data = w_.start()}, .y = {.data = y_.start()}, .workspace = workspace_.start(), .workspace_bytes = plan.workspace_bytes()};
  if (is_product(p_.op)) a.x.data = x_.start();
  if (p_.scale) a.w.scale = reinterpret_cast<const float*>(scale_.start());
  if (p_.bias) a.bias = bias_.start();
  if (p_.op == Op::mul_mat_id) a.ids.data = reinterpret_cast<const std::int32_t*>(ids_.start());
  return a;
}

void Operands::place_weights(const LaunchArgs& args) {
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

void Operands::place_input(const LaunchArgs& args) {
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

void Operands::place_ids(const LaunchArgs& args) {
  ids_.fill(std::byte{0xFF});
  const std::int64_t row = args.ids.row_stride != 0 ? args.ids.row_stride : p_.used;
  for (std::size_t i = 0; i < ids_values_.size(); ++i) {
    const auto token = static_cast<std::int64_t>(i) / p_.used, slot = static_cast<std::int64_t>(i) % p_.used;
    const_cast<std::int32_t*>(args.ids.data)[token * row + slot] = ids_values_[i];
  }
}

// Compares every output, and poisons it again.
std::string Operands::check_and_wipe_output(const LaunchArgs& args, Accuracy accuracy) {
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

std::string Operands::check_and_wipe_bytes(const LaunchArgs& args) {
  const auto planar = gguf_to_planar(p_.type, p_.n, p_.k, weights_[0]);
  const auto& want = p_.op == Op::to_planar ? planar : weights_[0];
  const bool right = std::memcmp(args.y.data, want.data(), want.size()) == 0;
  std::memset(args.y.data, static_cast<int>(kPoison), want.size());
  return right ? "" : "the repacked bytes differ";
}

std::string Operands::run(const Plan& plan, const std::vector<const View*>& views) {
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

const void* moved(const void* pointer, std::int64_t bytes) { return static_cast<const std::byte*>(pointer) + bytes; }

View as_planned() {
  return {"as planned", "", [](LaunchArgs&) {}};
}

std::vector<View> weight_views(const Problem& p) {
  const bool dense = p.layout == Layout::planar || is_repack(p.op);
  const std::int64_t row = row_bytes(p.type, p.k), matrix = p.n * row,
                     alignment = p.layout == Layout::planar   ? 16
                                 : p.type == WeightType::q4_k ? 16
                                                              : 2;
  const Batches batches = w_batches(p);
  const bool two = batches.dim2 > 1, three = batches.dim3 > 1;
  std::vector<View> views{as_planned()};
  views.push_back({"stated", "", [=](LaunchArgs& a) { a.w.rows = p.n, a.w.columns = p.k, a.w.row_bytes = row; }});
  views.push_back({"rows apart", dense ? "row_bytes" : "", [=](LaunchArgs& a) { a.w.row_bytes = row + 3 * alignment; }});
  views.push_back({"rows misaligned", "row_bytes", [=](LaunchArgs& a) { a.w.row_bytes = row + 1; }});
  views.push_back({"rows overlapping", "row_bytes", [=](LaunchArgs& a) { a.w.row_bytes = row - alignment; }});
  views.push_back({"rows backwards", "row_bytes", [=](LaunchArgs& a) { a.w.row_bytes = -row; }});
  views.push_back({"rows beyond everything", "row_bytes", [=](LaunchArgs& a) { a.w.row_bytes = std::int64_t{1} << 62; }});
  views.push_back({"matrices apart", "", [=](LaunchArgs& a) { a.w.stride2 = matrix + 5 * alignment; }});
  views.push_back({"matrices misaligned", two ? "stride2" : "", [=](LaunchArgs& a) { a.w.stride2 = matrix + 1; }});
  views.push_back({"matrices overlapping", two ? "stride2" : "", [=](LaunchArgs& a) { a.w.stride2 = alignment; }});
  views.push_back({"dim 3 apart", "", [=](LaunchArgs& a) { a.w.stride3 = batches.dim2 * matrix + 7 * alignment; }});
  views.push_back({"dim 3 overlapping", three ? "stride3" : "", [=](LaunchArgs& a) { a.w.stride3 = alignment; }});
  if (!dense && two)
    views.push_back({"rows of the matrices between each other", "",
                     [=](LaunchArgs& a) { a.w.stride2 = row, a.w.row_bytes = batches.dim2 * row, a.w.stride3 = batches.dim2 * matrix; }});
  views.push_back({"null", "W is null", [](LaunchArgs& a) { a.w.data = nullptr; }});
  views.push_back({"misaligned", "W starts", [](LaunchArgs& a) { a.w.data = moved(a.w.data, 1); }});
  views.push_back({"at the next aligned place", "", [=](LaunchArgs& a) { a.w.data = moved(a.w.data, alignment); }});
  views.push_back({"more rows", "W has", [=](LaunchArgs& a) { a.w.rows = p.n + 1; }});
  views.push_back({"swapped", "W has", [=](LaunchArgs& a) { a.w.columns = p.n; }});
  return views;
}

// Of X or Y, which `get` picks; `shape` is as stored.
template <class Get>
std::vector<View> element_views(const Problem& p, const std::string& matrix, Extent stated, Extent shape, DType type, bool rows_are_dense,
                                Get get) {
  const Batches batches = xy_batches(p);
  const std::int64_t size = shape.rows * shape.columns;
  const bool two = batches.dim2 > 1, three = batches.dim3 > 1;
  std::vector<View> views{as_planned()};
  const auto add = [&](const char* name, const std::string& refusal, auto change) {
    views.push_back({matrix + " " + name, refusal, [=](LaunchArgs& a) { change(get(a)); }});
  };
  add("stated", "", [=](auto& v) { v.rows = stated.rows, v.columns = stated.columns, v.row_stride = shape.columns; });
  add("rows one apart", rows_are_dense ? "row_stride" : "", [=](auto& v) { v.row_stride = shape.columns + 1; });
  add("rows eight apart", rows_are_dense ? "row_stride" : "", [=](auto& v) { v.row_stride = shape.columns + 8; });
  add("rows overlapping", "row_stride", [=](auto& v) { v.row_stride = shape.columns - 1; });
  add("rows backwards", "row_stride", [=](auto& v) { v.row_stride = -shape.columns; });
  add("rows beyond everything", "row_stride", [=](auto& v) { v.row_stride = std::int64_t{1} << 61; });
  add("matrices apart", "", [=](auto& v) { v.stride2 = size + 3; });
  add("matrices overlapping", two ? "stride2" : "", [=](auto& v) { v.stride2 = size - 1; });
  add("dim 3 apart", "", [=](auto& v) { v.stride3 = batches.dim2 * size + 5; });
  add("dim 3 overlapping", three ? "stride3" : "", [=](auto& v) { v.stride3 = batches.dim2 * size - 1; });
  add("dim 3 beyond everything", three ? "stride3" : "", [=](auto& v) { v.stride3 = std::int64_t{1} << 61; });
  if (two && !rows_are_dense)
    add("rows of the matrices between each other", "",
        [=](auto& v) { v.stride2 = shape.columns, v.row_stride = batches.dim2 * shape.columns, v.stride3 = batches.dim2 * size; });
  add("null", matrix + " is null", [](auto& v) { v.data = nullptr; });
  if (size_of(type) > 1)
    add("misaligned", matrix + " starts",
        [](auto& v) { v.data = const_cast<std::byte*>(static_cast<const std::byte*>(moved(v.data, 1))); });
  if (!rows_are_dense)
    add("an element further", "",
        [=](auto& v) { v.data = const_cast<std::byte*>(static_cast<const std::byte*>(moved(v.data, size_of(type)))); });
  add("more rows", matrix + " has", [=](auto& v) { v.rows = stated.rows + 1; });
  add("swapped", matrix + " has", [=](auto& v) { v.columns = stated.columns + 3; });
  return views;
}

std::vector<View> input_views(const Problem& p) {
  if (!is_product(p.op)) return {as_planned()};
  const Extent x = x_extent(p), stored = p.x_transposed ? Extent{x.columns, x.rows} : x;
  return element_views(p, "X", x, stored, p.x_type, false, [](LaunchArgs& a) -> InputView& { return a.x; });
}

std::vector<View> output_views(const Problem& p) {
  return element_views(p, "Y", y_extent(p), y_extent(p), p.y_type, is_repack(p.op), [](LaunchArgs& a) -> OutputView& { return a.y; });
}

std::vector<View> other_views(const Problem& p, std::size_t workspace) {
  static const float kOne = 1;
  static const std::int32_t kZero = 0;
  std::vector<View> views;
  const auto add = [&](const char* name, const std::string& refusal, auto change) { views.push_back({name, refusal, change}); };
  if (p.bias) {
    add("no bias", "bias is null", [](LaunchArgs& a) { a.bias = nullptr; });
    add("bias misaligned", "bias starts", [](LaunchArgs& a) { a.bias = moved(a.bias, 1); });
  } else {
    add("a bias", "a bias is given", [](LaunchArgs& a) { a.bias = &kOne; });
  }
  if (p.scale)
    add("no scale", "scale is null", [](LaunchArgs& a) { a.w.scale = nullptr; });
  else
    add("a scale", "scale is given", [](LaunchArgs& a) { a.w.scale = &kOne; });
  if (p.op == Op::mul_mat_id) {
    add("no ids", "ids is null", [](LaunchArgs& a) { a.ids.data = nullptr; });
    add("ids apart", "", [=](LaunchArgs& a) { a.ids.row_stride = p.used + 3; });
    add("ids overlapping", "ids' row_stride", [=](LaunchArgs& a) { a.ids.row_stride = p.used - 1 > 0 ? p.used - 1 : -1; });
  } else {
    add("ids", "ids are given", [](LaunchArgs& a) { a.ids.data = &kZero; });
  }
  if (workspace > 0) {
    add("no workspace", "workspace is null", [](LaunchArgs& a) { a.workspace = nullptr; });
    add("workspace too small", "workspace has", [](LaunchArgs& a) { a.workspace_bytes -= 1; });
    add("workspace misaligned", "workspace starts", [](LaunchArgs& a) { a.workspace = const_cast<void*>(moved(a.workspace, 16)); });
  } else {
    add("no workspace needed", "", [](LaunchArgs& a) { a.workspace = nullptr, a.workspace_bytes = 0; });
  }
  return views;
}

// Every view of W, of X, of Y and of the other arguments by itself; `crossed`, also every W with every X and every Y.
void expect_views_agree(const Plan& plan, Operands& operands, bool crossed) {
  const Problem& p = plan.problem();
  ASSERT_LE(plan.workspace_bytes(), kRoom - kStart);
  int wrong = 0;
  const auto run = [&](const std::vector<const View*>& views) {
    const std::string what = operands.run(plan, views);
    if (what.empty() || ++wrong > 5) return;
    std::string names;
    for (const View* view : views) names += (names.empty() ? "" : " | ") + view->name;
    ADD_FAILURE() << names << "\n  " << what;
  };
  const auto ws = weight_views(p), xs = input_views(p), ys = output_views(p), others = other_views(p, plan.workspace_bytes());
  for (const auto* views : {&ws, &xs, &ys, &others})
    for (const View& view : *views) run({&view});
  if (crossed) {
    for (const View& w : ws)
      for (const View& x : xs)
        for (const View& y : ys) run({&w, &x, &y});
  }
  EXPECT_EQ(wrong, 0);
}

// For the kernel that a plan takes by itself, and for one of every other family that could serve.
void expect_views_agree(const Context& context, const Problem& p) {
  SCOPED_TRACE(to_string(p));
  const Status claim = context.supports(p);
  ASSERT_TRUE(claim) << claim.error().message;
  Operands operands(p);
  const auto own = context.plan(p);
  ASSERT_TRUE(own) << own.error().message << own.error().log;
  for (const Family* family : families_for(p, context.target())) {
    SCOPED_TRACE(family->name());
    const bool is_own = own->config().family == family->name();
    const auto other = context.plan(p, {.config = family->space(p, context.target()).default_config()});
    ASSERT_TRUE(other) << other.error().message << other.error().log;
    // Many tokens make the host's kernels slow; crossed views are about arguments, not about those.
    expect_views_agree(is_own ? *own : *other, operands, is_own && p.m <= 5);
  }
}

Problem product(Op op, WeightType type, Layout layout, std::int64_t m, std::int64_t n, std::int64_t k) {
  return {.op = op, .type = type, .layout = layout, .m = m, .n = n, .k = k};
}
Problem batched(Problem p, Batch batch) {
  p.batch2 = batch.batch2, p.batch3 = batch.batch3, p.ratio2 = batch.ratio2, p.ratio3 = batch.ratio3;
  return p;
}

// Field case 6: a strided view used the wrong stride. With batches and broadcast, for every family.
TEST(SupportQuery, AStridedViewIsHonouredOrRefusedBeforehand) {
  const Context context = host_context();
  std::vector<Problem> problems;
  problems.push_back(batched(product(Op::mul_mat, WeightType::q4_0, Layout::gguf, 3, 12, 64), {4, 2, 2, 1}));  // gemv_q8
  problems.back().bias = true;
  problems.push_back(batched(product(Op::mul_mat, WeightType::q4_0, Layout::planar, 3, 32, 64), {2, 2, 1, 2}));  // gemv_f32
  problems.back().accuracy = Accuracy::f32, problems.back().x_type = DType::f16, problems.back().y_type = DType::bf16;
  problems.push_back(batched(product(Op::mul_mat, WeightType::q4_k, Layout::gguf, 9, 12, 256), {2, 2, 2, 1}));  // gemm
  problems.back().scale = true;
  problems.push_back(batched(product(Op::mul_mat, WeightType::f16, Layout::gguf, 3, 5, 130), {2, 2, 1, 1}));       // generic
  problems.push_back(batched(product(Op::mul_mat, WeightType::q4_k, Layout::planar, 40, 16, 256), {2, 1, 1, 1}));  // wgmma
  for (const Problem& p : problems) expect_views_agree(context, p);
}

// Field case 14: a backend claimed OUT_PROD and died in it. What is claimed runs, in every layout and class; what is not has its reason.
TEST(SupportQuery, AClaimedOutProdRuns) {
  const Context context = host_context();
  for (Layout layout : {Layout::gguf, Layout::planar})
    for (Accuracy accuracy : {Accuracy::exact, Accuracy::f32, Accuracy::normal}) {
      Problem p = product(Op::out_prod, WeightType::q4_k, layout, 9, 24, 256);
      p.accuracy = accuracy;
      SCOPED_TRACE(to_string(p));
      const Status claim = context.supports(p);
      const auto plan = context.plan(p);
      ASSERT_EQ(bool(claim), accuracy != Accuracy::exact);
      ASSERT_EQ(bool(plan), bool(claim));
      if (!claim) {
        EXPECT_EQ(claim.error().code, ErrorCode::kUnsupported);
        EXPECT_NE(claim.error().message.find("exact"), std::string::npos) << claim.error().message;
        continue;
      }
      const View dense = as_planned();
      EXPECT_EQ(Operands(p).run(*plan, {&dense}), "");
    }
}

// Field case 15: OUT_PROD assumed a contiguous second operand.
TEST(SupportQuery, TransposedAndRowGappedGradientsAreRight) {
  const Context context = host_context();
  std::vector<Problem> problems;
  problems.push_back(batched(product(Op::out_prod, WeightType::q4_0, Layout::gguf, 3, 12, 64), {4, 2, 2, 1}));
  problems.back().x_type = DType::bf16;
  problems.push_back(product(Op::out_prod, WeightType::q4_k, Layout::planar, 9, 32, 256));
  problems.back().x_transposed = problems.back().scale = true;
  problems.push_back(batched(product(Op::out_prod, WeightType::f16, Layout::gguf, 3, 5, 130), {2, 1, 1, 1}));
  problems.back().x_transposed = true;
  problems.push_back(batched(product(Op::mul_mat, WeightType::q4_0, Layout::gguf, 3, 12, 64), {2, 1, 1, 1}));
  problems.back().x_transposed = true;
  problems.push_back(batched(product(Op::out_prod, WeightType::q4_k, Layout::planar, 9, 16, 256), {2, 1, 1, 1}));  // gemm_t
  problems.push_back(batched(product(Op::out_prod, WeightType::q4_k, Layout::gguf, 40, 24, 256), {2, 1, 2, 1}));   // wgmma_t
  problems.back().x_type = DType::f16;
  for (const Problem& p : problems) expect_views_agree(context, p);
}

TEST(SupportQuery, ViewsOfARoutedProduct) {
  const Context context = host_context();
  Problem each = product(Op::mul_mat_id, WeightType::q4_0, Layout::gguf, 5, 12, 64);
  each.experts = 4, each.used = 2, each.bias = each.scale = true;
  Problem shared = product(Op::mul_mat_id, WeightType::q4_k, Layout::planar, 3, 16, 256);
  shared.experts = 3, shared.used = 2, shared.x_broadcast = true, shared.accuracy = Accuracy::f32;
  for (const Problem& p : {each, shared}) expect_views_agree(context, p);
}

TEST(SupportQuery, ViewsOfOpsWithoutActivations) {
  const Context context = host_context();
  Problem dense = product(Op::dequantize, WeightType::q4_0, Layout::gguf, 1, 12, 64);
  dense.y_type = DType::f16;
  Problem scaled = product(Op::dequantize, WeightType::q4_k, Layout::planar, 1, 12, 256);
  scaled.scale = true;
  Problem to_planar = product(Op::to_planar, WeightType::q4_0, Layout::gguf, 1, 20, 64);
  Problem to_gguf = product(Op::to_gguf, WeightType::q4_k, Layout::planar, 1, 20, 256);
  for (const Problem& p : {dense, scaled, to_planar, to_gguf}) expect_views_agree(context, p);
}

// Some of the problems that the query claims, compiled and run.
TEST(SupportQuery, WhatIsClaimedRuns) {
  const Context context = host_context();
  constexpr std::size_t kOneOf = 1009;  // a prime, so that no field keeps step with it
  std::size_t claimed = 0, ran = 0;
  for_each_problem(std::size(kElements), [&](const Problem& p) {
    const bool fits = p.batch2 <= 4 && xy_batches(p).count() * p.used * std::max<std::int64_t>(p.m, 1) * p.k <= 1 << 16;
    if (!refusal(p).empty() || is_empty(p) || !fits || claimed++ % kOneOf != 0) return;
    SCOPED_TRACE(to_string(p));
    const auto plan = context.plan(p);
    ASSERT_TRUE(plan) << plan.error().message << plan.error().log;
    const View dense = as_planned();
    // 20 planar rows of q4_0 end at no multiple of 16: such a batch needs its stride.
    const View padded{"padded", "", [&](LaunchArgs& a) { a.w.stride2 = (p.n * row_bytes(p.type, p.k) + 15) / 16 * 16; }};
    EXPECT_EQ(Operands(p).run(*plan, {&dense, &padded}), "");
    ++ran;
  });
  EXPECT_GE(ran, 12u) << "of " << claimed;
}

// Field case 21, for every op: zero tokens or rows are success, whatever the pointers, in whatever class.
TEST(SupportQuery, NothingToComputeIsClaimedAndDone) {
  const Context context = host_context();
  for (Op op : kOps)
    for (Accuracy accuracy : {Accuracy::exact, Accuracy::normal})
      for (auto [m, n] : {std::pair{0, 20}, {9, 0}, {0, 0}}) {
        Problem p = product(op, WeightType::q4_0, op == Op::to_gguf ? Layout::planar : Layout::gguf, m, n, 64);
        p.accuracy = accuracy;
        if (op == Op::mul_mat_id) p.experts = 4, p.used = 2;
        if (!is_empty(p)) continue;
        SCOPED_TRACE(to_string(p));
        EXPECT_TRUE(context.supports(p)) << context.supports(p).error().message;
        const auto plan = context.plan(p);
        ASSERT_TRUE(plan) << plan.error().message;
        EXPECT_TRUE(plan->check({}));
        EXPECT_TRUE(plan->launch(nullptr, {}));
      }
  EXPECT_EQ(context.compile_count(), 0u);
}

// The sum over no rows of W is zero, and W and X may be null; Y may not.
TEST(SupportQuery, OutProdOverNoRowsWritesZeros) {
  const Context context = host_context();
  for (bool transposed : {false, true}) {
    Problem p = batched(product(Op::out_prod, WeightType::q4_0, Layout::planar, 3, 0, 64), {4, 2, 2, 1});
    p.x_transposed = transposed;
    SCOPED_TRACE(to_string(p));
    const auto plan = context.plan(p);
    ASSERT_TRUE(plan) << plan.error().message << plan.error().log;
    const View null{"null", "", [](LaunchArgs& a) { a.w.data = a.x.data = nullptr, a.y.row_stride = 70; }};
    Operands operands(p);
    LaunchArgs args = operands.args(*plan);
    null.apply(args);
    const Status claim = plan->check(args), launched = plan->launch(nullptr, args);
    ASSERT_TRUE(claim) << claim.error().message;
    ASSERT_TRUE(launched) << launched.error().message;
    const auto* y = static_cast<const float*>(args.y.data);
    float poison = 0;
    std::memset(&poison, static_cast<int>(kPoison), sizeof poison);
    for (int row = 0; row < 3 * 8; ++row)
      for (int column = 0; column < 70; ++column) EXPECT_EQ(y[row * 70 + column], column < 64 ? 0.0f : poison) << row << " " << column;
    args.y.data = nullptr;
    EXPECT_FALSE(plan->check(args));
  }
}

}  // namespace
}  // namespace quern

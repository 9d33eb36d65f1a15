// What Context::supports and Plan::check claim is what plan and launch do: every combination of a problem's fields, and of the views of
// one.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "generator/family.h"
#include "quern/context.h"
#include "tests/runtime/fakes.h"
#include "tests/runtime/operands.h"
#include "tests/runtime/take.h"

namespace quern {
namespace {

using namespace test;

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
  for (Op op : kWeightOps)
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
  for (Op op : kWeightOps)
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

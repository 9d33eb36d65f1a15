// gemv_q8 and gemv_f32: decode GEMV for M = 1..8, with 8-bit activations and DP4A, or with f32 activations.
#include <algorithm>

#include "generator/families.h"
#include "generator/family_support.h"
#include "generator/target_limits.h"
#include "geometry/gemv.h"
#include "geometry/planar.h"

namespace quern {
namespace {

constexpr int kMaxRows = 8;
constexpr int kPrepareThreads = 128;

GemvGeometry geometry_of(const Problem& p, ConfigReader& reader, bool quantized) {
  GemvGeometry g{};
  g.k = static_cast<int>(p.k);
  g.m = static_cast<int>(p.m);
  g.warps = reader.take("warps");
  g.warps_k = reader.take("warps_k");
  g.lanes = reader.take("lanes");
  g.rows = reader.take("rows");
  g.unroll = reader.take("unroll");
  g.passes = reader.take("passes");
  g.stage = reader.take("stage");
  g.min_blocks = reader.take("min_warps") / g.warps;
  g.prefetch = quantized ? reader.take("prefetch") : 0;
  g.fuse = quantized ? reader.take("fuse") : 0;
  return g;
}

// A row of mul_mat_id is a matrix of its own, with its expert's weights.
Problem one_matrix(Problem p) {
  if (p.op == Op::mul_mat_id) p.m = 1;
  return p;
}

// The rules that hold for both activation policies. Each returns the reason why not, or an empty string.
std::string check_geometry(const GemvGeometry& g, const Problem& p, long long shared_bytes, long long shared_limit) {
  long long slices = p.k / kSliceWeights;
  if (g.warps % g.warps_k != 0)
    return "warps is " + std::to_string(g.warps) + ", needed a multiple of warps_k " + std::to_string(g.warps_k);
  // At least half of the lanes that share a row must have a slice of it.
  if ((g.warps_k > 1 || g.lanes > 8) && g.lanes * g.warps_k > 2 * slices)
    return "lanes * warps_k is " + std::to_string(g.lanes * g.warps_k) + ", needed at most twice the row's " + std::to_string(slices) +
           " slices";
  if (g.unroll > 1 && static_cast<long long>(g.lanes) * g.warps_k * g.unroll > slices)
    return "unroll is " + std::to_string(g.unroll) + ", needed no more than the row's slices give each lane";
  if (g.rows * g.m > 16) return "rows is " + std::to_string(g.rows) + ", needed rows * m of at most 16 accumulators";
  if (g.rows * g.unroll > 8) return "rows * unroll is " + std::to_string(g.rows * g.unroll) + ", needed at most 8 slices in registers";
  if (g.min_blocks * g.threads() > 1024 && g.rows * g.m * g.unroll > 8)
    return "min_warps is " + std::to_string(g.min_blocks * g.warps) + ", needed 0 or 32 for that many accumulators and slices";
  if (g.passes > 1 && g.grid(p.n) < 128) return "passes is " + std::to_string(g.passes) + ", needed a grid of at least 128 blocks";
  if (shared_bytes > shared_limit)
    return "shared memory is " + std::to_string(shared_bytes) + " bytes, needed at most " + std::to_string(shared_limit);
  return {};
}

class Gemv : public Family {
 public:
  Gemv(std::string_view name, bool quantized, Accuracy accuracy) : name_(name), quantized_(quantized), accuracy_(accuracy) {}

  std::string_view name() const override { return name_; }

  Status supports(const Problem& p, const Target&) const override {
    QUERN_TRY(supports_op(name_, p, p.op == Op::mul_mat_id ? Op::mul_mat_id : Op::mul_mat));
    QUERN_TRY(supports_batch(name_, xy_batches(p).count() * (p.op == Op::mul_mat_id ? p.used : 1)));
    QUERN_TRY(supports_rows(name_, p));
    QUERN_TRY(supports_accuracy(name_, p, accuracy_));
    QUERN_TRY(supports_slices(name_, p));
    if (quantized_ && is_dense(p.type))
      return unsupported(name_, "weight type " + std::string(to_string(p.type)) + " is dense, needed a quantized one");
    if (one_matrix(p).m > kMaxRows) return unsupported(name_, "m is " + std::to_string(p.m) + ", needed at most 8");
    return supports_grid(name_, p.n);
  }

  SearchSpace space(const Problem& p, const Target& target) const override {
    Problem shape = one_matrix(p);
    shape.m = std::max<std::int64_t>(shape.m, 1);
    std::vector<Parameter> parameters{{"warps", {2, 4, 8, 16}, 4}, {"warps_k", {1, 2, 4, 8}, 1}, {"lanes", {8, 16, 32}, 32},
                                      {"rows", {1, 2, 4}, 1},      {"unroll", {1, 2, 4}, 1},     {"passes", {1, 2, 4, 8, 16}, 1},
                                      {"stage", {0, 1}, 0},        {"min_warps", {0, 32, 48}, 0}};
    if (quantized_) {
      parameters.push_back({"prefetch", {0, 1}, 0});
      parameters.push_back({"fuse", {0, 1}, 0});
    }
    long long limit = limits_of(target).shared_bytes_per_block;
    Constraint constraint = [*this, shape, limit](const Config& config) { return check(shape, limit, config); };
    choose_defaults(parameters, shape, constraint);
    return {std::string(name_), std::move(parameters), {constraint}};
  }

  Result<KernelSource> render(const Problem& problem, const Target&, const Config& config) const override {
    ConfigReader reader(config);
    const Problem p = one_matrix(problem);
    GemvGeometry g = geometry_of(p, reader, quantized_);
    QUERN_TRY(reader.finish());
    SourceText text(name_, problem);
    text.include("families/" + std::string(name_) + ".cuh").problem_types();
    text.geometry("GemvGeometry", {{"k", g.k},
                                   {"m", g.m},
                                   {"warps", g.warps},
                                   {"warps_k", g.warps_k},
                                   {"lanes", g.lanes},
                                   {"rows", g.rows},
                                   {"unroll", g.unroll},
                                   {"passes", g.passes},
                                   {"stage", g.stage},
                                   {"prefetch", g.prefetch},
                                   {"min_blocks", g.min_blocks},
                                   {"fuse", g.fuse}});
    if (is_empty(problem)) return std::move(text).finish(0, accuracy_);
    if (quantized_ && !g.fuse)
      text.kernel_per_matrix(step("quern_prepare", p.m * ceil_div(p.k / kSliceWeights, kPrepareThreads / 8), kPrepareThreads), 1,
                             "quern::quantize_activations<Weight, X, " + std::to_string(kPrepareThreads) + ">(args);");
    std::string policy = quantized_ ? "quern::GemvQ8<Weight, X, kGeometry>" : "quern::GemvF32<Weight, X, kGeometry>";
    LaunchStep main = step("quern_gemv", g.grid(p.n), g.threads(), shared_bytes(g, p));
    text.kernel_per_matrix(main, std::max(g.min_blocks, 1), "quern::Gemv<Weight, Layout, " + policy + ", Out, kGeometry>::run(args);",
                           quantized_ && !g.fuse ? SourceText::Wait::in_body : SourceText::Wait::at_entry);
    long long workspace = quantized_ ? gemv_q8_workspace_bytes(g, p.k) : 0;
    return std::move(text).finish(static_cast<std::size_t>(workspace), accuracy_);
  }

 private:
  long long shared_bytes(const GemvGeometry& g, const Problem& p) const {
    return quantized_ ? gemv_q8_shared_bytes(g, p.k) : gemv_f32_shared_bytes(g, p.k);
  }

  std::string check(const Problem& p, long long limit, const Config& config) const {
    ConfigReader reader(config);
    GemvGeometry g = geometry_of(p, reader, quantized_);
    if (!reader.finish()) return "parameters do not match the family's";
    if (g.fuse && g.prefetch) return "prefetch is 1, needed 0 with fuse: there is no other kernel to wait for";
    if (g.fuse && !g.stage) return "fuse is 1, needed stage 1: a block can only prepare activations into its own memory";
    return check_geometry(g, p, shared_bytes(g, p), limit);
  }

  void choose_defaults(std::vector<Parameter>& parameters, const Problem& p, const Constraint& constraint) const {
    long long slices = p.k / kSliceWeights;
    DefaultChooser choose{std::string(name_), parameters, constraint};
    choose.start("lanes", 8);  // allowed for every K
    choose.wish("lanes", 16);
    if (quantized_ && p.m == 1 && info(p.type).block_elements == 256) {
      // Types with scales inside scales decode longer per load: more warps in flight, fewer registers each.
      for (auto [name, value] : {std::pair{"lanes", 32}, {"warps", 8}, {"unroll", 2}, {"passes", 4}, {"min_warps", 32}, {"prefetch", 1}})
        choose.wish(name, value);
      // A row longer than one iteration keeps two sets of slices: those of types in more than two planes, and the addresses of raw blocks,
      // then spill at 64 registers.
      const bool heavy = planar::fields(static_cast<unsigned>(p.type)).count > 2 || p.layout == Layout::gguf;
      if (slices > 64 && heavy) choose.wish("unroll", 1);
      return;
    }
    if (!quantized_ && slices >= 24) choose.wish("lanes", 32);
    choose.wish("warps", p.m >= 4 || !quantized_ ? 8 : 2);
    if (p.type != WeightType::f32) choose.wish("rows", 2);  // two sets of two slices of 32 registers spill
    if (p.m >= 4 || !quantized_) choose.wish("stage", 1);
  }

  std::string_view name_;
  bool quantized_;
  Accuracy accuracy_;
};

}  // namespace

const Family& gemv_q8_family() {
  static const Gemv family("gemv_q8", true, Accuracy::normal);
  return family;
}

const Family& gemv_f32_family() {
  static const Gemv family("gemv_f32", false, Accuracy::f32);
  return family;
}

}  // namespace quern

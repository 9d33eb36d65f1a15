// quantize_rows, int8_dot and int8_mma: rows to int8 codes, and the exact product of such rows by DP4A or by tensor cores.
#include <algorithm>

#include "generator/families.h"
#include "generator/family_support.h"
#include "generator/target_limits.h"
#include "geometry/code_rows.h"

namespace quern {
namespace {

Status supports_integer_op(std::string_view family, const Problem& p, Op op) {
  if (p.op == op) return {};
  return unsupported(family, "op is " + std::string(to_string(p.op)) + ", needed " + std::string(to_string(op)));
}

class QuantizeRows final : public Family {
 public:
  std::string_view name() const override { return "quantize_rows"; }

  Status supports(const Problem& p, const Target&) const override {
    QUERN_TRY(supports_integer_op(name(), p, Op::quantize_rows_int8));
    return supports_grid(name(), p.m);
  }

  SearchSpace space(const Problem& p, const Target&) const override {
    // A thread per four elements of a row, as far as a block reaches.
    std::vector<Parameter> parameters{{"threads", {32, 64, 128, 256, 512}, 32}};
    for (const std::int64_t threads : parameters[0].values)
      if (threads * 4 <= p.k) parameters[0].default_value = threads;
    return {"quantize_rows", std::move(parameters)};
  }

  Result<KernelSource> render(const Problem& p, const Target&, const Config& config) const override {
    ConfigReader reader(config);
    const int threads = reader.take("threads");
    QUERN_TRY(reader.finish());
    SourceText text(name(), p);
    text.include("families/quantize_rows.cuh").problem_types();
    if (!is_empty(p))
      text.kernel(step("quern_quantize_rows", p.m, threads, threads / kWarpLanes * 4), 1,
                  "quern::quantize_rows<In, " + std::to_string(threads) + ">(args);");
    return std::move(text).finish(0, Accuracy::exact);
  }
};

// Every M, N and K at every alignment, on every architecture: rows of X beyond `m` go to further blocks.
class Int8Dot final : public Family {
 public:
  std::string_view name() const override { return "int8_dot"; }

  Status supports(const Problem& p, const Target& target) const override {
    QUERN_TRY(supports_integer_op(name(), p, Op::matmul_int8_rows));
    const long long staged = CodeDotGeometry{.row_bytes = static_cast<int>(p.k),
                                             .pieces = 1,
                                             .table_bytes = 0,
                                             .m = 1,
                                             .warps = 1,
                                             .lanes = 8,
                                             .rows = 1,
                                             .unroll = 1,
                                             .passes = 1}
                                 .shared_bytes();
    if (staged > limits_of(target).shared_bytes_per_block)
      return unsupported(name(), "a row of X takes " + std::to_string(staged) + " bytes of shared memory, the target has " +
                                     std::to_string(limits_of(target).shared_bytes_per_block));
    return supports_grid(name(), p.m * p.n);
  }

  SearchSpace space(const Problem& p, const Target& target) const override {
    const long long limit = limits_of(target).shared_bytes_per_block;
    std::vector<Parameter> parameters{{"m", {1, 2, 3, 4, 5, 6, 7, 8}, 1}, {"warps", {1, 2, 4, 8}, 4},
                                      {"lanes", {8, 16, 32}, 8},          {"rows", {1, 2, 4}, 1},
                                      {"unroll", {1, 2, 4}, 1},           {"passes", {1, 2, 4, 8, 16}, 1}};
    Constraint constraint = [p, limit](const Config& config) { return check(p, limit, config); };
    DefaultChooser choose{"int8_dot", parameters, constraint};
    for (std::int64_t m = 2; m <= std::min<std::int64_t>(p.m, 8); ++m) choose.wish("m", m);  // as many as shared memory holds
    choose.wish("lanes", 16);
    choose.wish("lanes", 32);
    choose.wish("unroll", 2);
    if (p.m <= 2) choose.wish("unroll", 4);
    choose.wish("rows", 2);
    if (p.m > 2) choose.wish("rows", 4);  // eight rows of X read from shared memory as many bytes as eight rows of W: four share them
    choose.wish("passes", 4);
    return {"int8_dot", std::move(parameters), {constraint}};
  }

  Result<KernelSource> render(const Problem& p, const Target&, const Config& config) const override {
    ConfigReader reader(config);
    const CodeDotGeometry g = geometry_of(p, reader);
    QUERN_TRY(reader.finish());
    SourceText text(name(), p);
    text.include("families/code_dot.cuh").problem_types();
    text.geometry("CodeDotGeometry", {{"row_bytes", g.row_bytes},
                                      {"pieces", g.pieces},
                                      {"table_bytes", g.table_bytes},
                                      {"m", g.m},
                                      {"warps", g.warps},
                                      {"lanes", g.lanes},
                                      {"rows", g.rows},
                                      {"unroll", g.unroll},
                                      {"passes", g.passes}});
    if (!is_empty(p))
      text.kernel(step("quern_int8_dot", g.grid(p.m, p.n), g.threads(), g.shared_bytes()), 1,
                  "quern::CodeDot<quern::Int8Codes, quern::Int8Epilogue<Out>, kGeometry>::run(args);");
    return std::move(text).finish(0, Accuracy::exact);
  }

 private:
  static CodeDotGeometry geometry_of(const Problem& p, ConfigReader& reader) {
    CodeDotGeometry g{};
    g.row_bytes = static_cast<int>(p.k);
    g.pieces = 1;
    g.m = reader.take("m");
    g.warps = reader.take("warps");
    g.lanes = reader.take("lanes");
    g.rows = reader.take("rows");
    g.unroll = reader.take("unroll");
    g.passes = reader.take("passes");
    return g;
  }

  static std::string check(const Problem& p, long long shared_limit, const Config& config) {
    ConfigReader reader(config);
    const CodeDotGeometry g = geometry_of(p, reader);
    if (!reader.finish()) return "parameters do not match the family's";
    if (g.m > 1 && g.m > p.m) return "m is " + std::to_string(g.m) + ", needed at most the problem's " + std::to_string(p.m);
    if (g.rows * g.m > 32) return "rows * m is " + std::to_string(g.rows * g.m) + ", needed at most 32 accumulators";
    if (g.rows * g.unroll > 8) return "rows * unroll is " + std::to_string(g.rows * g.unroll) + ", needed at most 8 chunks in registers";
    // At least half of the lanes that share a row must have a chunk of it.
    if (g.lanes > 8 && g.lanes > 2 * g.chunks())
      return "lanes is " + std::to_string(g.lanes) + ", needed at most twice the row's " + std::to_string(g.chunks()) + " chunks";
    if (g.unroll > 1 && g.lanes * g.unroll > g.chunks())
      return "unroll is " + std::to_string(g.unroll) + ", needed no more than the row's chunks give each lane";
    if (g.passes > 1 && g.blocks_n(p.n) < 128) return "passes is " + std::to_string(g.passes) + ", needed a grid of at least 128 blocks";
    if (g.shared_bytes() > shared_limit)
      return "shared memory is " + std::to_string(g.shared_bytes()) + " bytes, needed at most " + std::to_string(shared_limit);
    return {};
  }
};

// More rows of X than the dot products should read W for. Up to eight some of the tensor cores' columns stand for nothing, and the tuner
// may still find them faster; untuned the dot products run (generator/family.cc).
class Int8Mma final : public Family {
 public:
  std::string_view name() const override { return "int8_mma"; }

  Status supports(const Problem& p, const Target& target) const override {
    QUERN_TRY(supports_integer_op(name(), p, Op::matmul_int8_rows));
    if (!limits_of(target).tensor_cores_bf16)
      return unsupported(name(), "target is " + to_string(target) + ", needed sm_80 or later for mma m16n8k32");
    return supports_grid(name(), (p.m / 8 + 1) * (p.n / 16 + 1));
  }

  SearchSpace space(const Problem& p, const Target&) const override {
    std::vector<Parameter> parameters{
        {"warps", {1, 2, 4, 8}, 1}, {"warps_k", {1, 2, 4, 8}, 1}, {"frags_n", {1, 2, 4}, 1}, {"frags_m", {1, 2, 4, 8}, 1}};
    Constraint constraint = [p](const Config& config) { return check(p, config); };
    DefaultChooser choose{"int8_mma", parameters, constraint};
    choose.wish("warps", 2);
    for (const int warps_k : {2, 4}) choose.wish("warps_k", warps_k);
    if (p.m > 8) choose.wish("frags_m", 2);
    if (p.m > 16) choose.wish("frags_m", 4);
    if (p.m > 32) choose.wish("frags_m", 8);
    if (p.m <= 32) choose.wish("frags_n", 2);  // with eight fragments of X the bodies for odd addresses spill
    return {"int8_mma", std::move(parameters), {constraint}};
  }

  Result<KernelSource> render(const Problem& p, const Target&, const Config& config) const override {
    ConfigReader reader(config);
    const CodeMmaGeometry g = geometry_of(p, reader);
    QUERN_TRY(reader.finish());
    SourceText text(name(), p);
    text.include("families/code_mma.cuh").problem_types();
    text.geometry("CodeMmaGeometry",
                  {{"row_bytes", g.row_bytes}, {"warps", g.warps}, {"warps_k", g.warps_k}, {"frags_n", g.frags_n}, {"frags_m", g.frags_m}});
    if (!is_empty(p))
      text.kernel(step("quern_int8_mma", g.grid(p.m, p.n), g.threads(), g.shared_bytes()), 1,
                  "quern::CodeMma<quern::Int8Operands<kGeometry.row_bytes>, quern::Int8Epilogue<Out>, kGeometry>::run(args);");
    return std::move(text).finish(0, Accuracy::exact);
  }

 private:
  static CodeMmaGeometry geometry_of(const Problem& p, ConfigReader& reader) {
    CodeMmaGeometry g{};
    g.row_bytes = static_cast<int>(p.k);
    g.warps = reader.take("warps");
    g.warps_k = reader.take("warps_k");
    g.frags_n = reader.take("frags_n");
    g.frags_m = reader.take("frags_m");
    return g;
  }

  static std::string check(const Problem& p, const Config& config) {
    ConfigReader reader(config);
    const CodeMmaGeometry g = geometry_of(p, reader);
    if (!reader.finish()) return "parameters do not match the family's";
    if (g.warps * g.warps_k > 16) return "warps * warps_k is " + std::to_string(g.warps * g.warps_k) + ", needed at most 16";
    if (g.warps_k > 1 && g.warps_k > g.segments())
      return "warps_k is " + std::to_string(g.warps_k) + ", needed at most the row's " + std::to_string(g.segments()) + " segments";
    if (g.shared_bytes() > 48 * 1024) return "shared memory is " + std::to_string(g.shared_bytes()) + " bytes, needed at most 49152";
    if (g.frags_n * g.frags_m > 16)
      return "frags_n * frags_m is " + std::to_string(g.frags_n * g.frags_m) + ", needed at most 16 accumulators";
    if (g.frags_m > 2 && g.tile_m() >= 2 * p.m) return "8 * frags_m is " + std::to_string(g.tile_m()) + ", needed less than twice m";
    return {};
  }
};

}  // namespace

const Family& quantize_rows_family() {
  static const QuantizeRows family;
  return family;
}

const Family& int8_dot_family() {
  static const Int8Dot family;
  return family;
}

const Family& int8_mma_family() {
  static const Int8Mma family;
  return family;
}

}  // namespace quern

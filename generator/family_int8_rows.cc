// quantize_rows, int8_dot and int8_mma: rows to int8 codes, and the exact product of such rows by DP4A or by tensor cores.
#include <algorithm>

#include "generator/code_products.h"
#include "generator/families.h"
#include "generator/target_limits.h"

namespace quern {
namespace {

class QuantizeRows final : public Family {
 public:
  std::string_view name() const override { return "quantize_rows"; }

  Status supports(const Problem& p, const Target&) const override {
    QUERN_TRY(supports_code_op(name(), p, Op::quantize_rows_int8));
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

std::string epilogue(const Problem& p) { return std::string("quern::Int8Epilogue<Y, ") + (p.bias ? "true>" : "false>"); }

// Every M, N and K at every alignment, on every architecture: rows of X beyond `m` go to further blocks.
class Int8Dot final : public Family {
 public:
  std::string_view name() const override { return "int8_dot"; }

  Status supports(const Problem& p, const Target& target) const override {
    QUERN_TRY(supports_code_op(name(), p, Op::matmul_int8_rows));
    QUERN_TRY(supports_staged(name(), least(p).shared_bytes(), limits_of(target).shared_bytes_per_block));
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
    choose.wish("unroll", 2);
    choose.wish("rows", 2);
    if (p.m > 2) {
      choose.wish("lanes", 32);
      choose.wish("rows", 4);  // eight rows of X read from shared memory as many bytes as eight rows of W: four share them
      choose.wish("passes", 4);
    } else {
      choose.wish("warps", 2);
    }
    return {"int8_dot", std::move(parameters), {constraint}};
  }

  Result<KernelSource> render(const Problem& p, const Target&, const Config& config) const override {
    ConfigReader reader(config);
    const CodeDotGeometry g = take_dot(reader, p, least(p));
    QUERN_TRY(reader.finish());
    SourceText text(name(), p);
    text.include("families/code_dot.cuh").problem_types();
    text.geometry("CodeDotGeometry", fields_of(g));
    if (!is_empty(p))
      text.kernel(step("quern_int8_dot", g.grid(p.n), g.threads(), g.shared_bytes()), 1,
                  "quern::CodeDot<quern::Int8Codes, " + epilogue(p) + ", kGeometry>::run(args);");
    return std::move(text).finish(0, Accuracy::exact);
  }

 private:
  static CodeDotGeometry least(const Problem& p) { return least_dot(p, static_cast<int>(p.k), 1, 0); }

  static std::string check(const Problem& p, long long shared_limit, const Config& config) {
    ConfigReader reader(config);
    const CodeDotGeometry g = take_dot(reader, p, least(p));
    if (!reader.finish()) return "parameters do not match the family's";
    return check_dot(g, p, 8, shared_limit);
  }
};

// By tensor cores, which untuned run from three rows of X on (generator/family.cc).
class Int8Mma final : public Family {
 public:
  std::string_view name() const override { return "int8_mma"; }

  Status supports(const Problem& p, const Target& target) const override {
    QUERN_TRY(supports_code_op(name(), p, Op::matmul_int8_rows));
    return supports_code_mma(name(), p, target, limits_of(target).tensor_cores_bf16);
  }

  SearchSpace space(const Problem& p, const Target& target) const override {
    const long long limit = limits_of(target).shared_bytes_per_block;
    std::vector<Parameter> parameters = mma_parameters();
    Constraint constraint = [p, limit](const Config& config) { return check(p, limit, config); };
    DefaultChooser choose{"int8_mma", parameters, constraint};
    wish_mma(choose, p);
    if (p.m > 32) choose.wish("frags_m", 8);
    if (p.m > 8 && p.m <= 32) choose.wish("frags_n", 2);  // with eight fragments of X the bodies for odd addresses spill
    return {"int8_mma", std::move(parameters), {constraint}};
  }

  Result<KernelSource> render(const Problem& p, const Target&, const Config& config) const override {
    ConfigReader reader(config);
    const CodeMmaGeometry g = take_mma(reader, p, static_cast<int>(p.k), 1);
    QUERN_TRY(reader.finish());
    SourceText text(name(), p);
    text.include("families/code_mma.cuh").problem_types();
    text.geometry("CodeMmaGeometry", fields_of(g));
    if (!is_empty(p))
      text.kernel(step("quern_int8_mma", g.grid(), g.threads(), g.shared_bytes()), 1,
                  "quern::CodeMma<quern::Int8Operands<kGeometry.row_bytes>, " + epilogue(p) + ", kGeometry>::run(args);");
    return std::move(text).finish(0, Accuracy::exact);
  }

 private:
  static std::string check(const Problem& p, long long shared_limit, const Config& config) {
    ConfigReader reader(config);
    const CodeMmaGeometry g = take_mma(reader, p, static_cast<int>(p.k), 1);
    if (!reader.finish()) return "parameters do not match the family's";
    return check_mma(g, p, 16, shared_limit);
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

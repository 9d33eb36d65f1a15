// w4a4: packed 4-bit indices times packed 4-bit indices through two codebooks, exactly. Three families of dot products differ in how W's
// indices are looked up: register (byte permutes), table (16 entries in shared memory), pairs (256 entries in shared memory). Each takes
// every M, N and alignment, and every K of which a row of X fits into shared memory, row-major or k-major. w4a4_mma multiplies by
// int8 tensor cores.
#include <algorithm>

#include "generator/code_products.h"
#include "generator/families.h"
#include "generator/target_limits.h"

namespace quern {
namespace {

constexpr int kPieces = 2;  // a chunk of packed indices stands for two pieces of codes
constexpr int kExpandThreads = 256;

int row_bytes(const Problem& p) { return static_cast<int>(p.k / 2); }

// The kernel's names for the output's type and for what becomes of a sum.
std::string epilogue(const Problem& p) {
  const auto flag = [](bool value) { return value ? "true" : "false"; };
  return std::string("quern::CodebookEpilogue<Y, ") + flag(p.bias) + ", " + flag(p.fused) + ">";
}

struct Lookup {
  const char* family;
  const char* entry;
  const char* codebook;  // in templates/families/codebook.cuh
  int table_bytes;       // its kBytes
};

class W4a4Dot final : public Family {
 public:
  explicit W4a4Dot(const Lookup& lookup) : lookup_(lookup) {}
  std::string_view name() const override { return lookup_.family; }

  Status supports(const Problem& p, const Target& target) const override {
    QUERN_TRY(supports_code_op(name(), p, Op::w4a4));
    const long long needed = p.k_major ? k_major(p, 1, 1).shared_bytes() : least(p).shared_bytes();
    QUERN_TRY(supports_staged(name(), needed, limits_of(target).shared_bytes_per_block));
    return supports_grid(name(), p.m * p.n);
  }

  SearchSpace space(const Problem& p, const Target& target) const override {
    return p.k_major ? k_major_space(p, target) : rows_space(p, target);
  }

  Result<KernelSource> render(const Problem& p, const Target&, const Config& config) const override {
    ConfigReader reader(config);
    SourceText text(name(), p);
    text.include(p.k_major ? "families/k_major_dot.cuh" : "families/code_dot.cuh").include("families/codebook.cuh").problem_types();
    std::string codebook = std::string("quern::") + lookup_.codebook;
    if (multiplies()) codebook += reader.take("multiply") != 0 ? "<true>" : "<false>";
    if (p.k_major) {
      const KMajorGeometry g = k_major(p, reader.take("m"), reader.take("warps"));
      QUERN_TRY(reader.finish());
      text.geometry("KMajorGeometry",
                    {{"row_bytes", g.row_bytes}, {"table_bytes", g.table_bytes}, {"m", g.m}, {"tiles_m", g.tiles_m}, {"warps", g.warps}});
      if (!is_empty(p))
        text.kernel(step(lookup_.entry, g.grid(p.n), g.threads(), g.shared_bytes()), 1,
                    "quern::KMajorDot<" + codebook + ", " + epilogue(p) + ", kGeometry>::run(args);");
      return std::move(text).finish(0, Accuracy::exact);
    }
    const CodeDotGeometry g = take_dot(reader, p, least(p));
    QUERN_TRY(reader.finish());
    text.geometry("CodeDotGeometry", fields_of(g));
    if (!is_empty(p))
      text.kernel(step(lookup_.entry, g.grid(p.n), g.threads(), g.shared_bytes()), 1,
                  "quern::CodeDot<quern::IndexCodes<" + codebook + ">, " + epilogue(p) + ", kGeometry>::run(args);");
    return std::move(text).finish(0, Accuracy::exact);
  }

 private:
  // Only look-ups in registers have shifts that could be multiplications.
  bool multiplies() const { return lookup_.table_bytes == 0; }
  void add_multiply(std::vector<Parameter>& parameters) const {
    if (multiplies()) parameters.push_back({"multiply", {0, 1}, 0});
  }

  CodeDotGeometry least(const Problem& p) const { return least_dot(p, row_bytes(p), kPieces, lookup_.table_bytes); }
  KMajorGeometry k_major(const Problem& p, int m, int warps) const {
    return {.row_bytes = row_bytes(p),
            .table_bytes = lookup_.table_bytes,
            .m = m,
            .tiles_m = static_cast<int>(ceil_div(p.m, m)),
            .warps = warps};
  }

  SearchSpace rows_space(const Problem& p, const Target& target) const {
    const long long limit = limits_of(target).shared_bytes_per_block;
    std::vector<Parameter> parameters{{"m", {1, 2, 3, 4, 5, 6, 7, 8}, 1}, {"warps", {1, 2, 4, 8}, 4},
                                      {"lanes", {4, 8, 16, 32}, 4},       {"rows", {1, 2, 4}, 1},
                                      {"unroll", {1, 2, 4}, 1},           {"passes", {1, 2, 4, 8, 16}, 1}};
    add_multiply(parameters);
    Constraint constraint = [this, p, limit](const Config& config) { return check_rows(p, limit, config); };
    DefaultChooser choose{lookup_.family, parameters, constraint};
    for (std::int64_t m = 2; m <= std::min<std::int64_t>(p.m, 8); ++m) choose.wish("m", m);  // as many as shared memory holds
    // Lane groups of a warp read the same pieces of X: by the rules of its banks
    // eight lanes a row take a quarter of the shared memory's cycles that 32 take (not measured).
    choose.wish("lanes", 8);
    choose.wish("warps", 8);
    choose.wish("rows", 2);
    if (p.m > 2) choose.wish("rows", 4);  // X's codes are twice the bytes of W's indices: four rows of W share them
    if (p.m <= 2) choose.wish("unroll", 2);
    return {lookup_.family, std::move(parameters), {constraint}};
  }
  std::string check_rows(const Problem& p, long long shared_limit, const Config& config) const {
    ConfigReader reader(config);
    const CodeDotGeometry g = take_dot(reader, p, least(p));
    if (multiplies()) reader.take("multiply");
    if (!reader.finish()) return "parameters do not match the family's";
    return check_dot(g, p, 4, shared_limit);
  }

  SearchSpace k_major_space(const Problem& p, const Target& target) const {
    const long long limit = limits_of(target).shared_bytes_per_block;
    std::vector<Parameter> parameters{{"m", {1, 2, 3, 4, 5, 6, 7, 8}, 1}, {"warps", {1, 2, 4, 8, 16}, 1}};
    add_multiply(parameters);
    Constraint constraint = [this, p, limit](const Config& config) { return check_k_major(p, limit, config); };
    DefaultChooser choose{lookup_.family, parameters, constraint};
    for (std::int64_t m = 2; m <= std::min<std::int64_t>(p.m, 8); ++m) choose.wish("m", m);  // as many as shared memory holds
    for (const int warps : {2, 4, 8, 16}) choose.wish("warps", warps);
    return {lookup_.family, std::move(parameters), {constraint}};
  }
  std::string check_k_major(const Problem& p, long long shared_limit, const Config& config) const {
    ConfigReader reader(config);
    const KMajorGeometry g = k_major(p, reader.take("m"), reader.take("warps"));
    if (multiplies()) reader.take("multiply");
    if (!reader.finish()) return "parameters do not match the family's";
    if (std::string why = check_rows_of_x(g.m, p); !why.empty()) return why;
    if (g.warps > 1 && g.warps > g.steps())
      return "warps is " + std::to_string(g.warps) + ", needed at most the " + std::to_string(g.steps()) + " steps along k";
    return check_shared(g.shared_bytes(), shared_limit);
  }

  Lookup lookup_;
};

// By tensor cores, from one row of X on: what binds is the look-ups, and mma needs nothing beside them. A k-major W is gathered byte by
// byte; untuned the dot products run for it up to eight rows (generator/family.cc).
class W4a4Mma final : public Family {
 public:
  std::string_view name() const override { return "w4a4_mma"; }

  Status supports(const Problem& p, const Target& target) const override {
    QUERN_TRY(supports_code_op(name(), p, Op::w4a4));
    QUERN_TRY(supports_grid(name(), ceil_div(p.m * (row_bytes(p) / kChunkBytes), kExpandThreads)));
    return supports_code_mma(name(), p, target, limits_of(target).tensor_cores_bf16);
  }

  SearchSpace space(const Problem& p, const Target& target) const override {
    const long long limit = limits_of(target).shared_bytes_per_block;
    std::vector<Parameter> parameters = mma_parameters();
    parameters.push_back({"multiply", {0, 1}, 0});
    parameters.push_back({"halves", {0, 1}, 0});
    Constraint constraint = [p, limit](const Config& config) { return check(p, limit, config); };
    DefaultChooser choose{"w4a4_mma", parameters, constraint};
    wish_mma(choose, p);
    if (p.m <= 8) choose.wish("halves", 1);  // twice the products: beyond eight rows not measured
    return {"w4a4_mma", std::move(parameters), {constraint}};
  }

  Result<KernelSource> render(const Problem& p, const Target&, const Config& config) const override {
    ConfigReader reader(config);
    const auto [g, multiply] = take(reader, p);
    QUERN_TRY(reader.finish());
    SourceText text(name(), p);
    text.include("families/code_mma.cuh").problem_types();
    text.geometry("CodeMmaGeometry", fields_of(g));
    if (is_empty(p)) return std::move(text).finish(0, Accuracy::exact);
    const auto flag = [](bool value) { return value ? "true" : "false"; };
    const std::string body = std::string("quern::CodeMma<quern::IndexOperands<kGeometry.row_bytes, ") + flag(p.k_major) + ", " +
                             flag(multiply) + ">, " + epilogue(p) + ", kGeometry>::run(args);";
    const LaunchStep product = step("quern_w4a4_mma", g.grid(), g.threads(), g.shared_bytes());
    if (g.staged()) {
      text.kernel(product, 1, body);
      return std::move(text).finish(0, Accuracy::exact);
    }
    text.kernel(step("quern_w4a4_codes", ceil_div(p.m * (g.row_bytes / kChunkBytes), kExpandThreads), kExpandThreads), 1,
                "quern::expand_codes<kGeometry.row_bytes, " + std::to_string(kExpandThreads) + ">(args);");
    text.kernel(product, 1, body);
    return std::move(text).finish(static_cast<std::size_t>(p.m * p.k), Accuracy::exact);
  }

 private:
  struct Taken {
    CodeMmaGeometry g;
    bool multiply;
  };
  static Taken take(ConfigReader& reader, const Problem& p) {
    CodeMmaGeometry g = take_mma(reader, p, row_bytes(p), kPieces);
    const bool multiply = reader.take("multiply") != 0;
    g.halves = reader.take("halves");
    return {g, multiply};
  }
  static std::string check(const Problem& p, long long shared_limit, const Config& config) {
    ConfigReader reader(config);
    const CodeMmaGeometry g = take(reader, p).g;
    if (!reader.finish()) return "parameters do not match the family's";
    return check_mma(g, p, 8, shared_limit);  // X's next codes take as many registers as the sums
  }
};

}  // namespace

const Family& w4a4_pairs_family() {
  static const W4a4Dot family({"w4a4_pairs", "quern_w4a4_pairs", "PairCodebook", 512});
  return family;
}

const Family& w4a4_table_family() {
  static const W4a4Dot family({"w4a4_table", "quern_w4a4_table", "TableCodebook", 16});
  return family;
}

const Family& w4a4_register_family() {
  static const W4a4Dot family({"w4a4_register", "quern_w4a4_register", "RegisterCodebook", 0});
  return family;
}

const Family& w4a4_mma_family() {
  static const W4a4Mma family;
  return family;
}

}  // namespace quern

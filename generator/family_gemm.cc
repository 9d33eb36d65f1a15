// gemm: tensor-core GEMM, decoding weights in registers. f16 operands meet `tight`, bf16 operands `normal`. mul_mat_id is the same product
// per tile of rows that share an expert.
#include <algorithm>
#include <bit>

#include "generator/families.h"
#include "generator/family_support.h"
#include "generator/target_limits.h"
#include "geometry/gemm.h"
#include "geometry/planar.h"

namespace quern {
namespace {

constexpr int kPrepareThreads = 256;
constexpr int kSumThreads = 256;

GemmGeometry geometry_of(ConfigReader& reader) {
  GemmGeometry g{};
  g.warps_n = reader.take("warps_n");
  g.warps_m = reader.take("warps_m");
  g.warps_k = reader.take("warps_k");
  g.frags_n = reader.take("frags_n");
  g.frags_m = reader.take("frags_m");
  g.stages = reader.take("stages");
  g.split_k = reader.take("split_k");
  g.bf16 = reader.take("bf16");
  return g;
}

Accuracy accuracy_of(const GemmGeometry& g) { return g.bf16 ? Accuracy::normal : Accuracy::tight; }

bool is_routed(const Problem& p) { return p.op == Op::mul_mat_id; }

// The rows that tiles are chosen for. Of mul_mat_id: those of an expert on average, a quarter more because experts' shares scatter, as a
// power of two: most experts then fit one tile, and their weights are decoded once.
std::int64_t tile_rows(const Problem& p) {
  if (!is_routed(p)) return std::max<std::int64_t>(p.m, 1);
  const std::int64_t average = std::clamp<std::int64_t>(ceil_div(p.m * p.used, p.experts), 1, 4096);
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(ceil_div(5 * average, 4))));
}
RoutedTiles routed_tiles(const Problem& p, const GemmGeometry& g) { return {p.m * p.used, p.experts, g.tile_m()}; }
long long shared_bytes(const Problem& p, const GemmGeometry& g) { return is_routed(p) ? g.routed_shared_bytes() : g.shared_bytes(); }

// The reason why not, or an empty string. `p` has the rows that tiles are chosen for as its m.
std::string check(const Problem& p, long long shared_limit, const Config& config) {
  ConfigReader reader(config);
  GemmGeometry g = geometry_of(reader);
  if (!reader.finish()) return "parameters do not match the family's";
  auto is = [](const char* name, long long value) { return std::string(name) + " is " + std::to_string(value) + ", needed "; };
  if (g.bf16 && p.accuracy < Accuracy::normal) return is("bf16", 1) + "0 for class " + std::string(to_string(p.accuracy));
  if (g.warps() > 16) return is("warps_n * warps_m * warps_k", g.warps()) + "at most 16 warps";
  if (g.warps() < 2) return is("warps_n * warps_m * warps_k", g.warps()) + "at least 2 warps";
  if (g.accumulators() > 128) return is("4 * frags_n * frags_m", g.accumulators()) + "at most 128 accumulators per lane";
  if (g.threads() * (g.accumulators() + 64) > 65536)
    return is("registers of a block", g.threads() * (g.accumulators() + 64)) + "at most 65536";
  if (is_dense(p.type) && g.frags_n > 2) return is("frags_n", g.frags_n) + "at most 2 for dense weights";
  // A token tile that is at least half full, unless it is the smallest.
  if (g.tile_m() > 8 && g.tile_m() >= 2 * round_up(p.m, 8)) return is("8 * frags_m * warps_m", g.tile_m()) + "less than twice m";
  // A wide problem wants wide tiles: narrow ones read the weights once per 8 tokens.
  if (p.m >= 64 && g.tile_m() < 32) return is("8 * frags_m * warps_m", g.tile_m()) + "at least 32 for m of 64 and more";
  if (g.warps_k > 1 && g.tile_m() > 64) return is("warps_k", g.warps_k) + "1 for tiles of more than 64 tokens";
  if (g.split_k > 1 && is_routed(p)) return is("split_k", g.split_k) + "1 for mul_mat_id";
  if (g.split_k > 1 && p.m > 128) return is("split_k", g.split_k) + "1 for m above 128";
  if (static_cast<long long>(g.split_k) * g.warps_k > std::max(1LL, ceil_div(p.k, GemmGeometry::kRun)))
    return is("split_k * warps_k", g.split_k * g.warps_k) + "at most the " + std::to_string(ceil_div(p.k, GemmGeometry::kRun)) +
           " runs along k";
  if (shared_bytes(p, g) > shared_limit)
    return is("shared memory", shared_bytes(p, g)) + "at most " + std::to_string(shared_limit) + " bytes";
  return {};
}

class Gemm final : public Family {
 public:
  std::string_view name() const override { return "gemm"; }

  Status supports(const Problem& p, const Target& target) const override {
    QUERN_TRY(supports_op(name(), p, is_routed(p) ? Op::mul_mat_id : Op::mul_mat));
    if (!is_routed(p)) QUERN_TRY(supports_batch(name(), xy_batches(p).count()));
    QUERN_TRY(supports_rows(name(), p));
    QUERN_TRY(supports_accuracy(name(), p, Accuracy::tight));
    QUERN_TRY(supports_slices(name(), p));
    if (!limits_of(target).tensor_cores_bf16)
      return unsupported(name(), "target is " + to_string(target) + ", needed sm_80 or later for mma m16n8k16 and cp.async");
    // Rows of Y and their number are 32-bit in the tiles of mul_mat_id.
    if (is_routed(p)) return supports_grid(name(), std::max((p.m * p.used / 8 + p.experts) * (p.n / 16 + 1), p.m * p.used + p.experts + 1));
    return supports_grid(name(), (p.m / 8 + 1) * (p.n / 16 + 1) * 8);
  }

  SearchSpace space(const Problem& p, const Target& target) const override {
    Problem shape = p;
    shape.m = tile_rows(p);
    long long limit = limits_of(target).shared_bytes_per_block;
    std::vector<Parameter> parameters{
        {"warps_n", {1, 2, 4, 8}, 4},     {"warps_m", {1, 2}, 1},   {"warps_k", {1, 2, 4, 8}, 1}, {"frags_n", {1, 2, 4}, 1},
        {"frags_m", {1, 2, 4, 8, 16}, 1}, {"stages", {2, 3, 4}, 2}, {"split_k", {1, 2, 4}, 1},    {"bf16", {0, 1}, 0}};
    Constraint constraint = [shape, limit](const Config& config) { return check(shape, limit, config); };
    choose_defaults(parameters, shape, constraint);
    return {"gemm", std::move(parameters), {constraint}};
  }

  Result<KernelSource> render(const Problem& p, const Target&, const Config& config) const override {
    ConfigReader reader(config);
    GemmGeometry g = geometry_of(reader);
    QUERN_TRY(reader.finish());
    SourceText text(name(), p);
    text.include("families/activations.cuh").include(is_routed(p) ? "families/route.cuh" : "families/gemm.cuh").problem_types();
    text.geometry("GemmGeometry", {{"warps_n", g.warps_n},
                                   {"warps_m", g.warps_m},
                                   {"warps_k", g.warps_k},
                                   {"frags_n", g.frags_n},
                                   {"frags_m", g.frags_m},
                                   {"stages", g.stages},
                                   {"split_k", g.split_k},
                                   {"bf16", g.bf16}});
    if (is_empty(p)) return std::move(text).finish(0, accuracy_of(g));
    if (is_routed(p)) return render_routed(std::move(text), p, g);
    std::string prepare = std::to_string(kPrepareThreads), sum = std::to_string(kSumThreads);
    text.kernel_per_matrix(
        step("quern_prepare", p.m, kPrepareThreads, kPrepareThreads / kWarpLanes * 4), 1,
        "quern::fragment_activations<Weight, X, kGeometry.bf16 != 0, " + prepare + ">(args, quern::FragmentPlace{{args.m, args.k}});");
    text.kernel_per_matrix(step("quern_gemm", g.grid(p.m, p.n), g.threads(), g.shared_bytes()), 1,
                           "quern::Gemm<Weight, Layout, Out, kGeometry>::run(args);", SourceText::Wait::in_body);
    if (g.split_k > 1)
      text.kernel_per_matrix(step("quern_sum", ceil_div(p.m * p.n, kSumThreads), kSumThreads), 1,
                             "quern::sum_splits<Out, kGeometry.split_k, " + sum + ">(args, kGeometry.partials(args.m, args.k), args.n);");
    return std::move(text).finish(static_cast<std::size_t>(g.workspace_bytes(p.m, p.n, p.k)), accuracy_of(g));
  }

 private:
  static Result<KernelSource> render_routed(SourceText text, const Problem& p, const GemmGeometry& g) {
    const RoutedTiles routed = routed_tiles(p, g);
    const long long x_rows = p.x_broadcast ? p.m : p.m * p.used, behind = g.partials(x_rows, p.k);
    const std::string broadcast = p.x_broadcast ? "true" : "false";
    text.kernel(step("quern_prepare", p.experts + 1 + x_rows, kPrepareThreads, kPrepareThreads / kWarpLanes * 8), 1,
                "quern::route_and_prepare<Weight, X, Y, " + broadcast + ", kGeometry, " + std::to_string(kPrepareThreads) + ">(args);");
    text.kernel(step("quern_gemm", routed.tiles() * g.tiles_n(p.n), g.threads(), g.routed_shared_bytes()), 1,
                "quern::routed_gemm<Weight, Layout, Out, " + broadcast + ", kGeometry>(args);");
    return std::move(text).finish(static_cast<std::size_t>(behind + routed.bytes()), accuracy_of(g));
  }

  static void choose_defaults(std::vector<Parameter>& parameters, const Problem& p, const Constraint& constraint) {
    DefaultChooser choose{"gemm", parameters, constraint};
    // Start from what is allowed for every m: one fragment of 8 tokens up to m = 63, four fragments from there.
    if (p.m >= 64) choose.start("frags_m", 4);
    choose.wish("bf16", p.accuracy >= Accuracy::normal ? 1 : 0);
    for (int f : {2, 4, 8})
      if (8 * f <= round_up(p.m, 8)) choose.wish("frags_m", f);
    // Experts multiply the blocks. Where there are two for each SM of a large GPU, warps side by side along N read the activations least
    // often: at 64 tokens and 32 rows of W a block stages seven times the bytes of its Q4_0 weights.
    const bool many_blocks = is_routed(p) && ceil_div(p.n, 128) * p.experts >= 264;
    if (p.m <= 64 && !many_blocks) {
      // Two runs of weights are in registers at a time: 32 f32 words per slice leave no room for a second fragment, and 16-bit ones none
      // for the addresses of eight warps' share of 64 tokens (compile_only_test holds every default to no spills).
      const int slice_bytes = kSliceWeights * info(p.type).block_bytes / info(p.type).block_elements;
      choose.wish("frags_n", p.m <= 16 && slice_bytes <= 64 ? 2 : 1);
      const bool narrow = slice_bytes < 64 || p.m <= 32;
      choose.wish("warps_n", narrow ? 2 : 4);
      choose.wish("warps_k", 2);
      if (narrow) choose.wish("warps_k", 4);
    } else {
      // 64 accumulators per lane, or 32 where a slice takes many registers: dense types, and types whose blocks are in more than three
      // planes.
      const bool wide = planar::fields(static_cast<unsigned>(p.type)).count > 3 && p.m > 16;
      choose.wish("frags_n", is_dense(p.type) || wide ? 1 : 2);
      choose.wish("warps_m", p.m > 128 ? 2 : 1);
    }
    choose.wish("stages", 3);
  }
};

}  // namespace

const Family& gemm_family() {
  static const Gemm family;
  return family;
}

}  // namespace quern

// wgmma: Hopper's GEMM. f16 operands meet `tight`, bf16 operands `normal`.
#include <algorithm>

#include "generator/families.h"
#include "generator/family_support.h"
#include "generator/target_limits.h"
#include "geometry/wgmma.h"

namespace quern {
namespace {

constexpr int kPrepareThreads = 256;

WgmmaGeometry geometry_of(ConfigReader& reader) {
  WgmmaGeometry g{};
  g.groups = reader.take("groups");
  g.tile_m = reader.take("tile_m");
  g.stages = reader.take("stages");
  g.bf16 = reader.take("bf16");
  return g;
}

Accuracy accuracy_of(const WgmmaGeometry& g) { return g.bf16 ? Accuracy::normal : Accuracy::tight; }

// The reason why not, or an empty string.
std::string check(const Problem& p, long long shared_limit, const Config& config) {
  ConfigReader reader(config);
  WgmmaGeometry g = geometry_of(reader);
  if (!reader.finish()) return "parameters do not match the family's";
  if (g.bf16 && p.accuracy < Accuracy::normal) return "bf16 is 1, needed 0 for class " + std::string(to_string(p.accuracy));
  if (g.tile_m > 64 && g.tile_m >= 2 * round_up(p.m, 64)) return "tile_m is " + std::to_string(g.tile_m) + ", needed less than twice m";
  if (g.groups > 2 && g.tile_m > 128) return "groups is " + std::to_string(g.groups) + ", needed at most 2 for 256 tokens: registers";
  if (g.shared_bytes() > shared_limit)
    return "shared memory is " + std::to_string(g.shared_bytes()) + " bytes, needed at most " + std::to_string(shared_limit);
  return {};
}

class WgmmaFamily final : public Family {
 public:
  std::string_view name() const override { return "wgmma"; }

  Status supports(const Problem& p, const Target& target) const override {
    QUERN_TRY(supports_op(name(), p, Op::mul_mat));
    QUERN_TRY(supports_batch(name(), xy_batches(p).count()));
    QUERN_TRY(supports_rows(name(), p));
    QUERN_TRY(supports_accuracy(name(), p, Accuracy::tight));
    QUERN_TRY(supports_slices(name(), p));
    if (target.kind == Target::Kind::cuda && (target.sm != 90 || !target.exact_arch))
      return unsupported(name(), "target is " + to_string(target) + ", needed sm_90a");
    if (p.m < 33) return unsupported(name(), "m is " + std::to_string(p.m) + ", needed at least 33 to fill half a tile");
    // The tiles, and the preparation's block for each row of the widest tile.
    return supports_grid(name(), std::max<long long>((p.m / 64 + 1) * (p.n / 64 + 1), round_up(p.m, 256)));
  }

  SearchSpace space(const Problem& p, const Target& target) const override {
    long long limit = limits_of(target).shared_bytes_per_block;
    Constraint constraint = [p, limit](const Config& config) { return check(p, limit, config); };
    int tile_m = p.m > 128 ? 256 : p.m > 64 ? 128 : 64;
    return {"wgmma",
            {{"groups", {1, 2, 4}, p.m > 64 ? 2 : 1},
             {"tile_m", {64, 128, 256}, tile_m},
             {"stages", {2, 3, 4, 6}, 3},
             {"bf16", {0, 1}, p.accuracy >= Accuracy::normal ? 1 : 0}},
            {constraint}};
  }

  Result<KernelSource> render(const Problem& p, const Target&, const Config& config) const override {
    ConfigReader reader(config);
    WgmmaGeometry g = geometry_of(reader);
    QUERN_TRY(reader.finish());
    SourceText text(name(), p);
    text.include("families/activations.cuh").include("families/wgmma.cuh").problem_types();
    text.geometry("WgmmaGeometry", {{"groups", g.groups}, {"tile_m", g.tile_m}, {"stages", g.stages}, {"bf16", g.bf16}});
    if (is_empty(p)) return std::move(text).finish(0, accuracy_of(g));
    TiledActivations activations{p.m, p.k, g.tile_m};
    text.kernel_per_matrix(step("quern_prepare", activations.rows(), kPrepareThreads, kPrepareThreads / kWarpLanes * 4), 1,
                           "quern::fragment_activations<Weight, X, kGeometry.bf16 != 0, " + std::to_string(kPrepareThreads) +
                               ">(args, quern::TiledPlace{{args.m, args.k, kGeometry.tile_m}});");
    text.kernel_per_matrix(step("quern_wgmma", g.grid(p.m, p.n), g.threads(), g.shared_bytes()), 1,
                           "quern::WgmmaGemm<Weight, Layout, Out, kGeometry>::run(args);", SourceText::Wait::in_body);
    return std::move(text).finish(static_cast<std::size_t>(activations.bytes()), accuracy_of(g));
  }
};

}  // namespace

const Family& wgmma_family() {
  static const WgmmaFamily family;
  return family;
}

}  // namespace quern

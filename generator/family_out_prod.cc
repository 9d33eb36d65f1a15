// gemm_t and wgmma_t: out_prod on tensor cores, W decoded into shared memory run by run. f16 operands meet `tight`, bf16 ones `normal`.
#include <algorithm>

#include "generator/families.h"
#include "generator/family_support.h"
#include "generator/target_limits.h"
#include "geometry/out_prod.h"
#include "geometry/planar.h"

namespace quern {
namespace {

constexpr int kScaleThreads = 256;
constexpr int kSumThreads = 256;
constexpr long long kSms = 132;  // blocks that defaults try to reach: one per SM of a data-center GPU

std::string is(const char* name, long long value, const std::string& needed) {
  return std::string(name) + " is " + std::to_string(value) + ", needed " + needed;
}

// The rules that both kernels share. Each returns the reason why not, or an empty string.
std::string check_tiles(const Problem& p, const OutProdTiles& t, int bf16, long long shared_limit, int least_tile_m) {
  if (bf16 && p.accuracy < Accuracy::normal) return is("bf16", 1, "0 for class " + std::string(to_string(p.accuracy)));
  if (t.tile_m > least_tile_m && t.tile_m >= 2 * round_up(p.m, least_tile_m)) return is("tile_m", t.tile_m, "less than twice m");
  if (t.tile_k > 64 && t.tile_k >= 2 * round_up(p.k, 64)) return is("tile_k", t.tile_k, "less than twice k");
  const long long steps = std::max(1LL, ceil_div(p.n, t.run));
  if (t.split > 1 && t.split * 4 > steps)
    return is("split", t.split, "at most a quarter of the " + std::to_string(steps) + " steps along n");
  const long long tiles = t.tiles(p.m, p.k);
  if (t.split > 1 && t.wave == 0 && tiles > 4 * kSms)
    return is("split", t.split, "1 where the output tiles fill the GPU, or only their tail");
  if (t.wave > 0 && t.split == 1) return is("wave", t.wave, "0 where nothing is split");
  if (t.wave > 0 && (tiles < t.wave || tiles % t.wave == 0))
    return is("wave", t.wave, "0 where the " + std::to_string(tiles) + " tiles are less than a wave, or whole ones");
  if (t.shared_bytes() > shared_limit) return is("shared memory", t.shared_bytes(), "at most " + std::to_string(shared_limit) + " bytes");
  return {};
}

// The split, and which tiles it is for, of the least estimated time. A block's steps take `step_us` each and four more to begin and end;
// blocks come in waves of `blocks`; partial sums are written and read once, at 3 TB/s. On an H200, M=2048 N=17408 K=5120: 320 tiles are 2.4
// waves; two splits of each were 11% faster than one, and two splits of the last 56 alone save the partial sums of the others.
void wish_split(DefaultChooser& choose, const std::vector<std::int64_t>& values, const Problem& p, const OutProdTiles& t, long long blocks,
                double step_us) {
  const long long tiles = t.tiles(p.m, p.k), steps = ceil_div(p.n, t.run);
  const auto time_of = [&](long long count, std::int64_t split) {
    return static_cast<double>(ceil_div(count * split, blocks) * (ceil_div(steps, split) + 4)) * step_us;
  };
  double best = 0;
  for (const auto split : values)
    for (const long long wave : {0LL, kSms}) {
      OutProdTiles chosen = t;
      chosen.split = static_cast<int>(split), chosen.wave = static_cast<int>(wave);
      const long long whole = chosen.whole(p.m, p.k);
      if (wave > 0 && (split == 1 || whole == 0 || whole == tiles)) continue;
      const long long partials = OutProdWorkspace{chosen, p.m, p.k, 0}.bytes() / 4;
      const double us = time_of(whole, 1) + time_of(tiles - whole, split) + 8.0 * static_cast<double>(partials) / 3e6;
      if (best > 0 && us >= best) continue;
      best = us;
      choose.wish("wave", 0);
      choose.wish("split", split);
      choose.wish("wave", wave);
    }
}

class OutProdFamily : public Family {
 public:
  explicit OutProdFamily(std::string_view name) : name_(name) {}
  std::string_view name() const override { return name_; }

 protected:
  Status supports_product(const Problem& p) const {
    QUERN_TRY(supports_op(name_, p, Op::out_prod));
    QUERN_TRY(supports_batch(name_, xy_batches(p).count()));
    QUERN_TRY(supports_accuracy(name_, p, Accuracy::tight));
    QUERN_TRY(supports_slices(name_, p));
    // Rows of W are counted in 32 bits, and a split may begin a few runs past the last one.
    if (p.n > (std::int64_t{1} << 30)) return unsupported(name_, "n is " + std::to_string(p.n) + ", needed at most 1073741824");
    return supports_grid(name_, (p.m / 16 + 1) * (p.k / 32 + 1) * 32);
  }

  // The steps around the kernel `main`: scales of X before it, sums of the splits behind it.
  Result<KernelSource> finish(SourceText& text, const Problem& p, const LaunchStep& main, int min_blocks, const std::string& body,
                              const OutProdTiles& t, int bf16) const {
    const Accuracy accuracy = bf16 ? Accuracy::normal : Accuracy::tight;
    if (is_empty(p)) return std::move(text).finish(0, accuracy);
    if (!bf16)
      text.kernel_per_matrix(step("quern_scales", p.x_transposed ? ceil_div(p.m, kWarpLanes) : p.m, kScaleThreads, kScaleThreads * 4), 1,
                             "quern::input_scales<In, " + std::to_string(kScaleThreads) + ">(args);");
    text.kernel_per_matrix(main, min_blocks, body, bf16 ? SourceText::Wait::at_entry : SourceText::Wait::in_body);
    const OutProdWorkspace workspace{t, p.m, p.k, !bf16};
    if (t.split > 1)
      text.kernel_per_matrix(step("quern_sum", ceil_div(workspace.outputs(), kSumThreads), kSumThreads), 1,
                             "quern::sum_out_prod<Out, kGeometry.tiles(), " + std::string(bf16 ? "false" : "true") + ", " +
                                 std::to_string(kSumThreads) + ">(args);");
    return std::move(text).finish(static_cast<std::size_t>(workspace.bytes()), accuracy);
  }

 private:
  std::string_view name_;
};

class GemmT final : public OutProdFamily {
 public:
  GemmT() : OutProdFamily("gemm_t") {}

  Status supports(const Problem& p, const Target& target) const override {
    QUERN_TRY(supports_product(p));
    if (limits_of(target).tensor_cores_bf16) return {};
    return unsupported(name(), "target is " + to_string(target) + ", needed sm_80 or later for mma m16n8k16");
  }

  SearchSpace space(const Problem& p, const Target& target) const override {
    Problem shape = p;
    shape.m = std::max<std::int64_t>(p.m, 1);
    const long long limit = limits_of(target).shared_bytes_per_block;
    std::vector<Parameter> parameters{{"warps_m", {1, 2, 4}, 1},  {"warps_k", {2, 4, 8}, 2}, {"frags_m", {1, 2, 4}, 1},
                                      {"frags_k", {4, 8, 16}, 4}, {"run", {32, 64}, 32},     {"split", {1, 2, 4, 8, 16, 32}, 1},
                                      {"wave", {0, kSms}, 0},     {"bf16", {0, 1}, 0}};
    Constraint constraint = [shape, limit](const Config& config) { return check(shape, limit, config); };
    choose_defaults(parameters, shape, constraint);
    return {"gemm_t", std::move(parameters), {constraint}};
  }

  Result<KernelSource> render(const Problem& p, const Target&, const Config& config) const override {
    ConfigReader reader(config);
    const GemmTGeometry g = geometry_of(reader);
    QUERN_TRY(reader.finish());
    SourceText text(name(), p);
    text.include("families/gemm_t.cuh").problem_types();
    text.geometry("GemmTGeometry", {{"warps_m", g.warps_m},
                                    {"warps_k", g.warps_k},
                                    {"frags_m", g.frags_m},
                                    {"frags_k", g.frags_k},
                                    {"run", g.run},
                                    {"split", g.split},
                                    {"wave", g.wave},
                                    {"bf16", g.bf16}});
    const LaunchStep main = step("quern_gemm_t", g.tiles().grid(p.m, p.k), g.threads(), g.tiles().shared_bytes());
    return finish(text, p, main, 1, "quern::GemmT<Weight, Layout, In, Out, kGeometry>::run(args);", g.tiles(), g.bf16);
  }

 private:
  static GemmTGeometry geometry_of(ConfigReader& reader) {
    GemmTGeometry g{};
    g.warps_m = reader.take("warps_m");
    g.warps_k = reader.take("warps_k");
    g.frags_m = reader.take("frags_m");
    g.frags_k = reader.take("frags_k");
    g.run = reader.take("run");
    g.split = reader.take("split");
    g.wave = reader.take("wave");
    g.bf16 = reader.take("bf16");
    return g;
  }

  static std::string check(const Problem& p, long long shared_limit, const Config& config) {
    ConfigReader reader(config);
    const GemmTGeometry g = geometry_of(reader);
    if (!reader.finish()) return "parameters do not match the family's";
    const OutProdTiles t = g.tiles();
    if (g.warps_m * g.warps_k > 8) return is("warps_m * warps_k", g.warps_m * g.warps_k, "at most 8 warps");
    if (g.accumulators() > 128) return is("4 * frags_m * frags_k", g.accumulators(), "at most 128 accumulators per lane");
    // X's next fragments are kept raw: eight words per fragment and 16 rows of W.
    if (g.frags_m * g.run > 128) return is("frags_m * run", g.frags_m * g.run, "at most 128: registers for X");
    if (g.accumulators() == 128 && g.frags_m * g.run > 64)
      return is("frags_m * run", g.frags_m * g.run, "at most 64 with 128 accumulators");
    if (t.tile_k < 64 || t.tile_k > 512) return is("8 * frags_k * warps_k", t.tile_k, "64 to 512 columns");
    const long long slices = static_cast<long long>(t.run) * t.tile_k / kSliceWeights;
    if (slices > 4LL * g.threads()) return is("slices per step", slices, "at most 4 per thread");
    return check_tiles(p, t, g.bf16, shared_limit, 16);
  }

  static void choose_defaults(std::vector<Parameter>& parameters, const Problem& p, const Constraint& constraint) {
    DefaultChooser choose{"gemm_t", parameters, constraint};
    choose.wish("bf16", p.accuracy >= Accuracy::normal ? 1 : 0);
    if (p.m > 64) {
      for (auto [name, value] : {std::pair{"warps_m", 4}, {"warps_k", 2}, {"frags_m", 2}, {"frags_k", 8}}) choose.wish(name, value);
    } else {
      choose.wish("warps_k", 4);
      choose.wish("frags_k", 8);
      if (p.m > 16) choose.wish("frags_m", 2);
      if (p.m > 32) choose.wish("warps_m", 2);
    }
    const auto value = [&](std::string_view name) {
      return static_cast<int>(
          std::find_if(parameters.begin(), parameters.end(), [&](const Parameter& q) { return q.name == name; })->default_value);
    };
    const GemmTGeometry g{value("warps_m"), value("warps_k"), value("frags_m"), value("frags_k"), value("run"), 1, 0, 0};
    // Small tiles leave room for several blocks on an SM, and only many loads in flight keep the memory busy.
    wish_split(choose, {1, 2, 4, 8, 16, 32}, p, g.tiles(), p.m > 64 ? kSms : 4 * kSms, p.m > 64 ? 1.0 : 0.5);
  }
};

class WgmmaT final : public OutProdFamily {
 public:
  WgmmaT() : OutProdFamily("wgmma_t") {}

  Status supports(const Problem& p, const Target& target) const override {
    QUERN_TRY(supports_product(p));
    if (target.kind == Target::Kind::cuda && (target.sm != 90 || !target.exact_arch))
      return unsupported(name(), "target is " + to_string(target) + ", needed sm_90a");
    if (p.m < 33) return unsupported(name(), "m is " + std::to_string(p.m) + ", needed at least 33 to fill half a tile");
    return {};
  }

  SearchSpace space(const Problem& p, const Target& target) const override {
    const long long limit = limits_of(target).shared_bytes_per_block;
    std::vector<Parameter> parameters{{"groups", {1, 2}, 1},  {"tile_k", {64, 128, 256}, 64}, {"split", {1, 2, 3, 4, 6, 8, 12, 16}, 1},
                                      {"wave", {0, kSms}, 0}, {"spread", {0, 2}, 0},          {"hold", {0, 1}, 0},
                                      {"bf16", {0, 1}, 0}};
    Constraint constraint = [p, limit](const Config& config) { return check(p, limit, config); };
    DefaultChooser choose{"wgmma_t", parameters, constraint};
    choose.wish("bf16", p.accuracy >= Accuracy::normal ? 1 : 0);
    if (p.m > 64) choose.wish("groups", 2);
    // 256 columns are faster than 128 (1150 us against 1540 at M=2048), but take every register: one warpgroup alone, dense types and types
    // whose blocks are in more than three planes would spill. One warpgroup of the latter spills with 128, too.
    const bool heavy = is_dense(p.type) || planar::fields(static_cast<unsigned>(p.type)).count > 3;
    if (p.m > 64 || !heavy) choose.wish("tile_k", 128);
    if (p.m > 64 && !heavy) choose.wish("tile_k", 256);
    const auto value = [&](std::size_t i) { return static_cast<int>(parameters[i].default_value); };
    wish_split(choose, parameters[2].values, p, WgmmaTGeometry{value(0), value(1), 1, 0, 0, 0, 0}.tiles(), kSms, 0.9);
    // On an H200 at M=2048 Q4_0 gains 3% from it; IQ2_XXS, which decodes twice as long, loses 6%.
    if (info(p.type).block_elements < 256) choose.wish("spread", 2);
    // Q8_0: ptxas hoists a conversion of X otherwise; 928 us at M=2048 in place of 960 to 981. Q4_0 loses up to 11% by it.
    if (p.type == WeightType::q8_0) choose.wish("hold", 1);
    return {"wgmma_t", std::move(parameters), {constraint}};
  }

  Result<KernelSource> render(const Problem& p, const Target&, const Config& config) const override {
    ConfigReader reader(config);
    const WgmmaTGeometry g = geometry_of(reader);
    QUERN_TRY(reader.finish());
    SourceText text(name(), p);
    text.include("families/wgmma_t.cuh").problem_types();
    text.geometry("WgmmaTGeometry", {{"groups", g.groups},
                                     {"tile_k", g.tile_k},
                                     {"split", g.split},
                                     {"wave", g.wave},
                                     {"spread", g.spread},
                                     {"hold", g.hold},
                                     {"bf16", g.bf16}});
    const LaunchStep main = step("quern_wgmma_t", g.tiles().grid(p.m, p.k), g.threads(), g.tiles().shared_bytes());
    return finish(text, p, main, 1, "quern::WgmmaT<Weight, Layout, In, Out, kGeometry>::run(args);", g.tiles(), g.bf16);
  }

 private:
  static WgmmaTGeometry geometry_of(ConfigReader& reader) {
    WgmmaTGeometry g{};
    g.groups = reader.take("groups");
    g.tile_k = reader.take("tile_k");
    g.split = reader.take("split");
    g.wave = reader.take("wave");
    g.spread = reader.take("spread");
    g.hold = reader.take("hold");
    g.bf16 = reader.take("bf16");
    return g;
  }

  static std::string check(const Problem& p, long long shared_limit, const Config& config) {
    ConfigReader reader(config);
    const WgmmaTGeometry g = geometry_of(reader);
    if (!reader.finish()) return "parameters do not match the family's";
    return check_tiles(p, g.tiles(), g.bf16, shared_limit, 64);
  }
};

}  // namespace

const Family& gemm_t_family() {
  static const GemmT family;
  return family;
}

const Family& wgmma_t_family() {
  static const WgmmaT family;
  return family;
}

}  // namespace quern

// rpbh_quantize: rows permuted, signed, normalized, turned and bucketized, a block of threads per row.
#include <bit>
#include <cmath>

#include "generator/families.h"
#include "generator/family_support.h"
#include "generator/target_limits.h"
#include "geometry/rpbh.h"

namespace quern {
namespace {

class RpbhQuantize final : public Family {
 public:
  std::string_view name() const override { return "rpbh_quantize"; }

  Status supports(const Problem& p, const Target& target) const override {
    if (p.op != Op::rpbh_quantize)
      return unsupported(name(), "op is " + std::string(to_string(p.op)) + ", needed " + std::string(to_string(Op::rpbh_quantize)));
    const std::int64_t needed = geometry_of(p, 0, 0).shared_bytes(), limit = limits_of(target).shared_bytes_per_block;
    if (needed > limit)
      return unsupported(name(), "a row of k = " + std::to_string(p.k) + " takes " + std::to_string(needed) +
                                     " bytes of shared memory, the target has " + std::to_string(limit));
    return supports_grid(name(), p.m);
  }

  SearchSpace space(const Problem& p, const Target& target) const override {
    const std::int64_t limit = limits_of(target).shared_bytes_per_block;
    std::vector<Parameter> parameters{{"threads", {32, 64, 128, 256, 512}, 32}, {"staged", {0, 1}, 0}};
    Constraint constraint = [p, limit](const Config& config) { return check(p, limit, config); };
    // Eight columns a thread, as many as it turns at a time, as far as a block reaches.
    DefaultChooser choose{"rpbh_quantize", parameters, constraint};
    for (const std::int64_t threads : {64, 128, 256, 512})
      if (threads * 8 <= p.k) choose.wish("threads", threads);
    choose.wish("staged", 1);
    return {"rpbh_quantize", std::move(parameters), {constraint}};
  }

  Result<KernelSource> render(const Problem& p, const Target&, const Config& config) const override {
    ConfigReader reader(config);
    const RpbhGeometry g = geometry_of(p, reader);
    QUERN_TRY(reader.finish());
    SourceText text(name(), p);
    text.include("families/rpbh_quantize.cuh").problem_types();
    text.geometry(
        "RpbhGeometry",
        {{"k", g.k}, {"block", g.block}, {"threads", g.threads}, {"staged", g.staged}, {"x_bytes", g.x_bytes}, {"factor", g.factor}});
    const std::string packed = p.type == WeightType::code4 ? "true" : "false";
    if (!is_empty(p))
      text.kernel(step("quern_rpbh_quantize", p.m, g.threads, g.shared_bytes()), 1,
                  "quern::RpbhQuantize<In, kGeometry, " + packed + ">::run(args);");
    return std::move(text).finish(0, Accuracy::exact);
  }

 private:
  static RpbhGeometry geometry_of(const Problem& p, int threads, int staged) {
    RpbhGeometry g{};
    g.k = static_cast<int>(p.k);
    g.block = static_cast<int>(p.block);
    g.threads = threads;
    g.staged = staged;
    g.x_bytes = size_of(p.x_type);
    g.factor = std::bit_cast<std::uint32_t>(static_cast<float>(1.0 / std::sqrt(static_cast<double>(p.block))));
    return g;
  }
  static RpbhGeometry geometry_of(const Problem& p, ConfigReader& reader) {
    const int threads = reader.take("threads");
    return geometry_of(p, threads, reader.take("staged"));
  }

  static std::string check(const Problem& p, std::int64_t shared_limit, const Config& config) {
    ConfigReader reader(config);
    const RpbhGeometry g = geometry_of(p, reader);
    if (!reader.finish()) return "parameters do not match the family's";
    if (g.shared_bytes() > shared_limit)
      return "shared memory is " + std::to_string(g.shared_bytes()) + " bytes, needed at most " + std::to_string(shared_limit);
    return {};
  }
};

}  // namespace

const Family& rpbh_quantize_family() {
  static const RpbhQuantize family;
  return family;
}

}  // namespace quern

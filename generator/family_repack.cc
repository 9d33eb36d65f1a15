// repack: weights from one layout to the other, in place too (Y may be W).
#include <algorithm>

#include "generator/families.h"
#include "generator/family_support.h"
#include "geometry/limits.h"
#include "geometry/planar.h"

namespace quern {
namespace {

class Repack final : public Family {
 public:
  std::string_view name() const override { return "repack"; }

  Status supports(const Problem& p, const Target&) const override {
    if (p.op != Op::to_planar && p.op != Op::to_gguf)
      return unsupported(name(), "op is " + std::string(to_string(p.op)) + ", needed to_planar or to_gguf");
    QUERN_TRY(supports_op(name(), p, p.op));
    Layout source = p.op == Op::to_planar ? Layout::gguf : Layout::planar;
    if (p.layout != source)
      return unsupported(name(), "layout is " + std::string(to_string(p.layout)) + ", " + std::string(to_string(p.op)) + " reads " +
                                     std::string(to_string(source)));
    return supports_plain(name(), p);
  }

  SearchSpace space(const Problem&, const Target&) const override {
    return {"repack", {{"threads", {128, 256, 512}, 256}, {"blocks", {132, 264, 528}, 264}}};
  }

  Result<KernelSource> render(const Problem& p, const Target&, const Config& config) const override {
    ConfigReader reader(config);
    int threads = reader.take("threads");
    long long blocks = reader.take("blocks");
    QUERN_TRY(reader.finish());
    SourceText text(name(), p);
    text.include("families/repack.cuh").problem_types();
    long long tile_bytes = round_up(planar::kTileRows * row_bytes(p.type, p.k), 16);
    bool shared = tile_bytes <= 48 * 1024;  // what every architecture gives without being asked
    blocks = std::min(blocks, ceil_div(p.n, planar::kTileRows));
    if (!is_empty(p))
      text.kernel(step("quern_repack", blocks, threads, shared ? tile_bytes : 0), 1,
                  "quern::repack<Weight, " + std::string(p.op == Op::to_planar ? "true" : "false") + ", " + (shared ? "true" : "false") +
                      ", " + std::to_string(threads) + ">(args, " + std::to_string(blocks) + ");");
    return std::move(text).finish(shared ? 0 : static_cast<std::size_t>(blocks * tile_bytes), Accuracy::exact);
  }
};

}  // namespace

const Family& repack_family() {
  static const Repack family;
  return family;
}

}  // namespace quern

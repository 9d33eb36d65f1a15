// dequantize: weights to a dense matrix.
#include "generator/families.h"
#include "generator/family_support.h"
#include "geometry/limits.h"

namespace quern {
namespace {

class Dequantize final : public Family {
 public:
  std::string_view name() const override { return "dequantize"; }

  Status supports(const Problem& p, const Target&) const override {
    QUERN_TRY(supports_op(name(), p, Op::dequantize));
    QUERN_TRY(supports_plain(name(), p));
    return supports_grid(name(), slices(p) / 64 + 1);
  }

  SearchSpace space(const Problem&, const Target&) const override { return {"dequantize", {{"threads", {64, 128, 256}, 128}}}; }

  Result<KernelSource> render(const Problem& p, const Target&, const Config& config) const override {
    ConfigReader reader(config);
    int threads = reader.take("threads");
    QUERN_TRY(reader.finish());
    SourceText text(name(), p);
    text.include("families/dequantize.cuh").problem_types();
    if (!is_empty(p))
      text.kernel(step("quern_dequantize", ceil_div(slices(p), threads), threads), 1,
                  "quern::dequantize<Weight, Layout, Out, " + std::to_string(threads) + ">(args);");
    return std::move(text).finish(0, Accuracy::exact);
  }

 private:
  static long long slices(const Problem& p) { return p.n * ceil_div(p.k, kSliceWeights); }
};

}  // namespace

const Family& dequantize_family() {
  static const Dequantize family;
  return family;
}

}  // namespace quern

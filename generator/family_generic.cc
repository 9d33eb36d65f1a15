// generic: products for every legal problem on every architecture.
#include "generator/families.h"
#include "generator/family_support.h"
#include "geometry/limits.h"

namespace quern {
namespace {

class Generic final : public Family {
 public:
  std::string_view name() const override { return "generic"; }

  Status supports(const Problem& p, const Target&) const override {
    if (!is_product(p.op)) return unsupported(name(), "op is " + std::string(to_string(p.op)) + ", needed a product");
    QUERN_TRY(supports_op(name(), p, p.op));
    QUERN_TRY(supports_accuracy(name(), p, Accuracy::f32));
    return supports_grid(name(), threads_needed(p) / 64 + 1);
  }

  SearchSpace space(const Problem&, const Target&) const override { return {"generic", {{"threads", {64, 128, 256}, 128}}}; }

  Result<KernelSource> render(const Problem& p, const Target&, const Config& config) const override {
    ConfigReader reader(config);
    int threads = reader.take("threads");
    QUERN_TRY(reader.finish());
    SourceText text(name(), p);
    text.include("families/generic.cuh").problem_types();
    const std::string function = p.op == Op::out_prod ? "generic_out_prod" : "generic_mul_mat";
    if (!is_empty(p))
      text.kernel(step("quern_generic", ceil_div(threads_needed(p), threads), threads), 1,
                  "quern::" + function + "<Weight, Layout, Matrices, In, Out, " + std::to_string(threads) + ">(args);");
    return std::move(text).finish(0, Accuracy::f32);
  }

 private:
  // mul_mat: a thread per output; out_prod: one per 32 outputs.
  static long long threads_needed(const Problem& p) {
    const Extent y = y_extent(p);
    return xy_batches(p).count() * y.rows * (p.op == Op::out_prod ? ceil_div(y.columns, kSliceWeights) : y.columns);
  }
};

}  // namespace

const Family& generic_family() {
  static const Generic family;
  return family;
}

}  // namespace quern

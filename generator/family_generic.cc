// generic: mul_mat for every legal problem on every architecture.
#include "generator/families.h"
#include "generator/family_support.h"
#include "geometry/limits.h"

namespace quern {
namespace {

class Generic final : public Family {
 public:
  std::string_view name() const override { return "generic"; }

  Status supports(const Problem& p, const Target&) const override {
    QUERN_TRY(supports_op(name(), p, Op::mul_mat));
    QUERN_TRY(supports_accuracy(name(), p, Accuracy::f32));
    return supports_grid(name(), outputs(p) / 64 + 1);
  }

  SearchSpace space(const Problem&, const Target&) const override { return {"generic", {{"threads", {64, 128, 256}, 128}}}; }

  Result<KernelSource> render(const Problem& p, const Target&, const Config& config) const override {
    ConfigReader reader(config);
    int threads = reader.take("threads");
    QUERN_TRY(reader.finish());
    SourceText text(name(), p);
    text.include("families/generic.cuh").problem_types();
    if (!is_empty(p))
      text.kernel(step("quern_generic", ceil_div(outputs(p), threads), threads), 1,
                  "quern::generic_mul_mat<Weight, Layout, X, Y, kBias, " + std::to_string(threads) + ">(args);");
    return std::move(text).finish(0, Accuracy::f32);
  }

 private:
  static long long outputs(const Problem& p) { return p.m * p.n * p.batch2 * p.batch3; }
};

}  // namespace

const Family& generic_family() {
  static const Generic family;
  return family;
}

}  // namespace quern

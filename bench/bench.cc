#include "bench/bench.h"

#include <vector>

#include "quern/version.h"
#include "runtime/lookup.h"
#include "tuner/bench_data.h"

namespace quern::bench {
namespace {

struct Choice {
  Config config;
  Provenance provenance = Provenance::fallback;
};

// What Context::plan would try first.
Choice choose(const ContextParts& parts, const Problem& problem, const Config& fallback) {
  const auto found = look_up(*parts.store, problem, parts.device->info().identity, kGeneratorVersion);
  if (found.candidates.empty()) return {fallback, Provenance::fallback};
  return {found.candidates.front().config, found.candidates.front().provenance};
}

// Interleaved when the two configs differ, so that a drift of the clocks meets both alike.
Status time_beside_default(const BenchParts& parts, const MeasureSettings& settings, bool default_ok, Row& row) {
  if (!default_ok) return {};
  if (row.config == row.default_config) {
    row.default_us = row.us;
    return {};
  }
  QUERN_ASSIGN(const auto timings, parts.measurer->compare({row.config, row.default_config}, settings));
  row.us = timings[0].us_median;
  row.spread = row.us > 0 ? (timings[0].us_p90 - timings[0].us_p10) / row.us : 0;
  row.default_us = timings[1].us_median;
  return {};
}

// What a program does whose back end has no product with quantized weights: cast them to f32, multiply.
Result<std::optional<double>> time_cast_gemm(const BenchParts& parts, const Problem& problem, const MeasureSettings& settings) {
  const ContextParts& live = parts_of(*parts.context);
  const Problem cast{
      .op = Op::dequantize, .type = problem.type, .layout = problem.layout, .n = problem.n, .k = problem.k, .accuracy = Accuracy::exact};
  QUERN_TRY(parts.measurer->prepare(cast, {.rotate = true}));
  QUERN_ASSIGN(const Measurement dequantize, parts.measurer->measure(live.kernels.default_config(cast, parts.context->target()), settings));
  if (dequantize.verdict != Verdict::ok) return std::optional<double>();
  const auto gemm = parts.cublas->time_product(*live.device, problem, Cublas::Operands::tf32, settings.max_samples, settings.max_seconds);
  if (!gemm) return std::optional<double>();
  return std::optional<double>(dequantize.us + gemm->us_median);
}

Status time_cublas(const BenchParts& parts, const Problem& problem, const MeasureSettings& settings, Row& row) {
  const ContextParts& live = parts_of(*parts.context);
  if (const auto timing =
          parts.cublas->time_product(*live.device, problem, Cublas::Operands::bf16, settings.max_samples, settings.max_seconds))
    row.bf16_us = timing->us_median;
  if (problem.op != Op::out_prod) return {};
  QUERN_ASSIGN(row.cast_gemm_us, time_cast_gemm(parts, problem, settings));
  return {};
}

}  // namespace

Result<Row> bench_problem(const BenchParts& parts, const Problem& problem, const MeasureSettings& settings) {
  QUERN_TRY(validate(problem));
  const ContextParts& live = parts_of(*parts.context);
  Row row{.problem = problem, .default_config = live.kernels.default_config(problem, parts.context->target())};
  const Choice choice = choose(live, problem, row.default_config);
  row.config = choice.config;
  row.provenance = choice.provenance;
  row.bytes = weight_bytes(problem);

  QUERN_TRY(parts.measurer->prepare(problem, {.rotate = true}));
  MeasureSettings lenient = settings;
  lenient.keep_spilling = true;
  QUERN_ASSIGN(const Measurement measured, parts.measurer->measure(row.config, lenient));
  row.verdict = measured.verdict;
  row.reason = measured.reason;
  if (measured.verdict != Verdict::ok) return row;
  row.us = measured.us;
  row.spread = measured.spread;
  row.us_l2_warm = measured.us_l2_warm;
  row.unstable = measured.unstable;

  bool default_ok = row.config == row.default_config;
  if (!default_ok) {
    QUERN_ASSIGN(const Measurement other, parts.measurer->measure(row.default_config, lenient));
    default_ok = other.verdict == Verdict::ok;
  }
  QUERN_TRY(time_beside_default(parts, lenient, default_ok, row));
  QUERN_ASSIGN(row.read_ceiling_us, parts.measurer->read_ceiling(row.bytes));
  QUERN_ASSIGN(const KernelSource source, live.kernels.render(problem, parts.context->target(), row.config));
  row.workspace_bytes = source.workspace_bytes;
  if (parts.cublas != nullptr && problem.batch2 * problem.batch3 == 1) QUERN_TRY(time_cublas(parts, problem, settings, row));
  return row;
}

}  // namespace quern::bench

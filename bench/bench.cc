#include "bench/bench.h"

#include <algorithm>

#include "generator/family.h"
#include "quern/version.h"
#include "runtime/lookup.h"
#include "tuner/bench_data.h"

namespace quern::bench {
namespace {

struct Choice {
  Config config;
  Provenance provenance = Provenance::fallback;
  std::size_t given = 0;
};

// What Context::plan would try first.
Choice choose(const ContextParts& parts, const Problem& problem, const Config& fallback) {
  const auto found = look_up(*parts.store, problem, parts.device->info().identity, kGeneratorVersion);
  if (found.candidates.empty()) return {fallback, Provenance::fallback};
  return {found.candidates.front().config, found.candidates.front().provenance};
}

// The fastest stored measurement of a family, whoever won, else its default.
Choice best_of(const Family& family, const ContextParts& parts, const Problem& problem, const Target& target) {
  Choice best{family.space(problem, target).default_config(), Provenance::fallback};
  double us = 0;
  for (const auto& row : parts.store->measurements({to_string(problem), to_string(parts.device->info().identity), kGeneratorVersion})) {
    const Measurement& m = row.measurement;
    if (m.config.family != family.name() || m.verdict != Verdict::ok || row.compiler != parts.compiler->identity()) continue;
    if (us > 0 && m.us >= us) continue;
    best = {m.config, Provenance::exact};
    us = m.us;
  }
  return best;
}

// At least one: where no family answers, the config without a family says so when it is measured.
std::vector<Choice> choices(const BenchParts& parts, const Problem& problem, const Config& fallback) {
  const ContextParts& live = parts_of(*parts.context);
  std::vector<Choice> all;
  for (std::size_t i = 0; i < parts.configs.size(); ++i) {
    const Config& given = parts.configs[i];
    const Family* family = find_family(given.family);
    const bool supported = family != nullptr && family->supports(problem, parts.context->target());
    all.push_back({supported ? family->space(problem, parts.context->target()).completed(given) : given, Provenance::exact, i});
  }
  if (parts.every_family)
    for (const Family* family : families_for(problem, parts.context->target()))
      all.push_back(best_of(*family, live, problem, parts.context->target()));
  if (all.empty()) all.push_back(choose(live, problem, fallback));
  return all;
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

// Of the problem that is prepared.
Status measure_row(const BenchParts& parts, const Choice& choice, const MeasureSettings& settings, Row& row) {
  const ContextParts& live = parts_of(*parts.context);
  row.config = choice.config;
  row.provenance = choice.provenance;
  row.given = choice.given;
  row.bytes = weight_bytes(row.problem);
  QUERN_ASSIGN(const Measurement measured, parts.measurer->measure(row.config, settings));
  row.verdict = measured.verdict;
  row.reason = measured.reason;
  if (measured.verdict != Verdict::ok) return {};
  row.us = measured.us;
  row.spread = measured.spread;
  row.us_l2_warm = measured.us_l2_warm;
  row.unstable = measured.unstable;

  bool default_ok = row.config == row.default_config;
  if (!default_ok) {
    QUERN_ASSIGN(const Measurement other, parts.measurer->measure(row.default_config, settings));
    default_ok = other.verdict == Verdict::ok;
  }
  QUERN_TRY(time_beside_default(parts, settings, default_ok, row));
  if (row.bytes > 0) {
    QUERN_ASSIGN(row.read_ceiling_us, parts.measurer->read_ceiling(row.bytes));
    QUERN_ASSIGN(row.plain_read_us, parts.measurer->plain_read(row.bytes));
  }
  QUERN_ASSIGN(const KernelSource source, live.kernels.render(row.problem, parts.context->target(), row.config));
  row.workspace_bytes = source.workspace_bytes;
  return {};
}

// The quantizer that belongs to a product of codes; nothing where no family supports it, or where it fails its check.
Status time_quantizer(const BenchParts& parts, const MeasureSettings& settings, Row& row) {
  const Problem quantizer = quantizer_of(row.problem);
  if (!parts.context->supports(quantizer)) return {};
  const ContextParts& live = parts_of(*parts.context);
  const Choice choice = choose(live, quantizer, live.kernels.default_config(quantizer, parts.context->target()));
  QUERN_TRY(parts.measurer->prepare(quantizer, {.rotate = true}));
  QUERN_ASSIGN(const Measurement measured, parts.measurer->measure(choice.config, settings));
  if (measured.verdict != Verdict::ok) return {};
  row.quantize_us = measured.us;
  row.quantize_config = choice.config;
  return {};
}

// What every row of the problem shares. Prepares other problems.
Status measure_beside(const BenchParts& parts, const Problem& problem, const MeasureSettings& settings, std::vector<Row>& rows) {
  const auto first = std::find_if(rows.begin(), rows.end(), [](const Row& row) { return row.verdict == Verdict::ok; });
  if (first == rows.end()) return {};
  if (parts.cublas != nullptr && problem.batch2 * problem.batch3 == 1) QUERN_TRY(time_cublas(parts, problem, settings, *first));
  if (has_code_input(problem.op)) QUERN_TRY(time_quantizer(parts, settings, *first));
  for (auto& row : rows)
    if (row.verdict == Verdict::ok) {
      row.bf16_us = first->bf16_us, row.cast_gemm_us = first->cast_gemm_us;
      row.quantize_us = first->quantize_us, row.quantize_config = first->quantize_config;
    }
  return {};
}

}  // namespace

Problem quantizer_of(const Problem& product) {
  Problem p{.op = Op::quantize_rows_int8, .type = WeightType::i8, .m = product.m, .n = 0, .k = product.k, .x_type = DType::bf16};
  if (product.op == Op::w4a4) {
    constexpr std::int64_t kLargestBlock = 1024;
    p.op = Op::rpbh_quantize, p.type = WeightType::code4;
    p.block = std::min(product.k & -product.k, kLargestBlock);  // the largest power of two that divides K
  }
  return canonical(p);
}

Result<std::vector<Row>> bench_problem(const BenchParts& parts, const Problem& problem, const MeasureSettings& settings) {
  QUERN_TRY(validate(problem));
  const Config fallback = parts_of(*parts.context).kernels.default_config(problem, parts.context->target());
  if (const Status supported = parts.context->supports(problem); !supported) {
    Row row{.problem = problem};
    row.verdict = Verdict::rejected, row.reason = supported.error().message;
    return std::vector<Row>{std::move(row)};
  }
  MeasureSettings lenient = settings;
  lenient.keep_spilling = true;
  QUERN_TRY(parts.measurer->prepare(problem, {.rotate = true, .sorted_codebooks = true}));
  std::vector<Row> rows;
  for (const Choice& choice : choices(parts, problem, fallback)) {
    Row row{.problem = problem, .default_config = fallback};
    QUERN_TRY(measure_row(parts, choice, lenient, row));
    rows.push_back(std::move(row));
  }
  QUERN_TRY(measure_beside(parts, problem, settings, rows));
  return rows;
}

}  // namespace quern::bench

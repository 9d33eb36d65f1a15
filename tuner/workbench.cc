#include "tuner/workbench.h"

#include <algorithm>
#include <cmath>

#include "runtime/artifact.h"
#include "tuner/read_ceiling.h"
#include "tuner/static_check.h"

namespace quern {
namespace {

constexpr std::int64_t kWarmOps = 8;  // launches per replay of the L2-warm figure
constexpr int kCompareRounds = 3;
constexpr double kDriftLimit = 0.1;  // between repeated medians of one kernel

double relative_spread(const Timing& t) { return t.us_median > 0 ? (t.us_p90 - t.us_p10) / t.us_median : 0; }

Error nothing_prepared() { return Error{ErrorCode::kInvalidArgument, "measure: nothing was prepared, needed a problem", {}}; }

}  // namespace

Status Workbench::prepare(const Problem& problem, const DataOptions& options) {
  if (lost_) return Error{ErrorCode::kDeviceLost, tools_.device->info().spec + ": the device context was lost", {}};
  if (data_ && data_->problem() == problem && data_->options() == options) return {};
  data_.reset();  // its memory may be needed for the new one
  QUERN_TRY(validate(problem));
  QUERN_ASSIGN(auto data, BenchData::make(problem, *tools_.device, options));
  reference_ = make_reference(*data);
  data_ = std::move(data);
  return {};
}

Status Workbench::disqualify(const Error& error, Measurement& measurement) {
  measurement.reason = error.message;
  switch (error.code) {
    case ErrorCode::kDeviceLost:
      lost_ = true;
      measurement.verdict = Verdict::launch_failed;
      return {};
    case ErrorCode::kLaunchFailed:
      measurement.verdict = Verdict::launch_failed;
      return {};
    case ErrorCode::kCompileFailed:
      measurement.verdict = Verdict::compile_failed;
      return {};
    case ErrorCode::kTimeout:
      measurement.verdict = Verdict::timed_out;
      return {};
    case ErrorCode::kUnsupported:
    case ErrorCode::kInvalidArgument:
      measurement.verdict = Verdict::rejected;
      return {};
    default:
      return error;
  }
}

// Null, with the verdict set, when the candidate is out.
Result<std::unique_ptr<LoadedKernel>> Workbench::load(const Config& config, bool keep_spilling, Measurement& measurement) {
  auto out = [&](const Error& error) -> Result<std::unique_ptr<LoadedKernel>> {
    QUERN_TRY(disqualify(error, measurement));
    return std::unique_ptr<LoadedKernel>();
  };
  const Target target = compile_target(*tools_.compiler, tools_.device->info().target);
  auto source = tools_.render(data_->problem(), target, config);
  if (!source) return out(source.error());
  measurement.artifact = artifact_key(*source, target, tools_.compiler->identity()).key.hex();
  auto binary = get_or_compile(*tools_.store, *tools_.compiler, *source, target);
  if (!binary) return out(binary.error());
  if (const std::string fault = static_fault(*source, binary->usage, tools_.device->info(), keep_spilling); !fault.empty())
    return out(Error{ErrorCode::kUnsupported, fault, {}});
  auto kernel = LoadedKernel::load(*tools_.device, *source, *binary);
  if (kernel) return kernel;
  if (kernel.error().code != ErrorCode::kEnvironment) return out(kernel.error());
  measurement.verdict = Verdict::out_of_memory;
  measurement.reason = kernel.error().message;
  return std::unique_ptr<LoadedKernel>();
}

Result<Measurement> Workbench::measure(const Config& config, const MeasureSettings& settings) {
  if (lost_) return Error{ErrorCode::kDeviceLost, tools_.device->info().spec + ": the device context was lost", {}};
  if (!data_) return nothing_prepared();
  Measurement m;
  m.config = config;
  QUERN_ASSIGN(auto kernel, load(config, settings.keep_spilling, m));
  if (!kernel) return m;
  // A kernel has to meet the class it states, even where the problem would be content with less.
  const Accuracy bar = std::min(kernel->source().accuracy, data_->problem().accuracy);
  auto verification = verify(*kernel, *data_, reference_, bar);
  if (!verification) {
    QUERN_TRY(disqualify(verification.error(), m));
    return m;
  }
  m.verdict = verification->verdict;
  m.reason = verification->reason;
  m.nmse = verification->nmse;
  m.max_error = verification->max_error;
  if (m.verdict != Verdict::ok || !settings.time || kernel->source().steps.empty()) return m;
  if (auto timed = time_kernel(*kernel, settings, m); !timed) QUERN_TRY(disqualify(timed.error(), m));
  return m;
}

std::vector<std::vector<Launch>> Workbench::rotating(const LoadedKernel& kernel) const {
  std::vector<std::vector<Launch>> ops;
  // An op without weights has nothing to rotate. A replay of a single launch would mostly time the replay.
  const bool repeat = data_->weights().empty() && tools_.device->info().target.kind == Target::Kind::cuda;
  if (repeat) return std::vector<std::vector<Launch>>(kWarmOps, kernel.launches(data_->args(0, kernel.workspace())));
  for (std::int64_t copy = 0; copy < data_->copies(); ++copy) ops.push_back(kernel.launches(data_->args(copy, kernel.workspace())));
  return ops;
}

Status Workbench::time_kernel(const LoadedKernel& kernel, const MeasureSettings& settings, Measurement& m) {
  const auto ops = rotating(kernel);
  double least = 0, most = 0;
  // A host time is of use only to compare within a run, and a launch there may take a second: no repeats, and one warm op.
  const bool host = tools_.device->info().target.kind == Target::Kind::host;
  if (settings.hopeless_us > 0) {
    QUERN_ASSIGN(const Timing first, tools_.device->time(std::span(ops).first(1), 1, 0));
    if (first.us_median > settings.hopeless_us) {
      m.us = m.us_l2_warm = first.us_median;
      m.spread = relative_spread(first);
      return {};
    }
  }
  for (int attempt = 0; attempt <= (host ? 0 : settings.repeats); ++attempt) {
    QUERN_ASSIGN(const Timing t, tools_.device->time(ops, settings.max_samples, settings.max_seconds));
    const double spread = relative_spread(t);
    if (attempt == 0 || spread < m.spread) m.us = t.us_median, m.spread = spread;
    least = attempt == 0 ? t.us_median : std::min(least, t.us_median);
    most = std::max(most, t.us_median);
    if (m.spread <= settings.spread_limit) break;
  }
  m.unstable = m.spread > settings.spread_limit || most > least * (1 + kDriftLimit);
  const std::vector<std::vector<Launch>> warm(static_cast<std::size_t>(host ? 1 : kWarmOps), ops.front());
  QUERN_ASSIGN(const Timing t, tools_.device->time(warm, settings.max_samples, settings.max_seconds / 4));
  m.us_l2_warm = t.us_median;
  return {};
}

Result<std::vector<Timing>> Workbench::compare(const std::vector<Config>& configs, const MeasureSettings& settings) {
  if (!data_) return nothing_prepared();
  std::vector<std::unique_ptr<LoadedKernel>> kernels;
  for (const Config& config : configs) {
    Measurement m;
    QUERN_ASSIGN(auto kernel, load(config, true, m));
    if (!kernel) return Error{ErrorCode::kLaunchFailed, to_string(config) + ": " + m.reason, {}};
    kernels.push_back(std::move(kernel));
  }
  std::vector<std::vector<Timing>> rounds(configs.size());
  const bool host = tools_.device->info().target.kind == Target::Kind::host;
  for (int round = 0; round < (host ? 1 : kCompareRounds); ++round)
    for (std::size_t i = 0; i < kernels.size(); ++i) {
      QUERN_ASSIGN(const Timing t, tools_.device->time(rotating(*kernels[i]), settings.max_samples, settings.max_seconds));
      rounds[i].push_back(t);
    }
  std::vector<Timing> out;
  for (auto& r : rounds) {
    std::sort(r.begin(), r.end(), [](const Timing& a, const Timing& b) { return a.us_median < b.us_median; });
    out.push_back(r[r.size() / 2]);
  }
  return out;
}

Result<std::optional<double>> Workbench::read_ceiling(std::int64_t bytes) { return read(bytes, ReadLaunches::overlapping); }

Result<std::optional<double>> Workbench::plain_read(std::int64_t bytes) { return read(bytes, ReadLaunches::apart); }

Result<std::optional<double>> Workbench::read(std::int64_t bytes, ReadLaunches launches) {
  if (tools_.device->info().target.kind == Target::Kind::host) return std::optional<double>();
  const std::int64_t rounded = rounded_read_bytes(bytes);
  const std::pair key(rounded, launches);
  if (const auto known = ceilings_.find(key); known != ceilings_.end()) return std::optional<double>(known->second);
  QUERN_ASSIGN(const double us, measure_read_ceiling(*tools_.device, *tools_.compiler, *tools_.store, rounded, launches));
  ceilings_[key] = us;
  return std::optional<double>(us);
}

}  // namespace quern

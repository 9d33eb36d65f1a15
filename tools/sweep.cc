// quern sweep: every op, type, layout and family against double precision.
#include "tuner/sweep.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <thread>

#include "generator/source_text.h"
#include "runtime/context_parts.h"
#include "tools/command.h"
#include "tools/interrupt.h"
#include "tools/json_output.h"
#include "tools/problem_source.h"
#include "tools/progress.h"
#include "tools/table.h"
#include "tuner/gguf.h"
#include "tuner/verify.h"
#include "tuner/worker.h"

namespace quern::tools {
namespace {

constexpr unsigned kMostWorkers = 16;  // unless asked for
// A check is right or wrong, not fast: under a sanitizer, on a busy machine, it may take long, and so may the start of sixteen workers.
constexpr double kCandidateSeconds = 300;
constexpr double kStartSeconds = 300;

struct Options {
  std::string device;
  std::vector<std::string> ops, types, layouts, families;
  std::string model;
  std::int64_t rows = 24;
  std::uint64_t seed = 1;
  int every = 1;
  unsigned workers = 0;  // 0: one per core, at most kMostWorkers
  bool quick = false;
  bool full = false;
  bool json = false;
  std::string junit;
};

// Workers on one device: what is checked is right or wrong, not fast, so they may share it.
Result<std::vector<std::unique_ptr<Worker>>> start_workers(const Environment& environment, const std::string& spec, std::size_t cases,
                                                           unsigned asked) {
  const unsigned wanted = asked != 0 ? asked : std::min(std::max(1u, std::thread::hardware_concurrency()), kMostWorkers);
  const std::size_t count = std::clamp<std::size_t>(cases, 1, wanted);
  std::vector<std::unique_ptr<Worker>> workers;
  for (std::size_t i = 0; i < count; ++i)
    workers.push_back(std::make_unique<Worker>(WorkerOptions{.executable = environment.executable,
                                                             .arguments = {kWorkerCommand, "--device", spec},
                                                             .start_seconds = kStartSeconds,
                                                             .candidate_seconds = kCandidateSeconds,
                                                             .stop = &interrupted()}));
  QUERN_TRY(workers.front()->device());
  return workers;
}

SweepOptions sweep_options(const Options& options) {
  SweepOptions sweep;
  sweep.full = options.full;
  sweep.seed = options.seed;
  sweep.every = options.every;
  sweep.families = options.families;
  for (const auto& name : options.ops) sweep.ops.push_back(*op_from_name(name));
  for (const auto& name : options.layouts) sweep.layouts.push_back(*layout_from_name(name));
  for (const auto& name : options.types)
    if (name != "all") sweep.types.push_back(*weight_type_from_name(name));
  return sweep;
}

Result<std::vector<SweepCase>> make_cases(const Options& options, const Target& target) {
  if (options.model.empty()) return sweep_cases(sweep_options(options), target);
  QUERN_ASSIGN(const GgufFile file, GgufFile::open(options.model));
  return sweep_model_cases(options.model, group_matrices(file.contents(), has_decoder), sweep_options(options), target, options.rows);
}

const char* verdict_name(const SweepResult& r) { return r.outcome == SweepResult::Outcome::skipped ? "skipped" : to_string(r.verdict); }

Json case_json(const SweepResult& r) {
  const Problem& p = r.at.problem;
  Json one{{"op", to_string(p.op)},
           {"type", to_string(p.type)},
           {"layout", to_string(p.layout)},
           {"family", r.at.config.family},
           {"config", to_string(r.at.config)},
           {"m", p.m},
           {"n", p.n},
           {"k", p.k},
           {"x_dtype", to_string(p.x_type)},
           {"y_dtype", to_string(p.y_type)},
           {"bias", p.bias},
           {"batch", {p.batch2, p.batch3}},
           {"ratio", {p.ratio2, p.ratio3}},
           {"x_transposed", p.x_transposed},
           {"scale", p.scale},
           {"experts", p.experts},
           {"used", p.used},
           {"x_broadcast", p.x_broadcast},
           {"k_major", p.k_major},
           {"fused", p.fused},
           {"block", p.block},
           {"class", to_string(p.accuracy)},
           {"nmse", r.nmse},
           {"max_error", r.max_error},
           {"verdict", verdict_name(r)},
           {"reason", r.reason}};
  if (!r.at.data.tensor.empty()) one.update({{"tensor", r.at.data.tensor}, {"first_row", r.at.data.first_row}});
  return one;
}

// One row per op, type and layout; columns count its cases.
std::string summary(const std::vector<SweepResult>& results, int columns) {
  struct Counts {
    SweepTotals totals;
    double worst_nmse = 0;
  };
  std::map<std::tuple<Op, WeightType, Layout>, Counts> rows;
  for (const auto& r : results) {
    auto& counts = rows[{r.at.problem.op, r.at.problem.type, r.at.problem.layout}];
    auto& one = r.outcome == SweepResult::Outcome::passed   ? counts.totals.passed
                : r.outcome == SweepResult::Outcome::failed ? counts.totals.failed
                                                            : counts.totals.skipped;
    ++one;
    if (r.outcome == SweepResult::Outcome::passed) counts.worst_nmse = std::max(counts.worst_nmse, r.nmse);
  }
  using Align = Table::Align;
  Table table({{"op"},
               {"type"},
               {"layout"},
               {"passed", Align::right},
               {"failed", Align::right},
               {"skipped", Align::right},
               {"worst nmse", Align::right}});
  for (const auto& [key, counts] : rows) {
    const auto& [op, type, layout] = key;
    table.add({std::string(to_string(op)), std::string(to_string(type)), std::string(to_string(layout)),
               std::to_string(counts.totals.passed), std::to_string(counts.totals.failed), std::to_string(counts.totals.skipped),
               fmt::format("{:.1e}", counts.worst_nmse)});
  }
  return table.render(columns);
}

// One row per accuracy class of what passed: how near its worst cases came to its bars (tuner/verify.h). Only f32 outputs without a bias:
// in the others the rounding of the output, which the bars do not count, is most of the error.
std::string class_summary(const std::vector<SweepResult>& results, int columns) {
  struct Worst {
    std::int64_t cases = 0;
    double nmse = 0, element = 0;
  };
  std::map<Accuracy, Worst> rows;
  for (const auto& r : results) {
    const Problem& p = r.at.problem;
    if (r.outcome != SweepResult::Outcome::passed || p.y_type != DType::f32 || p.bias) continue;
    Worst& worst = rows[p.accuracy];
    ++worst.cases;
    worst.nmse = std::max(worst.nmse, r.nmse);
    worst.element = std::max(worst.element, r.max_error);
  }
  using Align = Table::Align;
  Table table({{"class"},
               {"cases", Align::right},
               {"worst nmse", Align::right},
               {"bar", Align::right},
               {"worst element", Align::right},
               {"bar", Align::right}});
  for (const auto& [accuracy, worst] : rows) {
    const AccuracyBars bars = accuracy_bars(accuracy);
    table.add({std::string(to_string(accuracy)), std::to_string(worst.cases), fmt::format("{:.1e}", worst.nmse),
               fmt::format("{:.0e}", bars.nmse), fmt::format("{:.1e}", worst.element), fmt::format("{:.0e}", bars.worst)});
  }
  return table.render(columns) + "f32 outputs without a bias; an element's error is relative to its sum of |w x|\n";
}

std::string failure_text(const SweepResult& r) {
  return fmt::format("FAILED {} with {}: {}: {}", to_string(r.at.problem), to_string(r.at.config), to_string(r.verdict), r.reason);
}

Status write_junit(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush()) return Error{ErrorCode::kEnvironment, "cannot write " + path + ": " + std::strerror(errno), {}};
  return {};
}

// A sweep takes minutes to hours: whether its report can be written is known before.
Status check_junit(const std::string& path) {
  if (path.empty() || std::ofstream(path, std::ios::binary | std::ios::app)) return {};
  return Error{ErrorCode::kEnvironment, "cannot write " + path + ": " + std::strerror(errno), {}};
}

int report(const std::vector<SweepResult>& results, const DeviceInfo& device, const Options& options, int columns) {
  const SweepTotals sum = totals(results);
  if (options.json) {
    Json object{{"device", to_string(device.identity)},
                {"seed", options.seed},
                {"passed", sum.passed},
                {"failed", sum.failed},
                {"skipped", sum.skipped},
                {"cases", Json::array()}};
    for (const auto& r : results) object["cases"].push_back(case_json(r));
    print_json(object);
  } else {
    fmt::print("{}, seed {}\n{}\n{}", to_string(device.identity), options.seed, summary(results, columns), class_summary(results, columns));
    fmt::print("{} passed, {} failed, {} skipped\n", sum.passed, sum.failed, sum.skipped);
  }
  if (!options.junit.empty())
    if (const auto written = write_junit(options.junit, sweep_junit(results, "quern sweep " + device.spec)); !written)
      return fail(written.error());
  if (interrupted().load()) return fail(kFailedCheck, "interrupted");
  if (sum.passed + sum.failed == 0) return fail(kFailedCheck, "nothing was checked: no family answers what was asked for");
  return sum.failed == 0 ? kDone : kFailedCheck;
}

int run_sweep(const Environment& environment, const Options& options) {
  const std::string wanted = options.device.empty() ? environment.context.device : options.device;
  DeviceInfo info;
  {
    auto device = open_device(wanted, library_paths(environment.context));
    if (!device) return fail(device.error());
    info = (*device)->info();
  }
  const auto cases = make_cases(options, info.target);
  if (!cases) return fail(cases.error());
  if (const auto junit = check_junit(options.junit); !junit) return fail(junit.error());
  const auto workers = start_workers(environment, info.spec, cases->size(), options.workers);
  if (!workers) return fail(workers.error());
  std::vector<Measurer*> measurers;
  for (const auto& worker : *workers) measurers.push_back(worker.get());

  Progress progress("sweep", stderr, environment.progress_bar, environment.progress_columns);
  std::size_t done = 0;
  const auto results = sweep(*cases, measurers, &interrupted(), [&](const SweepResult& r) {
    if (r.outcome == SweepResult::Outcome::failed) progress.note(failure_text(r));
    progress.update(static_cast<double>(++done), static_cast<double>(cases->size()), short_text(r.at.problem));
  });
  progress.clear();
  return report(results, info, options, environment.columns);
}

}  // namespace

void add_sweep(CLI::App& app, Session& session) {
  auto* sub = app.add_subcommand("sweep", "Check every kernel against double precision");
  auto options = std::make_shared<Options>();
  auto types = type_names();
  types.emplace_back("all");
  sub->add_option("--device", options->device, "auto, host or cuda:N")->check(not_empty);
  sub->add_option("--op", options->ops, "Ops (default: all)")->delimiter(',')->check(CLI::IsMember(op_names()));
  sub->add_option("--type", options->types, "Weight types (default: all)")->delimiter(',')->check(CLI::IsMember(types));
  sub->add_option("--layout", options->layouts, "Weight layouts (default: both)")->delimiter(',')->check(CLI::IsMember(layout_names()));
  std::vector<std::string> names;
  for (const Family* family : families()) names.emplace_back(family->name());
  sub->add_option("--family", options->families, "Kernel families (default: all)")->delimiter(',')->check(CLI::IsMember(names));
  sub->add_option("--model", options->model, "Check on this model's own tensors, rows of them sampled")->check(CLI::ExistingFile);
  sub->add_option("--rows", options->rows, "Rows of each tensor, with --model")->check(CLI::Range(1, 1 << 20))->capture_default_str();
  sub->add_option("--seed", options->seed, "Of inputs and of sampled rows")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 62))
      ->capture_default_str();
  auto* quick = sub->add_flag("--quick", options->quick, "Few shapes: minutes on the host target (the default)");
  sub->add_flag("--full", options->full, "Many shapes")->excludes(quick);
  sub->add_option("--every", options->every, "Of each op, type, layout and family, every Nth case")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  sub->add_option("--workers", options->workers, "Processes that check at once (default: one per core, at most 16)")
      ->check(CLI::Range(1, 256));
  sub->add_flag("--json", options->json, "One JSON object on stdout");
  sub->add_option("--junit", options->junit, "Also write a JUnit report to this file")->check(not_empty);
  sub->callback([&session, options] { session.exit_code = run_sweep(session.environment, *options); });
}

}  // namespace quern::tools

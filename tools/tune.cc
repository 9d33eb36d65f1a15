// quern tune: find the fastest kernel for each problem, and store it.
#include "tuner/tune.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "runtime/context_parts.h"
#include "tools/budget.h"
#include "tools/command.h"
#include "tools/counting_compiler.h"
#include "tools/interrupt.h"
#include "tools/json_output.h"
#include "tools/problem_source.h"
#include "tools/progress.h"
#include "tools/table.h"
#include "tuner/problems_json.h"
#include "tuner/worker.h"

namespace quern::tools {
namespace {

struct Options {
  ProblemSelection selection;
  std::vector<std::string> devices;  // empty: QUERN_DEVICE, else auto
  std::optional<std::string> budget;
  std::string strategy = "greedy";
  std::uint64_t seed = 1;
  bool list = false;
  bool json = false;
};

// One device with what measures and compiles for it.
struct Bench {
  std::string spec;
  std::unique_ptr<Worker> worker;
  std::unique_ptr<CountingCompiler> compiler;
};

Result<Bench> open_bench(const Environment& environment, const std::string& wanted) {
  const LibraryPaths paths = library_paths(environment.context);
  Bench bench{.spec = wanted};
  if (wanted == "auto") {
    QUERN_ASSIGN(const auto device, open_device(wanted, paths));
    bench.spec = device->info().spec;
  }
  QUERN_ASSIGN(auto compiler, bench.spec == "host" ? open_host_compiler(paths) : open_nvrtc(paths));
  bench.compiler = std::make_unique<CountingCompiler>(std::move(compiler));
  bench.worker = std::make_unique<Worker>(
      WorkerOptions{.executable = environment.executable, .arguments = {kWorkerCommand, "--device", bench.spec}, .stop = &interrupted()});
  QUERN_TRY(bench.worker->device());
  return bench;
}

// The device as people and --json name it: with several of a kind, the first.
std::string identity_of(std::vector<Bench>& benches) {
  const auto info = benches.front().worker->device();
  return info ? to_string(info->identity) : benches.front().spec;
}

Json result_json(const ProblemResult& r) {
  Json reasons = Json::object();
  for (const auto& [reason, count] : r.reasons) reasons[reason] = count;
  const bool won = r.winner.has_value();
  return {{"problem", to_string(r.problem)},
          {"device", r.device},
          {"winner", won ? Json(to_string(*r.winner)) : Json(nullptr)},
          {"us", won ? Json(r.us) : Json(nullptr)},
          {"us_l2_warm", won ? Json(r.us_l2_warm) : Json(nullptr)},
          {"spread", won ? Json(r.spread) : Json(nullptr)},
          {"nmse", won ? Json(r.nmse) : Json(nullptr)},
          {"unstable", r.unstable},
          {"read_ceiling_us", json_or_null(r.read_ceiling_us)},
          {"candidates", r.candidates},
          {"tried", r.tried},
          {"failed", r.failed},
          {"skipped", r.skipped},
          {"reasons", reasons},
          {"from_store", r.from_store},
          {"seconds", r.seconds},
          {"error", r.error}};
}

std::string share_of_ceiling(const ProblemResult& r) {
  if (!r.read_ceiling_us || r.us <= 0) return "-";
  return fmt::format("{:.0f}%", *r.read_ceiling_us / r.us * 100);
}

void print_results(const std::vector<ProblemResult>& results, std::uint64_t compiled, int columns) {
  using Align = Table::Align;
  Table table({{"problem", Align::left, true},
               {"us", Align::right},
               {"ceiling", Align::right},
               {"tried", Align::right},
               {"failed", Align::right},
               {"skipped", Align::right},
               {"winner", Align::left, true}});
  std::int64_t tried = 0, from_store = 0;
  for (const auto& r : results) {
    tried += r.tried;
    from_store += r.from_store ? 1 : 0;
    const std::string winner = r.winner ? to_string(*r.winner) : "none: " + r.error;
    table.add({short_text(r.problem), r.winner ? human_us(r.us) + (r.unstable ? "?" : "") : "-", share_of_ceiling(r),
               std::to_string(r.tried), std::to_string(r.failed), std::to_string(r.skipped), winner});
  }
  fmt::print("{}", table.render(columns));
  fmt::print("{} problems, {} answered by the store; {} candidates measured, {} kernels compiled\n", results.size(), from_store, tried,
             compiled);
  if (std::any_of(results.begin(), results.end(), [](const ProblemResult& r) { return r.unstable; }))
    fmt::print("?: these times scattered; something else was using the device\n");
}

void show(Progress& progress, const TuneProgress& p) {
  // Problems weigh alike; within one, its candidates do.
  const double within = p.candidates > 0 ? static_cast<double>(p.done) / static_cast<double>(p.candidates) : 0;
  const double done = static_cast<double>(p.problems_done) + std::min(within, 1.0);
  std::string label = short_text(p.problem) + fmt::format(" {}/{}", p.done, p.candidates);
  if (p.best_us > 0) label += " best " + human_us(p.best_us) + " us";
  progress.update(done, static_cast<double>(p.problems), label, p.eta_seconds);
}

int report(const std::vector<ProblemResult>& results, std::vector<Bench>& benches, const Options& options, int columns) {
  std::uint64_t compiled = 0;
  for (const auto& bench : benches) compiled += bench.compiler->count();
  if (options.json) {
    Json object{{"device", identity_of(benches)}, {"compiled", compiled}, {"problems", Json::array()}};
    for (const auto& r : results) object["problems"].push_back(result_json(r));
    print_json(object);
  } else {
    fmt::print("{}\n", identity_of(benches));
    if (benches.front().spec == "host") fmt::print("times are this machine's CPU: they compare kernels here and say nothing about a GPU\n");
    print_results(results, compiled, columns);
  }
  const auto lacks_winner = [](const ProblemResult& r) { return !r.winner; };
  const auto unanswered = std::count_if(results.begin(), results.end(), lacks_winner);
  if (interrupted().load()) return fail(kFailedCheck, "interrupted: what was measured is stored, run the same command again for the rest");
  const auto lost = std::count_if(results.begin(), results.end(), [](const ProblemResult& r) { return r.winner && !r.kept; });
  if (unanswered == 0 && lost > 0)
    return fail(kNoEnvironment, fmt::format("{} of {} winners could not be kept in the store", lost, results.size()));
  if (unanswered == 0) return kDone;
  const auto& first = *std::find_if(results.begin(), results.end(), lacks_winner);
  return fail(kFailedCheck, fmt::format("{} of {} problems have no working kernel; the first: {}: {}", unanswered, results.size(),
                                        short_text(first.problem), first.error));
}

Result<TuneOptions> tune_options(const Options& options) {
  TuneOptions tuning;
  tuning.strategy = *strategy_from_name(options.strategy);
  tuning.seed = options.seed;
  tuning.stop = &interrupted();
  if (!options.budget) return tuning;
  QUERN_ASSIGN(const Budget budget, parse_budget(*options.budget));
  tuning.budget_seconds = budget.seconds.value_or(0);
  tuning.budget_candidates = budget.candidates.value_or(0);
  return tuning;
}

int run_tune(const Environment& environment, const Options& options) {
  const auto tuning = tune_options(options);
  if (!tuning) return fail(tuning.error());
  // Two workers on one device would time each other.
  for (const auto& spec : options.devices)
    if (std::count(options.devices.begin(), options.devices.end(), spec) > 1)
      return fail(kUsage, "--device: '" + spec + "' appears twice, needed different devices");
  const auto selected = select_problems(options.selection);
  if (!selected) return fail(selected.error());
  for (const auto& note : selected->notes) remark(note);
  if (options.list) {
    fmt::print("{}", problems_to_json(selected->problems));
    return kDone;
  }

  // Closed after the workers are gone: the last one out merges the log into the store's file.
  const auto store = cache::Store::open(store_options(environment.context));
  std::vector<Bench> benches;
  for (const auto& spec : options.devices.empty() ? std::vector<std::string>{environment.context.device} : options.devices) {
    auto bench = open_bench(environment, spec);
    if (!bench) return fail(bench.error());
    benches.push_back(std::move(*bench));
  }
  std::vector<TuneDevice> devices;
  for (const auto& bench : benches)
    devices.push_back({.spec = bench.spec, .measurer = bench.worker.get(), .compiler = bench.compiler.get()});

  Progress progress("tune", stderr, environment.progress_bar, environment.progress_columns);
  const auto results = tune(selected->problems, devices, *store, *tuning, [&](const TuneProgress& p) { show(progress, p); });
  progress.clear();
  return report(results, benches, options, environment.columns);
}

}  // namespace

void add_tune(CLI::App& app, Session& session) {
  auto* sub = app.add_subcommand("tune", "Find the fastest kernel for each problem of a model or a list, and store it");
  auto options = std::make_shared<Options>();
  add_selection(*sub, options->selection);
  sub->add_option("--device", options->devices, "auto, host, cuda:N, or several GPUs as cuda:0,cuda:1")->delimiter(',');
  sub->add_option("--budget", options->budget, "Time (90s, 10m, 1.5h) or candidates per problem (200); default: none");
  sub->add_option("--strategy", options->strategy, "Search strategy")
      ->check(CLI::IsMember({"greedy", "exhaustive", "random"}))
      ->capture_default_str();
  sub->add_option("--seed", options->seed, "Of the search and of the inputs")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 62))
      ->capture_default_str();
  sub->add_flag("--list", options->list, "Print the problems as JSON, and tune nothing");
  sub->add_flag("--json", options->json, "One JSON object on stdout");
  sub->callback([&session, options] { session.exit_code = run_tune(session.environment, *options); });
}

}  // namespace quern::tools

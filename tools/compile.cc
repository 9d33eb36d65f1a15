// quern compile: fill the store for other machines. Needs NVRTC and no GPU.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "generator/family.h"
#include "runtime/artifact.h"
#include "runtime/context_parts.h"
#include "tools/architecture.h"
#include "tools/command.h"
#include "tools/interrupt.h"
#include "tools/json_output.h"
#include "tools/problem_source.h"
#include "tools/progress.h"
#include "tools/table.h"

namespace quern::tools {
namespace {

struct Options {
  ProblemSelection selection;
  std::vector<std::string> architectures;
  bool every_family = false;
  bool json = false;
};

struct Job {
  Problem problem;
  Target target;
  Config config;
  bool tuned = false;  // a winner in the store, rather than the default
};

struct Outcome {
  std::string key;
  bool compiled = false;  // here, rather than found in the store
  double compile_ms = 0;
  std::int64_t bytes = 0;
  ResourceUsage usage;
  std::int64_t shared_bytes = 0;  // of the step that takes most
  bool kept = true;               // in the store now, which is what compiling was for
  bool skipped = false;           // interrupted before it was made
  std::string error;              // empty when all went well
};

// The default config (with `every_family` that of every family that answers), and every winner that some device of this architecture has
// for the problem.
std::vector<Job> jobs_for(const std::vector<Problem>& problems, const std::vector<Target>& targets,
                          const std::vector<cache::Winner>& winners, bool every_family) {
  std::vector<Job> jobs;
  for (const auto& target : targets)
    for (const auto& problem : problems) {
      std::set<Config> seen{default_config(problem, target)};
      jobs.push_back({problem, target, *seen.begin(), false});
      if (every_family)
        for (const Family* family : families_for(problem, target))
          if (const Config config = family->space(problem, target).default_config(); seen.insert(config).second)
            jobs.push_back({problem, target, config, false});
      for (const auto& winner : winners)
        if (winner.key.problem == to_string(problem) && winner.key.device.find(" | " + to_string(target) + " | ") != std::string::npos &&
            seen.insert(winner.config).second)
          jobs.push_back({problem, target, winner.config, true});
    }
  return jobs;
}

Outcome compile_one(const Job& job, const Compiler& compiler, cache::Store& store) {
  Outcome outcome;
  if (job.config.family.empty()) return {.error = "no family supports it"};
  const auto source = render(job.problem, job.target, job.config);
  if (!source) return {.error = source.error().message};
  outcome.key = artifact_key(*source, job.target, compiler.identity()).key.hex();
  const auto binary = get_or_compile(store, compiler, *source, job.target, &outcome.compiled);
  if (!binary && binary.error().code == ErrorCode::kCancelled) return {.key = outcome.key, .skipped = true};
  if (!binary) return {.key = outcome.key, .error = binary.error().message};
  outcome.kept = store.find_artifact(artifact_key(*source, job.target, compiler.identity()).key).has_value();
  outcome.compile_ms = binary->compile_ms;
  outcome.bytes = static_cast<std::int64_t>(binary->bytes.size());
  outcome.usage = binary->usage;
  for (const LaunchStep& step : source->steps)
    outcome.shared_bytes = std::max(outcome.shared_bytes, binary->usage.static_shared_bytes + std::int64_t{step.shared_bytes});
  return outcome;
}

std::vector<Outcome> compile_all(const std::vector<Job>& jobs, const Compiler& compiler, cache::Store& store, Progress& progress) {
  std::vector<Outcome> outcomes(jobs.size());
  std::atomic<std::size_t> next{0}, done{0};
  std::mutex drawing;
  const auto work = [&] {
    for (std::size_t i = next++; i < jobs.size(); i = next++) {
      if (interrupted().load()) {
        outcomes[i].skipped = true;
        continue;
      }
      outcomes[i] = compile_one(jobs[i], compiler, store);
      const std::scoped_lock lock(drawing);
      progress.update(static_cast<double>(++done), static_cast<double>(jobs.size()),
                      to_string(jobs[i].target) + " " + short_text(jobs[i].problem));
    }
  };
  std::vector<std::jthread> threads;
  for (unsigned i = 0; i < std::min<std::size_t>(std::max(1u, std::thread::hardware_concurrency()), jobs.size()); ++i)
    threads.emplace_back(work);
  threads.clear();
  progress.clear();
  return outcomes;
}

struct Totals {
  std::size_t compiled = 0, found = 0, failed = 0, skipped = 0;
  std::int64_t bytes = 0;
  double compile_ms = 0;
};

Totals total_of(const std::vector<Outcome>& outcomes) {
  Totals totals;
  for (const auto& o : outcomes) {
    totals.bytes += o.bytes;
    if (o.skipped)
      ++totals.skipped;
    else if (!o.error.empty())
      ++totals.failed;
    else if (o.compiled)
      ++totals.compiled, totals.compile_ms += o.compile_ms;
    else
      ++totals.found;
  }
  return totals;
}

void print_json_report(const std::vector<Job>& jobs, const std::vector<Outcome>& outcomes, const std::string& compiler) {
  const Totals totals = total_of(outcomes);
  Json object{{"compiler", compiler},    {"compiled", totals.compiled}, {"from_store", totals.found},
              {"failed", totals.failed}, {"skipped", totals.skipped},   {"kernels", Json::array()}};
  for (std::size_t i = 0; i < jobs.size(); ++i)
    object["kernels"].push_back({{"problem", to_string(jobs[i].problem)},
                                 {"target", to_string(jobs[i].target)},
                                 {"config", to_string(jobs[i].config)},
                                 {"tuned", jobs[i].tuned},
                                 {"key", outcomes[i].key.empty() ? Json(nullptr) : Json(outcomes[i].key)},
                                 {"compiled", outcomes[i].compiled},
                                 {"bytes", outcomes[i].bytes},
                                 {"compile_ms", outcomes[i].compile_ms},
                                 {"registers", outcomes[i].usage.registers},
                                 {"shared_bytes", outcomes[i].shared_bytes},
                                 {"spill_bytes", outcomes[i].usage.spill_bytes},
                                 {"skipped", outcomes[i].skipped},
                                 {"error", outcomes[i].error}});
  print_json(object);
}

void print_report(const std::vector<Target>& targets, const std::vector<Job>& jobs, const std::vector<Outcome>& outcomes, int columns) {
  using Align = Table::Align;
  Table table({{"target"},
               {"kernels", Align::right},
               {"compiled", Align::right},
               {"from store", Align::right},
               {"failed", Align::right},
               {"skipped", Align::right},
               {"size", Align::right},
               {"compile time", Align::right}});
  for (const auto& target : targets) {
    std::vector<Outcome> of_target;
    for (std::size_t i = 0; i < jobs.size(); ++i)
      if (jobs[i].target == target) of_target.push_back(outcomes[i]);
    const Totals totals = total_of(of_target);
    table.add({to_string(target), std::to_string(of_target.size()), std::to_string(totals.compiled), std::to_string(totals.found),
               std::to_string(totals.failed), std::to_string(totals.skipped), human_bytes(static_cast<double>(totals.bytes)),
               human_seconds(totals.compile_ms / 1e3)});
  }
  fmt::print("{}", table.render(columns));
}

int run_compile(const Environment& environment, const Options& options) {
  std::vector<Target> targets;
  for (const auto& text : options.architectures) {
    const auto target = parse_architecture(text);
    if (!target) return fail(target.error());
    if (std::find(targets.begin(), targets.end(), *target) == targets.end()) targets.push_back(*target);
  }
  const auto selected = select_problems(options.selection);
  if (!selected) return fail(selected.error());
  const auto compiler = open_nvrtc(library_paths(environment.context));
  if (!compiler) return fail(compiler.error());
  for (const auto& target : targets)
    if (const auto supported = check_known(**compiler, target); !supported) return fail(supported.error());

  cache::StoreOptions stored = store_options(environment.context);
  stored.cancelled = [] { return interrupted().load(); };
  const auto store = cache::Store::open(stored);
  const auto jobs = jobs_for(selected->problems, targets, store->winners("", kGeneratorVersion), options.every_family);
  Progress progress("compile", stderr, environment.progress_bar, environment.progress_columns);
  const auto outcomes = compile_all(jobs, **compiler, *store, progress);
  if (options.json)
    print_json_report(jobs, outcomes, (*compiler)->identity());
  else
    print_report(targets, jobs, outcomes, environment.columns);
  for (std::size_t i = 0; i < jobs.size(); ++i)
    if (!outcomes[i].error.empty())
      return fail(kFailedCheck, fmt::format("{} of {} kernels failed; the first: {} for {}: {}", total_of(outcomes).failed, jobs.size(),
                                            short_text(jobs[i].problem), to_string(jobs[i].target), outcomes[i].error));
  if (const auto skipped = total_of(outcomes).skipped; skipped > 0)
    return fail(kFailedCheck, fmt::format("interrupted: {} of {} kernels were not compiled", skipped, jobs.size()));
  const auto lost = std::count_if(outcomes.begin(), outcomes.end(), [](const Outcome& o) { return !o.kept; });
  if (lost > 0) return fail(kNoEnvironment, fmt::format("{} of {} kernels could not be kept in the store", lost, jobs.size()));
  return kDone;
}

}  // namespace

void add_compile(CLI::App& app, Session& session) {
  auto* sub = app.add_subcommand("compile", "Fill the store for other machines; needs NVRTC and no GPU");
  auto options = std::make_shared<Options>();
  add_selection(*sub, options->selection);
  sub->add_option("--arch", options->architectures, "Architectures, e.g. sm_80,sm_90a")->delimiter(',')->required();
  sub->add_flag("--every-family", options->every_family, "The default of every family that answers, not only of the one that would run");
  sub->add_flag("--json", options->json, "One JSON object on stdout");
  sub->callback([&session, options] { session.exit_code = run_compile(session.environment, *options); });
}

}  // namespace quern::tools

// quern explain: what would run for a problem, from where, and why. Compiles nothing and runs nothing.
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>

#include "generator/family.h"
#include "quern/version.h"
#include "runtime/artifact.h"
#include "runtime/context_parts.h"
#include "runtime/lookup.h"
#include "tools/architecture.h"
#include "tools/command.h"
#include "tools/json_output.h"
#include "tools/problem_source.h"
#include "tools/table.h"

namespace quern::tools {
namespace {

struct Options {
  std::string problem;             // all of it, quoted, or its first word
  std::vector<std::string> words;  // the others
  std::string device;              // empty: QUERN_DEVICE, else auto
  std::string architecture;        // instead of a device
  bool json = false;
};

// Where the problem would run: a device, or an architecture without one.
struct Place {
  Target target;
  std::optional<DeviceIdentity> device;
  std::unique_ptr<Compiler> compiler;
  std::string no_compiler;
};

struct FamilyAnswer {
  std::string name;
  std::string refusal;  // empty when it applies
  std::uint64_t combinations = 0;
  std::size_t candidates = 0;
};

struct Explanation {
  Problem problem;
  Candidate chosen;
  std::string note;
  Accuracy accuracy = Accuracy::f32;
  std::vector<std::string> entries;  // of the launches, in order
  std::size_t workspace_bytes = 0;
  std::string key;  // of the binary; empty without a compiler, whose version is part of it
  bool stored = false;
  std::size_t measured = 0;
  std::vector<FamilyAnswer> families;
};

Result<Place> find_place(const Environment& environment, const Options& options) {
  const LibraryPaths paths = library_paths(environment.context);
  Place place;
  if (!options.architecture.empty()) {
    QUERN_ASSIGN(place.target, parse_architecture(options.architecture));
  } else {
    auto device = open_device(options.device.empty() ? environment.context.device : options.device, paths);
    if (!device) {
      if (device.error().code == ErrorCode::kEnvironment) device.error().message += "; name an architecture instead: --arch sm_90a";
      return std::move(device.error());
    }
    place.target = (*device)->info().target;
    place.device = (*device)->info().identity;
  }
  auto compiler = place.target.kind == Target::Kind::host ? open_host_compiler(paths) : open_nvrtc(paths);
  if (compiler) {
    place.compiler = std::move(*compiler);
    if (place.device)
      place.target = compile_target(*place.compiler, place.target);
    else
      QUERN_TRY(check_known(*place.compiler, place.target));
  } else {
    place.no_compiler = compiler.error().message;
  }
  return place;
}

std::vector<FamilyAnswer> ask_families(const Problem& problem, const Target& target) {
  std::vector<FamilyAnswer> answers;
  for (const Family* family : families()) {
    FamilyAnswer answer{.name = std::string(family->name())};
    if (const auto supported = family->supports(problem, target); !supported) {
      answer.refusal = supported.error().message;
      if (answer.refusal.starts_with(answer.name + ": ")) answer.refusal.erase(0, answer.name.size() + 2);
    } else {
      const SearchSpace space = family->space(problem, target);
      answer.combinations = space.combinations();
      answer.candidates = space.enumerate().size();
    }
    answers.push_back(std::move(answer));
  }
  return answers;
}

Result<Explanation> explain(const Problem& problem, const Place& place, cache::Store& store) {
  Explanation e{.problem = problem};
  e.families = ask_families(problem, place.target);
  e.chosen = {.config = default_config(problem, place.target),
              .provenance = Provenance::fallback,
              .reason = "the default, which needs no tuning",
              .artifact = {}};
  if (place.device) {
    const auto found = look_up(store, problem, *place.device, kGeneratorVersion);
    e.note = found.note;
    for (const auto& candidate : found.candidates)
      if (render(problem, place.target, candidate.config)) {
        e.chosen = candidate;
        break;
      }
    e.measured = store.measurements({to_string(problem), to_string(*place.device), kGeneratorVersion}).size();
  }
  if (e.chosen.config.family.empty())  // default_config where no family answers
    return supports(problem, place.target).error();
  QUERN_ASSIGN(const KernelSource source, render(problem, place.target, e.chosen.config));
  e.accuracy = source.accuracy;
  for (const auto& step : source.steps) e.entries.push_back(step.entry);
  e.workspace_bytes = source.workspace_bytes;
  if (place.compiler) {
    const auto key = artifact_key(source, place.target, place.compiler->identity()).key;
    e.key = key.hex();
    e.stored = store.find_artifact(key).has_value();
  }
  return e;
}

void print_explanation_json(const Explanation& e, const Place& place) {
  Json object{{"problem", to_string(e.problem)},
              {"target", to_string(place.target)},
              {"device", place.device ? Json(to_string(*place.device)) : Json(nullptr)},
              {"config", to_string(e.chosen.config)},
              {"provenance", to_string(e.chosen.provenance)},
              {"reason", e.chosen.reason},
              {"note", e.note},
              {"class", to_string(e.accuracy)},
              {"launches", e.entries.size()},
              {"entries", e.entries},
              {"workspace_bytes", e.workspace_bytes},
              {"key", e.key.empty() ? Json(nullptr) : Json(e.key)},
              {"stored", e.stored},
              {"measured", e.measured},
              {"families", Json::array()}};
  for (const auto& f : e.families)
    object["families"].push_back({{"family", f.name},
                                  {"applies", f.refusal.empty()},
                                  {"reason", f.refusal},
                                  {"combinations", f.combinations},
                                  {"candidates", f.candidates}});
  print_json(object);
}

void print_explanation(const Explanation& e, const Place& place, int columns) {
  const auto line = [](const char* what, const std::string& text) { fmt::print("{:<9} {}\n", what, text); };
  line("problem", to_string(e.problem));
  line("on", place.device ? to_string(*place.device) : to_string(place.target) + ", no device");
  line("runs", to_string(e.chosen.config));
  line("because", fmt::format("{}: {}", to_string(e.chosen.provenance), e.chosen.reason));
  if (!e.note.empty()) line("note", e.note);
  line("launches", fmt::format("{}, {} workspace, class {}", e.entries.size(), human_bytes(static_cast<double>(e.workspace_bytes)),
                               to_string(e.accuracy)));
  line("entries", fmt::format("{}", fmt::join(e.entries, " ")));
  if (e.key.empty())
    line("kernel", "cannot be compiled here: " + place.no_compiler);
  else
    line("kernel", e.key.substr(0, 12) + (e.stored ? ", in the store" : ", compiled when it is first needed"));
  line("measured", fmt::format("{} candidates on this kind of device", e.measured));
  Table table({{"family"}, {"candidates", Table::Align::right}, {"of", Table::Align::right}, {"why not", Table::Align::left, true}});
  std::vector<std::string> others;
  for (const auto& f : e.families) {
    if (f.refusal.starts_with("op is ")) {
      others.push_back(f.name);
      continue;
    }
    table.add({f.name, f.refusal.empty() ? std::to_string(f.candidates) : "-", f.refusal.empty() ? std::to_string(f.combinations) : "-",
               f.refusal});
  }
  fmt::print("\n{}", table.render(columns));
  fmt::print("of other ops: {}\n", fmt::join(others, ", "));
}

int run_explain(const Environment& environment, const Options& options) {
  std::string text = options.problem;
  for (const auto& word : options.words) text += " " + word;
  const auto problem = problem_from_text(text);
  if (!problem) return fail(problem.error());
  const auto place = find_place(environment, options);
  if (!place) return fail(place.error());
  const auto store = cache::Store::open(store_options(environment.context));
  const auto explanation = explain(*problem, *place, *store);
  if (!explanation) return fail(explanation.error());
  if (options.json)
    print_explanation_json(*explanation, *place);
  else
    print_explanation(*explanation, *place, environment.columns);
  return kDone;
}

}  // namespace

void add_explain(CLI::App& app, Session& session) {
  auto* sub = app.add_subcommand("explain", "What would run for a problem, from where, and why");
  auto options = std::make_shared<Options>();
  // Two positionals: CLI11 takes a bracketed argument of an option with many values apart at its commas.
  sub->add_option("PROBLEM", options->problem, "As text, e.g. 'mul_mat q4_0 m=1 n=14336 k=4096', or as JSON")->required();
  sub->add_option("WORDS", options->words, "The rest of its text, where it is not quoted");
  auto* device = sub->add_option("--device", options->device, "auto, host or cuda:N")->check(not_empty);
  sub->add_option("--arch", options->architecture, "An architecture instead of a device, e.g. sm_90a")->check(not_empty)->excludes(device);
  sub->add_flag("--json", options->json, "One JSON object on stdout");
  sub->callback([&session, options] { session.exit_code = run_explain(session.environment, *options); });
}

}  // namespace quern::tools

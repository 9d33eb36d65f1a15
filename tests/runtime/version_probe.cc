// One process of the two-versions test. It is built twice, with everything of quern that it links; the builds differ in the generator
// version alone.
//
//   version_probe DIRECTORY NAME THREADS ROUNDS
//
// Plans three problems on the host target, with its own tuning of each (generic:threads=THREADS), then writes and reads rows under keys
// that every process of the test uses, ROUNDS times. Prints what it found of an earlier run and exits 0; what it found wrong ends it
// with 1.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "runtime/context_parts.h"

namespace quern {
namespace {

struct Arguments {
  std::string directory, name;
  std::int64_t threads = 0;
  int rounds = 0;
};

struct Found {
  int tunings = 0, artifacts = 0;
};

constexpr int kKeys = 6;
constexpr WeightType kTypes[] = {WeightType::q4_0, WeightType::q4_1, WeightType::q8_0};

Error wrong(const std::string& what) { return {ErrorCode::kCorrupt, std::string("generator ") + kGeneratorVersion + ": " + what, {}}; }

Problem problem_of(WeightType type) { return {.op = Op::mul_mat, .type = type, .m = 1, .n = 16, .k = 64}; }

class Probe {
 public:
  Probe(const Context& context, Arguments arguments)
      : context_(context),
        parts_(parts_of(context)),
        store_(*parts_.store),
        arguments_(std::move(arguments)),
        device_(to_string(context.device())) {}

  Result<Found> run() {
    QUERN_TRY(look_for_earlier_rows());
    for (const WeightType type : kTypes) QUERN_TRY(plan(problem_of(type)));
    for (int round = 0; round < arguments_.rounds; ++round)
      for (int n = 0; n < kKeys; ++n) QUERN_TRY(write_and_read(n, round));
    return found_;
  }

 private:
  cache::TuningKey tuning(const std::string& problem) const { return {problem, device_, kGeneratorVersion}; }
  Config own_config() const { return {"generic", {{"threads", arguments_.threads}}}; }

  // The same key whichever version asks, which no kernel's key is: only the store itself keeps such rows apart.
  static cache::Key key(int n) { return cache::KeyBuilder().field("probe", std::to_string(n)).finish(); }
  cache::Artifact artifact(int n) const {
    const std::string text = std::string("of generator ") + kGeneratorVersion + ", kernel " + std::to_string(n);
    cache::Artifact a;
    for (std::size_t i = 0; i < 4096; ++i) a.bytes.push_back(static_cast<std::byte>(text[i % text.size()]));
    a.format = "host_object", a.name = "probe " + std::to_string(n), a.target = to_string(context_.target());
    a.compiler = parts_.compiler->identity(), a.generator_version = kGeneratorVersion;
    return a;
  }

  Status check_own(const std::optional<cache::Artifact>& a, int n) const {
    if (a && a->generator_version == kGeneratorVersion && a->bytes == artifact(n).bytes) return {};
    return wrong("artifact " + std::to_string(n) + (a ? " is of generator " + a->generator_version : " is lost"));
  }
  Status check_own(const std::optional<cache::Winner>& winner, const std::string& problem) const {
    if (winner && winner->config == own_config() && winner->key.generator_version == kGeneratorVersion) return {};
    return wrong("the winner of '" + problem + "' is " + (winner ? to_string(winner->config) : "lost"));
  }

  // A fresh store has nothing for this version, whatever another one left there; an own row has to be whole.
  Status look_for_earlier_rows() {
    for (const WeightType type : kTypes) {
      const auto plan = context_.plan(problem_of(type), {.lazy = true});
      if (!plan) return plan.error();
      if (plan->provenance() == Provenance::fallback) continue;
      if (plan->config() != own_config()) return wrong("planned " + to_string(plan->config()) + ", needed " + to_string(own_config()));
      ++found_.tunings;
    }
    for (int n = 0; n < kKeys; ++n) {
      const auto a = store_.find_artifact(key(n));
      if (!a) continue;
      QUERN_TRY(check_own(a, n));
      ++found_.artifacts;
    }
    return {};
  }

  Status plan(const Problem& problem) {
    if (!store_.put_winner({tuning(to_string(problem)), own_config(), 1, {}, 0})) return wrong("a tuning was not kept");
    const auto plan = context_.plan(problem);
    if (!plan) return plan.error();
    if (plan->provenance() != Provenance::exact || plan->config() != own_config())
      return wrong("planned " + to_string(plan->config()) + ", " + plan->reason() + ", needed " + to_string(own_config()));
    const auto stored = store_.find_artifact(*cache::Key::from_hex(plan->artifact()));
    if (!stored || stored->generator_version != kGeneratorVersion) return wrong("the plan's kernel is not in the store");
    return {};
  }

  Status write_and_read(int n, int round) {
    const std::string problem = "probe " + std::to_string(n);
    const auto made = store_.find_or_make(
        key(n), [&]() -> Result<cache::Artifact> { return artifact(n); }, nullptr);
    if (!made) return made.error();
    QUERN_TRY(check_own(*made, n));
    if (!store_.put_artifact(key(n), artifact(n))) return wrong("an artifact was not kept");
    QUERN_TRY(check_own(store_.find_artifact(key(n)), n));
    if (!store_.put_winner({tuning(problem), own_config(), 1, {}, 0})) return wrong("a winner was not kept");
    QUERN_TRY(check_own(store_.find_winner(tuning(problem)), problem));
    cache::StoredMeasurement row{.key = tuning(problem), .compiler = arguments_.name, .measurement = {.config = own_config()}};
    row.measurement.artifact = cache::KeyBuilder().field("round", std::to_string(round)).finish().hex();
    if (!store_.put_measurement(row)) return wrong("a measurement was not kept");
    for (const auto& stored : store_.measurements(tuning(problem)))
      if (stored.measurement.config != own_config()) return wrong("measured " + to_string(stored.measurement.config));
    return {};
  }

  const Context& context_;
  const ContextParts& parts_;
  cache::Store& store_;
  Arguments arguments_;
  std::string device_;
  Found found_;
};

int run(Arguments arguments) {
  ContextOptions options;
  options.device = "host", options.cache_directory = arguments.directory;
  options.host_plugin = std::getenv("QUERN_HOST_PLUGIN");
  options.warn = [](const std::string& line) { std::printf("warning: %s\n", line.c_str()); };
  const auto context = Context::open(options);
  if (!context) return std::puts(context.error().message.c_str()), 1;
  const auto found = Probe(*context, std::move(arguments)).run();
  if (!found) return std::puts(found.error().message.c_str()), 1;
  std::printf("generator %s found %d tunings, %d artifacts; compiled %d\n", kGeneratorVersion, found->tunings, found->artifacts,
              static_cast<int>(context->compile_count()));
  return 0;
}

}  // namespace
}  // namespace quern

int main(int argc, char** argv) {
  if (argc != 5 || std::getenv("QUERN_HOST_PLUGIN") == nullptr) return 2;
  return quern::run({argv[1], argv[2], std::atoll(argv[3]), std::atoi(argv[4])});
}

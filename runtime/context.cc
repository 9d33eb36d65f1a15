#include "quern/context.h"

#include <algorithm>
#include <utility>

#include "generator/family.h"
#include "quern/version.h"
#include "runtime/artifact.h"
#include "runtime/context_state.h"
#include "runtime/launch_args.h"

namespace quern {
namespace {

// Troubles of the machine say nothing about a config; every other failure does.
bool blames_config(ErrorCode code) {
  switch (code) {
    case ErrorCode::kEnvironment:
    case ErrorCode::kDeviceLost:
    case ErrorCode::kTimeout:
    case ErrorCode::kCancelled:
      return false;
    default:
      return true;
  }
}

Result<std::unique_ptr<PlanState>> render_candidate(const Context::Impl& context, const Problem& problem, Candidate candidate) {
  if (candidate.config.family.empty()) {  // default_config where no family answers
    QUERN_TRY(supports(problem, context.target));
    return Error{ErrorCode::kUnsupported, to_string(problem) + ": no default config", {}};
  }
  auto state = std::make_unique<PlanState>();
  QUERN_ASSIGN(state->source, context.parts.kernels.render(problem, context.target, candidate.config));
  if (state->source.accuracy > problem.accuracy)
    return Error{ErrorCode::kUnsupported,
                 to_string(candidate.config) + " meets accuracy class " + std::string(to_string(state->source.accuracy)) +
                     ", the problem needs " + std::string(to_string(problem.accuracy)),
                 {}};
  state->candidate = std::move(candidate);
  return state;
}

// Without a compiler the key cannot be computed ahead, but a stored artifact says which compiler made it: if the key over the source that
// this version renders and that compiler is the artifact's own key, it is what the compiler would produce.
Result<Binary> stored_binary(Context::Impl& context, PlanState& state) {
  const auto key = cache::Key::from_hex(state.candidate.artifact);
  if (!key) return context.parts.compiler_missing;
  const auto artifact = context.parts.store->find_artifact(*key);
  if (!artifact || artifact_key(state.source, context.target, artifact->compiler).key != *key) return context.parts.compiler_missing;
  auto binary = to_binary(*artifact);
  if (!binary) return context.parts.compiler_missing;
  state.artifact = key->hex();
  return std::move(*binary);
}

Result<Binary> obtain_binary(Context::Impl& context, PlanState& state) {
  if (context.parts.compiler == nullptr) return stored_binary(context, state);
  bool compiled = false;
  auto binary = get_or_compile(*context.parts.store, *context.parts.compiler, state.source, context.target, &compiled);
  if (!binary) return binary;
  if (compiled) context.compiles.fetch_add(1, std::memory_order_relaxed);
  state.artifact = artifact_key(state.source, context.target, context.parts.compiler->identity()).key.hex();
  return binary;
}

// The names that the module itself has for its functions; where it cannot tell, the one by which the function was found.
std::vector<std::string> loaded_entries(const PlanState& state) {
  std::vector<std::string> entries;
  for (const auto& ready : state.steps) {
    std::string name = state.module->loaded_name(ready.function);
    entries.push_back(name.empty() ? ready.step.entry : std::move(name));
  }
  return entries;
}

Status compile_and_load(Context::Impl& context, const Problem& problem, PlanState& state) {
  QUERN_ASSIGN(const Binary binary, obtain_binary(context, state));
  QUERN_ASSIGN(state.module, context.parts.device->load(binary));
  state.usage = binary.usage;
  for (const auto& step : state.source.steps) {
    QUERN_ASSIGN(const auto function, state.module->function(step.entry, step.shared_bytes));
    state.steps.push_back({function, step});
    if (context.parts.launch_apart) state.steps.back().step.overlaps_previous = false;
  }
  if (!context.parts.record_launches) return {};
  state.counter = std::make_shared<LaunchCounter>();
  state.counter->record = {state.candidate.config.family, state.candidate.config, to_string(problem), state.artifact, 0,
                           loaded_entries(state)};
  const std::lock_guard lock(context.mutex);
  context.counters.push_back(state.counter);
  return {};
}

// After a failed candidate: forget a tuning that can no longer run, and say whether the next candidate may be tried. Requires plan.mutex.
bool may_try_next(Plan::Impl& plan, const Candidate& failed, const Error& error) {
  if (failed.provenance == Provenance::fallback || failed.provenance == Provenance::requested || !blames_config(error.code)) return false;
  if (failed.provenance == Provenance::nearest) return true;
  Context::Impl& context = *plan.context;
  context.parts.store->drop_winner({to_string(plan.problem), to_string(context.parts.device->info().identity), kGeneratorVersion});
  const std::string dropped = "dropped the stored tuning " + to_string(failed.config);
  context.warn(dropped + " for '" + to_string(plan.problem) + "': " + error.message);
  for (auto& next : plan.remaining) next.reason = dropped + "; " + next.reason;
  return true;
}

// Best first. The default comes last and is always there.
std::vector<Candidate> candidates_for(const Context::Impl& context, const Problem& problem, const PlanOptions& options) {
  if (options.config) return {{*options.config, Provenance::requested, "requested by the caller", {}}};
  Lookup lookup = look_up(*context.parts.store, problem, context.parts.device->info().identity, kGeneratorVersion);
  const std::string why = lookup.note.empty() ? "no tuning is left" : lookup.note;
  lookup.candidates.push_back({context.parts.kernels.default_config(problem, context.target), Provenance::fallback, why, {}});
  return std::move(lookup.candidates);
}

// Moves on from candidate to candidate until one renders and, unless `render_only`, compiles and loads. Requires plan.mutex.
Status settle(Plan::Impl& plan, bool render_only) {
  Context::Impl& context = *plan.context;
  if (plan.ready.load(std::memory_order_relaxed) != nullptr) return {};
  while (true) {
    if (plan.pending == nullptr) {
      Candidate candidate = plan.remaining.front();
      plan.remaining.erase(plan.remaining.begin());
      auto rendered = render_candidate(context, plan.problem, candidate);
      if (!rendered) {
        if (may_try_next(plan, candidate, rendered.error())) continue;
        plan.remaining.insert(plan.remaining.begin(), std::move(candidate));  // a later call reports the same
        return std::move(rendered.error());
      }
      plan.pending = plan.states.emplace_back(std::move(*rendered)).get();
      plan.shown.store(plan.pending, std::memory_order_release);
    }
    if (render_only) return {};
    PlanState& state = *plan.pending;
    Status loaded = compile_and_load(context, plan.problem, state);
    if (loaded) {
      plan.ready.store(&state, std::memory_order_release);
      return {};
    }
    state.module.reset(), state.steps.clear();
    if (!may_try_next(plan, state.candidate, loaded.error())) return loaded;
    plan.pending = nullptr;
  }
}

}  // namespace

Context make_context(ContextParts parts) {
  auto impl = std::make_shared<Context::Impl>();
  const Target& device = parts.device->info().target;
  impl->target = parts.compiler != nullptr ? compile_target(*parts.compiler, device) : device;
  impl->parts = std::move(parts);
  return Context(std::move(impl));
}

const ContextParts& parts_of(const Context& context) { return context.impl().parts; }

const std::string& Context::device_spec() const { return impl_->parts.device->info().spec; }
const DeviceIdentity& Context::device() const { return impl_->parts.device->info().identity; }
const Target& Context::target() const { return impl_->target; }
bool Context::is_lost() const { return impl_->parts.device->is_lost(); }
Status Context::synchronize(Stream stream) const { return impl_->parts.device->synchronize(stream); }
std::uint64_t Context::compile_count() const { return impl_->compiles.load(std::memory_order_relaxed); }

Status Context::supports(const Problem& problem) const {
  QUERN_TRY(validate(problem));
  if (is_empty(problem)) return {};  // needs no kernel
  return quern::supports(problem, impl_->target);
}

Result<Plan> Context::plan(const Problem& problem, const PlanOptions& options) const {
  QUERN_TRY(validate(problem));
  auto plan = std::make_shared<Plan::Impl>();
  plan->context = impl_;
  plan->problem = canonical(problem);
  const std::lock_guard lock(plan->mutex);
  if (is_empty(problem)) {
    auto state = std::make_unique<PlanState>();
    state->candidate.reason = "nothing to compute";
    plan->ready = plan->shown = plan->states.emplace_back(std::move(state)).get();
    plan->empty = true;
    return Plan(std::move(plan));
  }
  plan->remaining = candidates_for(*impl_, plan->problem, options);
  QUERN_TRY(settle(*plan, options.lazy));
  return Plan(plan);
}

Result<Plan> Context::plan_prepare_weights(WeightType type, std::int64_t n, std::int64_t k, Layout from) const {
  return plan({.op = from == Layout::gguf ? Op::to_planar : Op::to_gguf,
               .type = type,
               .layout = from,
               .n = n,
               .k = k,
               .accuracy = Accuracy::exact});
}

Status Context::prepare_weights(Stream stream, const Plan& plan, const void* source, void* destination, void* workspace,
                                std::size_t workspace_bytes) const {
  if (plan.problem().op != Op::to_planar && plan.problem().op != Op::to_gguf)
    return Error{
        ErrorCode::kInvalidArgument,
        "prepare_weights: the plan is for " + std::string(to_string(plan.problem().op)) + ", one from plan_prepare_weights is needed",
        {}};
  return plan.launch(stream,
                     {.w = {.data = source}, .y = {.data = destination}, .workspace = workspace, .workspace_bytes = workspace_bytes});
}

std::vector<LaunchRecord> Context::launch_records() const {
  const std::lock_guard lock(impl_->mutex);
  std::vector<LaunchRecord> records;
  for (const auto& counter : impl_->counters) {
    if (const auto count = counter->count.load(std::memory_order_relaxed); count > 0) {
      records.push_back(counter->record);
      records.back().count = count;
    }
  }
  return records;
}

const Problem& Plan::problem() const { return impl_->problem; }
// A lazy plan that moves on to another config keeps the states it leaves, so these references outlive the move. While it is between two
// states (only inside prepare, which holds the lock), readers see the one that was left.
namespace {
const PlanState& current(const Plan::Impl& plan) { return *plan.shown.load(std::memory_order_acquire); }
}  // namespace

const Config& Plan::config() const { return current(*impl_).candidate.config; }
Provenance Plan::provenance() const { return current(*impl_).candidate.provenance; }
const std::string& Plan::reason() const { return current(*impl_).candidate.reason; }
Accuracy Plan::accuracy() const { return current(*impl_).source.accuracy; }
std::size_t Plan::workspace_bytes() const { return current(*impl_).source.workspace_bytes; }

const std::string& Plan::artifact() const {
  static const std::string kNone;
  const PlanState* state = impl_->ready.load(std::memory_order_acquire);
  return state == nullptr ? kNone : state->artifact;
}

ResourceUsage Plan::usage() const {
  const PlanState* state = impl_->ready.load(std::memory_order_acquire);
  return state == nullptr ? ResourceUsage{} : state->usage;
}

bool Plan::ready() const { return impl_->ready.load(std::memory_order_acquire) != nullptr; }

Status Plan::prepare() const {
  if (ready()) return {};
  const std::lock_guard lock(impl_->mutex);
  return settle(*impl_, /*render_only=*/false);
}

Status Plan::launch(Stream stream, const LaunchArgs& args) const {
  if (impl_->empty) return {};
  Device& device = *impl_->context->parts.device;
  const PlanState* state = impl_->ready.load(std::memory_order_acquire);
  if (state == nullptr) {
    if (device.is_capturing(stream))
      return Error{ErrorCode::kInvalidArgument,
                   "the plan for '" + to_string(impl_->problem) +
                       "' is not compiled and the stream is being captured: call Plan::prepare before the capture",
                   {}};
    QUERN_TRY(prepare());
    state = impl_->ready.load(std::memory_order_acquire);
  }
  KernelArgs block;
  QUERN_TRY(fill_kernel_args(impl_->problem, state->source.workspace_bytes, args, &block));
  for (const auto& ready : state->steps) QUERN_TRY(device.launch(ready.function, ready.step, block, stream));
  if (state->counter != nullptr) state->counter->count.fetch_add(1, std::memory_order_relaxed);
  return {};
}

Status Plan::check(const LaunchArgs& args) const {
  if (impl_->empty) return {};
  KernelArgs block;
  return fill_kernel_args(impl_->problem, workspace_bytes(), args, &block);
}

}  // namespace quern

#include "tuner/tune.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <mutex>
#include <thread>

#include "runtime/artifact.h"
#include "tuner/bench_data.h"
#include "tuner/compile_pool.h"
#include "tuner/static_check.h"

namespace quern {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kHopeless = 5;  // times the best so far: not worth a full timing
constexpr int kGiveUpAfter = 3;  // problems in a row that fail for reasons of the device

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

int core_count() { return static_cast<int>(std::max(1u, std::thread::hardware_concurrency())); }

// What is shared by all devices of a run.
struct Run {
  const TuneOptions& options;
  cache::Store& store;
  const std::function<void(const TuneProgress&)>& progress;
  CompilePool& pool;
  std::size_t lookahead;
  std::size_t problems = 0;  // times device kinds
  std::size_t devices = 0;
  Clock::time_point start = Clock::now();
  std::mutex mutex;  // guards progress calls and `done`
  std::size_t done = 0;

  bool stopped() const { return options.stop != nullptr && options.stop->load(); }
};

// A candidate as far as this process takes it: rendered, looked up, compiled, checked.
struct Candidate {
  Config config;
  std::string artifact;
  const Measurement* remembered = nullptr;
  bool looked_up_only = false;
  Verdict verdict = Verdict::ok;  // of rendering, compiling and the static check
  std::string reason;
  std::optional<Error> environment;  // nothing can be compiled here
};

class ProblemTuner {
 public:
  ProblemTuner(Run& run, const TuneDevice& device, const DeviceInfo& info, const Problem& problem)
      : run_(run), device_(device), info_(info), target_(compile_target(*device.compiler, info.target)) {
    result_.problem = problem;
    result_.device = to_string(info.identity);
    key_ = cache::TuningKey{to_string(problem), result_.device, kGeneratorVersion};
  }

  ProblemResult tune() {
    load_stored();
    if (auto searched = search(); !searched && searched.error().code != ErrorCode::kCancelled) fail(searched.error());
    choose();
    result_.from_store = !touched_device_ && result_.tried == 0 && result_.winner.has_value();
    result_.seconds = seconds_since(start_);
    return result_;
  }

  bool device_failed() const { return device_failed_; }

 private:
  void fail(const Error& error) {
    result_.error = error.message;
    device_failed_ = error.code == ErrorCode::kEnvironment || error.code == ErrorCode::kDeviceLost;
  }

  // The newest row of each (config, artifact).
  void load_stored() {
    for (auto& row : run_.store.measurements(key_)) {
      auto [at, added] = stored_.try_emplace({to_string(row.measurement.config), row.measurement.artifact}, row);
      if (!added && at->second.created_unix <= row.created_unix) at->second = row;
    }
    std::lock_guard lock(run_.mutex);
    const double left = run_.options.budget_seconds - seconds_since(run_.start);
    const double problems_left = static_cast<double>(std::max<std::size_t>(1, run_.problems - run_.done));
    share_seconds_ =
        std::max(0.0, left) * static_cast<double>(std::min<std::size_t>(run_.devices, run_.problems - run_.done)) / problems_left;
  }

  Status search() {
    const auto families = run_.options.candidates.families(result_.problem, target_);
    if (families.empty()) return Error{ErrorCode::kUnsupported, key_.problem + ": no family supports it for " + to_string(target_), {}};
    std::vector<SearchSpace> spaces;
    for (const Family* family : families) {
      spaces.push_back(family->space(result_.problem, target_));
      family_order_.emplace_back(family->name());
    }
    default_ = run_.options.candidates.default_config(result_.problem, target_);
    auto strategy = make_strategy(run_.options.strategy, std::move(spaces), default_, run_.options.seed);
    for (auto batch = strategy->next_batch(); !batch.empty(); batch = strategy->next_batch()) {
      result_.candidates += static_cast<std::int64_t>(batch.size());
      QUERN_TRY(process(batch, *strategy));
      if (run_.stopped() || !limit_.empty()) break;
    }
    return {};
  }

  // Compiles ahead, measures in order. Reports to the strategy whatever is known in the end.
  Status process(const std::vector<Config>& batch, Strategy& strategy) {
    std::vector<std::future<Candidate>> ahead;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      while (ahead.size() < std::min(batch.size(), i + run_.lookahead)) ahead.push_back(submit(batch[ahead.size()]));
      if (run_.stopped()) return leave(batch.size() - i, "stopped", ahead, i);
      const Candidate candidate = ahead[i].get();
      if (candidate.environment) {
        drain(ahead, i + 1);
        return *candidate.environment;
      }
      check_limits(candidate);
      auto handled = handle(candidate);
      if (!handled) {
        const bool cancelled = handled.error().code == ErrorCode::kCancelled;
        QUERN_TRY(leave(batch.size() - i, cancelled ? "stopped" : "device error", ahead, i + 1));
        return handled.error();
      }
      if (*handled) strategy.report(**handled);
    }
    return {};
  }

  std::future<Candidate> submit(const Config& config) {
    return run_.pool.submit<Candidate>([this, config] { return make_candidate(config); });
  }

  // Tasks refer to this object: none may outlive the batch.
  static void drain(std::vector<std::future<Candidate>>& ahead, std::size_t from) {
    for (std::size_t i = from; i < ahead.size(); ++i)
      if (ahead[i].valid()) ahead[i].wait();
  }

  Status leave(std::size_t count, const std::string& why, std::vector<std::future<Candidate>>& ahead, std::size_t from) {
    looking_only_ = true;
    drain(ahead, from);
    skip(why, static_cast<std::int64_t>(count));
    return {};
  }

  // Runs on a pool thread; reads only what does not change during a batch, and one atomic.
  Candidate make_candidate(const Config& config) const {
    Candidate c;
    c.config = config;
    auto source = run_.options.candidates.render(result_.problem, target_, config);
    if (!source) return failed(std::move(c), Verdict::rejected, source.error().message);
    c.artifact = artifact_key(*source, target_, device_.compiler->identity()).key.hex();
    if (const auto known = stored_.find({to_string(config), c.artifact}); known != stored_.end()) {
      c.remembered = &known->second.measurement;
      return c;
    }
    c.looked_up_only = looking_only_;
    if (c.looked_up_only) return c;
    auto binary = get_or_compile(run_.store, *device_.compiler, *source, target_);
    if (!binary) {
      if (binary.error().code == ErrorCode::kEnvironment) c.environment = binary.error();
      return failed(std::move(c), Verdict::compile_failed, binary.error().message);
    }
    if (std::string fault = static_fault(*source, binary->usage, info_, config == default_); !fault.empty())
      return failed(std::move(c), Verdict::rejected, std::move(fault));
    return c;
  }

  static Candidate failed(Candidate c, Verdict verdict, std::string reason) {
    c.verdict = verdict;
    c.reason = std::move(reason);
    return c;
  }

  // Decides whether this candidate may still be measured. The default always may.
  void check_limits(const Candidate& candidate) {
    if (!limit_.empty() || candidate.config == default_) return;
    const TuneOptions& o = run_.options;
    if (o.budget_candidates > 0 && result_.tried >= o.budget_candidates) limit_ = "budget";
    if (o.budget_seconds > 0 && seconds_since(start_) >= share_seconds_) limit_ = "budget";
    if (result_.read_ceiling_us && best_us_ > 0 && best_us_ <= o.roofline * *result_.read_ceiling_us) limit_ = "roofline";
    if (!limit_.empty()) looking_only_ = true;
  }

  // What is known of the candidate now, or nothing when it was left out.
  Result<std::optional<Measurement>> handle(const Candidate& candidate) {
    if (candidate.remembered != nullptr) {
      skip("already stored", 1);
      keep(*candidate.remembered);
      return std::optional(*candidate.remembered);
    }
    if (!limit_.empty() || candidate.looked_up_only) {
      skip(limit_.empty() ? "stopped" : limit_, 1);
      return std::optional<Measurement>();
    }
    Measurement m;
    m.config = candidate.config;
    m.verdict = candidate.verdict;
    m.reason = candidate.reason;
    if (candidate.verdict == Verdict::ok) {
      QUERN_ASSIGN(m, measure(candidate.config));
    }
    m.artifact = candidate.artifact;
    run_.store.put_measurement({key_, device_.compiler->identity(), m, static_cast<std::int64_t>(std::time(nullptr))});
    ++result_.tried;
    if (m.verdict != Verdict::ok) {
      ++result_.failed;
      ++result_.reasons[to_string(m.verdict)];
    }
    keep(m);
    report(m);
    return std::optional(m);
  }

  Result<Measurement> measure(const Config& config) {
    QUERN_TRY(prepare());
    MeasureSettings settings = run_.options.measure;
    settings.keep_spilling = config == default_;
    settings.hopeless_us = kHopeless * best_us_;
    return device_.measurer->measure(config, settings);
  }

  Status prepare() {
    if (prepared_) return {};
    touched_device_ = true;
    DataOptions data;
    data.seed = run_.options.seed;
    data.rotate = data.sorted_codebooks = true;
    QUERN_TRY(device_.measurer->prepare(result_.problem, data));
    prepared_ = true;
    auto ceiling = device_.measurer->read_ceiling(weight_bytes(result_.problem));
    if (ceiling) result_.read_ceiling_us = *ceiling;
    if (!ceiling && ceiling.error().code == ErrorCode::kCancelled) return ceiling.error();
    return {};
  }

  void keep(const Measurement& m) {
    measured_.push_back(m);
    if (m.verdict == Verdict::ok && (best_us_ == 0 || m.us < best_us_)) best_us_ = m.us;
  }

  void skip(const std::string& why, std::int64_t count) {
    result_.skipped += count;
    result_.reasons[why] += count;
  }

  void report(const Measurement& m) {
    if (!run_.progress) return;
    std::lock_guard lock(run_.mutex);
    TuneProgress p;
    p.device = device_.spec;
    p.problems_done = run_.done;
    p.problems = run_.problems;
    p.problem = result_.problem;
    p.done = result_.tried + result_.skipped;
    p.candidates = result_.candidates;
    p.best_us = best_us_;
    p.seconds = seconds_since(run_.start);
    const double finished =
        static_cast<double>(run_.done) + static_cast<double>(p.done) / static_cast<double>(std::max<std::int64_t>(1, p.candidates));
    if (finished > 0) p.eta_seconds = p.seconds / finished * (static_cast<double>(run_.problems) - finished);
    if (run_.options.budget_seconds > 0) p.eta_seconds = std::min(p.eta_seconds, std::max(0.0, run_.options.budget_seconds - p.seconds));
    p.measured = m;
    run_.progress(p);
  }

  // Times the finalists side by side and stores the winner. With nothing new, the stored winner stands.
  void choose() {
    auto last = finalists(measured_);
    if (last.empty()) {
      if (result_.error.empty())
        result_.error = key_.problem + (measured_.empty() ? ": no candidate was measured"
                                                          : ": no candidate passed, of " + std::to_string(measured_.size()));
      return;
    }
    const auto stored = run_.store.find_winner(key_);
    if (result_.tried == 0 && stored && stored_winner_stands(*stored)) return;
    if (last.size() > 1 && !run_.stopped() && result_.error.empty()) compare(last);
    const Measurement& winner = last[choose_winner(last, family_order_)];
    announce(winner, winner.us);
    result_.kept = run_.store.put_winner({key_, winner.config, winner.us, winner.artifact, static_cast<std::int64_t>(std::time(nullptr))});
  }

  bool stored_winner_stands(const cache::Winner& winner) {
    for (const Measurement& m : measured_)
      if (m.verdict == Verdict::ok && m.config == winner.config && m.artifact == winner.artifact) {
        announce(m, winner.us);
        result_.kept = true;
        return true;
      }
    return false;
  }

  void announce(const Measurement& m, double us) {
    result_.winner = m.config;
    result_.us = us;
    result_.us_l2_warm = m.us_l2_warm;
    result_.spread = m.spread;
    result_.nmse = m.nmse;
    result_.unstable = m.unstable;
  }

  // A comparison that fails leaves the recorded figures to decide.
  void compare(std::vector<Measurement>& last) {
    if (!prepare()) return;
    std::vector<Config> configs;
    for (const Measurement& m : last) configs.push_back(m.config);
    touched_device_ = true;
    const auto timings = device_.measurer->compare(configs, run_.options.measure);
    if (!timings) return;
    for (std::size_t i = 0; i < last.size(); ++i) {
      const Timing& t = (*timings)[i];
      last[i].us = t.us_median;
      last[i].spread = t.us_median > 0 ? (t.us_p90 - t.us_p10) / t.us_median : 0;
    }
  }

  Run& run_;
  const TuneDevice& device_;
  const DeviceInfo info_;
  const Target target_;
  cache::TuningKey key_;
  ProblemResult result_;
  Clock::time_point start_ = Clock::now();
  double share_seconds_ = 0;
  std::map<std::pair<std::string, std::string>, cache::StoredMeasurement> stored_;
  std::vector<std::string> family_order_;
  Config default_;
  std::vector<Measurement> measured_;  // in this run or before
  double best_us_ = 0;
  std::string limit_;  // why nothing more is measured
  std::atomic<bool> looking_only_{false};
  bool prepared_ = false, touched_device_ = false, device_failed_ = false;
};

// Devices of one kind, sharing one list of problems.
struct DeviceGroup {
  std::vector<const TuneDevice*> devices;
  DeviceInfo info;
  std::atomic<std::size_t> next{0};
  std::vector<std::optional<ProblemResult>> results;
};

void tune_on(Run& run, const TuneDevice& device, DeviceGroup& group, const std::vector<Problem>& problems) {
  int failures = 0;
  std::string last_error;
  for (std::size_t i = group.next++; i < problems.size(); i = group.next++) {
    ProblemTuner tuner(run, device, group.info, problems[i]);
    group.results[i] = tuner.tune();
    {
      std::lock_guard lock(run.mutex);
      ++run.done;
    }
    failures = tuner.device_failed() ? failures + 1 : 0;
    if (failures >= kGiveUpAfter) return;
  }
}

ProblemResult unmeasured(const Problem& problem, const std::string& device, const std::string& error) {
  ProblemResult result;
  result.problem = problem;
  result.device = device;
  result.error = error;
  return result;
}

}  // namespace

std::vector<ProblemResult> tune(const std::vector<Problem>& problems, const std::vector<TuneDevice>& devices, cache::Store& store,
                                const TuneOptions& options, const std::function<void(const TuneProgress&)>& progress) {
  std::vector<std::unique_ptr<DeviceGroup>> groups;
  std::vector<ProblemResult> results;
  for (const TuneDevice& device : devices) {
    auto info = device.measurer->device();
    if (!info) {
      for (const Problem& p : problems) results.push_back(unmeasured(p, device.spec, info.error().message));
      continue;
    }
    auto same = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g->info.identity == info->identity; });
    if (same == groups.end()) {
      groups.push_back(std::make_unique<DeviceGroup>());
      groups.back()->info = *info;
      groups.back()->results.resize(problems.size());
      same = std::prev(groups.end());
    }
    (*same)->devices.push_back(&device);
  }
  const int cores = options.compile_threads > 0 ? options.compile_threads : core_count();
  CompilePool pool(cores);
  Run run{options,        store,        progress, pool, static_cast<std::size_t>(2 * cores), problems.size() * groups.size(),
          devices.size(), Clock::now(), {},       0};
  std::vector<std::thread> threads;
  for (auto& group : groups)
    for (const TuneDevice* device : group->devices)
      threads.emplace_back([&run, device, &group, &problems] { tune_on(run, *device, *group, problems); });
  for (auto& thread : threads) thread.join();
  // A kind of device that works on none of the problems would only repeat one error; with a device that works, its errors are of no
  // interest.
  if (!groups.empty()) results.clear();
  for (auto& group : groups)
    for (std::size_t i = 0; i < problems.size(); ++i)
      results.push_back(group->results[i]
                            ? std::move(*group->results[i])
                            : unmeasured(problems[i], to_string(group->info.identity), "not reached: the device failed before"));
  return results;
}

}  // namespace quern

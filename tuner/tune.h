// Tuning: for each problem, candidates -> compile -> static check -> verify -> time -> record -> choose.
//
// Every measurement is stored, durably, before the next one starts; a run that is interrupted or killed is resumed by running it again. A
// candidate whose row is already stored, for the same problem, device, generator version and artifact, is not measured again, whatever its
// verdict: failures are remembered.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/store.h"
#include "runtime/compiler.h"
#include "tuner/candidate_source.h"
#include "tuner/measurer.h"
#include "tuner/search.h"

namespace quern {

struct TuneOptions {
  StrategyKind strategy = StrategyKind::exhaustive;
  std::uint64_t seed = 1;
  // Seconds for the whole run, shared evenly among the problems left; 0: no limit. The default config of a problem is measured even when
  // nothing is left, so that every problem gets an answer.
  double budget_seconds = 0;
  std::int64_t budget_candidates = 0;  // measured per problem, the default included; 0: no limit
  double roofline = 1.03;              // a candidate within this factor of the read ceiling ends the search
  int compile_threads = 0;             // 0: as many as there are cores
  MeasureSettings measure;
  const std::atomic<bool>* stop = nullptr;  // becomes true on Ctrl-C: what was measured stays, the rest is left
  CandidateSource candidates = generated_candidates();
};

// One device to tune on. Devices must be of the same kind or not; each has its own tunings.
struct TuneDevice {
  std::string spec;                    // for progress: "cuda:0"
  Measurer* measurer = nullptr;        // borrowed; used by one thread
  const Compiler* compiler = nullptr;  // borrowed; compiles in this process, ahead of the measurer
};

struct ProblemResult {
  Problem problem;
  std::string device;            // to_string(DeviceIdentity)
  std::optional<Config> winner;  // empty: not a single working config, see `error` and `reasons`
  double us = 0;
  double us_l2_warm = 0;
  double spread = 0;
  double nmse = 0;
  bool unstable = false;
  std::optional<double> read_ceiling_us;  // of the weights' bytes; empty on the host
  std::int64_t candidates = 0;            // offered by the strategy
  std::int64_t tried = 0;                 // measured in this run
  std::int64_t failed = 0;                // of those, disqualified
  std::int64_t skipped = 0;               // not measured in this run: already stored, or left by a budget, the roofline or a stop
  bool from_store = false;                // nothing had to be measured
  bool kept = false;                      // the winner is in the store, and so outlives this process
  double seconds = 0;
  std::map<std::string, std::int64_t>
      reasons;        // of `failed` and `skipped`: "wrong_output", "already stored", "budget", "roofline", "stopped"
  std::string error;  // why the problem has no winner; one line
};

struct TuneProgress {
  std::string device;
  std::size_t problems_done = 0, problems = 0;
  Problem problem;                      // under way
  std::int64_t done = 0;                // candidates of this problem, measured or skipped
  std::int64_t candidates = 0;          // known so far
  double best_us = 0;                   // 0: none yet
  double seconds = 0;                   // since the run began
  double eta_seconds = 0;               // of the whole run, from its pace so far; 0: not known
  std::optional<Measurement> measured;  // set when the call reports a measurement just made
};

// `results` in the order of `problems`; with several devices a problem is tuned once per distinct device identity, by whichever device of
// it is free. `progress` may be called from several threads, but never twice at once. Errors of one problem stand in its result and never
// end the run; a device that can no longer measure leaves its problems to the others, or with that error.
std::vector<ProblemResult> tune(const std::vector<Problem>& problems, const std::vector<TuneDevice>& devices, cache::Store& store,
                                const TuneOptions& options, const std::function<void(const TuneProgress&)>& progress);

}  // namespace quern

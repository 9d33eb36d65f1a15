// The sweep: correctness of every op x type x layout x family over shapes and configs, against double precision.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tuner/candidate_source.h"
#include "tuner/measurer.h"
#include "tuner/model.h"

namespace quern {

struct SweepOptions {
  bool full = false;                  // else quick: about five minutes on the host target with two cores
  std::vector<Op> ops;                // empty: all
  std::vector<WeightType> types;      // empty: every type with a decoder
  std::vector<Layout> layouts;        // empty: both
  std::vector<std::string> families;  // empty: all
  std::uint64_t seed = 1;
  int every = 1;  // of each op, type, layout and family take every so manieth case, at least one: what a slow target has the time for
  CandidateSource candidates = generated_candidates();
};

// One check: a config of one family on one problem, with its inputs. `unsupported` is set instead where a family answers no shape of a type
// and layout: that is reported, not hidden.
struct SweepCase {
  Problem problem;
  Config config;
  DataOptions data;
  std::string unsupported;
};

struct SweepResult {
  SweepCase at;
  enum class Outcome : std::uint8_t { passed, failed, skipped } outcome = Outcome::passed;
  Verdict verdict = Verdict::ok;
  double nmse = 0;
  double max_error = 0;
  std::string reason;  // empty when passed
  double seconds = 0;
};

struct SweepTotals {
  std::int64_t passed = 0, failed = 0, skipped = 0;
};

// The cases, the same on every machine for the same options and target. Each family is held to the strictest class it supports. Its default
// config meets every shape it supports; further configs that together hold every value of every parameter meet a few. Element types, bias,
// row gaps and batches rotate over the shapes. The quick sweep of all types is that thorough for a few representative ones; every other
// type meets every shape in one of the layouts, with default configs. A type that is named is swept thoroughly.
std::vector<SweepCase> sweep_cases(const SweepOptions& options, const Target& target);

// Configs besides the default that together contain every value of every parameter that any valid config has.
std::vector<Config> covering_configs(const SearchSpace& space);

// Cases over a model's own tensors: every matrix, `rows` consecutive rows of it at a place drawn from the seed, by every op and family.
std::vector<SweepCase> sweep_model_cases(const std::string& gguf_path, const Model& model, const SweepOptions& options,
                                         const Target& target, std::int64_t rows = 24);

// Runs the cases on the measurers (several of one kind work side by side) and returns the results in the order of the cases. `done` is
// called once per case, never twice at once. A measurer that fails for good fails the cases it held with that error. *stop: the rest is
// skipped.
std::vector<SweepResult> sweep(const std::vector<SweepCase>& cases, const std::vector<Measurer*>& measurers, const std::atomic<bool>* stop,
                               const std::function<void(const SweepResult&)>& done);

SweepTotals totals(const std::vector<SweepResult>& results);
// One JUnit test suite; a case is named after its problem and config.
std::string sweep_junit(const std::vector<SweepResult>& results, const std::string& suite);

}  // namespace quern

// Search strategies: which candidates to measure next, given what was measured. Deterministic: the same spaces, seed and reports give the
// same order on every machine. The problem's default config always comes first.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "generator/search_space.h"
#include "quern/measurement.h"

namespace quern {

enum class StrategyKind : std::uint8_t {
  exhaustive,  // every valid config, family after family, in the order of the space
  random,      // every valid config, shuffled by the seed
  greedy,  // defaults and a few seeded samples of every family, then one parameter at a time from the best config of each promising family
};
constexpr std::string_view to_string(StrategyKind kind) {
  switch (kind) {
    case StrategyKind::exhaustive:
      return "exhaustive";
    case StrategyKind::random:
      return "random";
    case StrategyKind::greedy:
      return "greedy";
  }
  return "?";
}
constexpr std::optional<StrategyKind> strategy_from_name(std::string_view name) {
  for (auto v : {StrategyKind::exhaustive, StrategyKind::random, StrategyKind::greedy})
    if (to_string(v) == name) return v;
  return std::nullopt;
}

class Strategy {
 public:
  virtual ~Strategy() = default;
  // Candidates that may be compiled and measured in any order, but are asked for in this one; never one that was given before. Empty: done.
  // Every candidate of a batch that was measured is reported before the next batch is asked for; the rest count as failed.
  virtual std::vector<Config> next_batch() = 0;
  virtual void report(const Measurement& measurement) = 0;
};

// `spaces` in family order, simplest first; `first` is the problem's default config.
std::unique_ptr<Strategy> make_strategy(StrategyKind kind, std::vector<SearchSpace> spaces, Config first, std::uint64_t seed);

// The measured configs worth a second look: ok, within `margin` of the fastest, at most `most`; fastest first, ties in config order.
std::vector<Measurement> finalists(const std::vector<Measurement>& measured, double margin = 0.05, std::size_t most = 4);

// The winner among finalists that were timed side by side: of those within noise of the fastest, the one of the simplest family, then the
// first in config order. Noise is the larger of 1% and the fastest one's spread, at most 3%. Requires at least one.
std::size_t choose_winner(const std::vector<Measurement>& finalists, const std::vector<std::string>& family_order);

}  // namespace quern

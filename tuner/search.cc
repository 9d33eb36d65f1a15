#include "tuner/search.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "tuner/random_weights.h"

namespace quern {
namespace {

// Remembers what was given, so that no candidate is given twice.
class Given {
 public:
  bool add(const Config& config) { return seen_.insert(config).second; }

 private:
  std::set<Config> seen_;
};

void shuffle(std::vector<Config>& configs, Random& random) {
  for (std::size_t i = configs.size(); i > 1; --i) std::swap(configs[i - 1], configs[random.below(i)]);
}

// Exhaustive and random search: one batch, known from the start.
class FixedOrder : public Strategy {
 public:
  explicit FixedOrder(std::vector<Config> order) : order_(std::move(order)) {}
  std::vector<Config> next_batch() override { return std::exchange(order_, {}); }
  void report(const Measurement&) override {}

 private:
  std::vector<Config> order_;
};

std::vector<Config> fixed_order(const std::vector<SearchSpace>& spaces, const Config& first, bool shuffled, std::uint64_t seed) {
  Given given;
  std::vector<Config> order, rest;
  given.add(first);
  order.push_back(first);
  if (shuffled)
    for (const auto& space : spaces)
      if (Config c = space.default_config(); given.add(c)) order.push_back(std::move(c));
  for (const auto& space : spaces)
    for (auto& config : space.enumerate())
      if (given.add(config)) rest.push_back(std::move(config));
  if (shuffled) {
    Random random(seed);
    shuffle(rest, random);
  }
  order.insert(order.end(), std::make_move_iterator(rest.begin()), std::make_move_iterator(rest.end()));
  return order;
}

constexpr std::size_t kSamplesPerFamily = 8;
constexpr double kPromising = 2.0;  // a family whose best is this much slower than the overall best is not climbed

class Greedy : public Strategy {
 public:
  Greedy(std::vector<SearchSpace> spaces, Config first, std::uint64_t seed)
      : spaces_(std::move(spaces)), first_(std::move(first)), random_(seed) {
    best_.resize(spaces_.size());
  }

  std::vector<Config> next_batch() override {
    if (!sampled_) return first_batch();
    for (;;) {
      if (!climbing_ && !start_climb()) return {};
      while (parameter_ < spaces_[family_].parameters().size()) {
        auto batch = neighbours(parameter_++);
        if (!batch.empty()) return batch;
      }
      // A whole round over the parameters: go on only while it helped.
      if (best_[family_].us < round_start_us_) {
        round_start_us_ = best_[family_].us;
        parameter_ = 0;
      } else {
        climbing_ = false;
      }
    }
  }

  void report(const Measurement& m) override {
    if (m.verdict != Verdict::ok) return;
    for (std::size_t f = 0; f < spaces_.size(); ++f)
      if (spaces_[f].family() == m.config.family && m.us < best_[f].us) best_[f] = Best{m.config, m.us};
  }

 private:
  struct Best {
    Config config;
    double us = std::numeric_limits<double>::infinity();
  };

  std::vector<Config> first_batch() {
    sampled_ = true;
    std::vector<Config> batch;
    if (given_.add(first_)) batch.push_back(first_);
    for (const auto& space : spaces_)
      if (Config c = space.default_config(); given_.add(c)) batch.push_back(std::move(c));
    for (const auto& space : spaces_) {
      auto all = space.enumerate();
      shuffle(all, random_);
      std::size_t taken = 0;
      for (auto& config : all)
        if (taken < kSamplesPerFamily && given_.add(config)) batch.push_back(std::move(config)), ++taken;
    }
    return batch;
  }

  // The fastest family not climbed yet, if it is promising.
  bool start_climb() {
    double overall = std::numeric_limits<double>::infinity();
    for (const auto& b : best_) overall = std::min(overall, b.us);
    std::size_t chosen = spaces_.size();
    for (std::size_t f = 0; f < spaces_.size(); ++f)
      if (!climbed_.contains(f) && best_[f].us <= kPromising * overall && (chosen == spaces_.size() || best_[f].us < best_[chosen].us) &&
          best_[f].us < std::numeric_limits<double>::infinity())
        chosen = f;
    if (chosen == spaces_.size()) return false;
    climbed_.insert(chosen);
    climbing_ = true;
    family_ = chosen;
    parameter_ = 0;
    round_start_us_ = best_[chosen].us;
    return true;
  }

  // The best config with every other value of one parameter.
  std::vector<Config> neighbours(std::size_t parameter) {
    std::vector<Config> batch;
    const Config centre = best_[family_].config;
    for (const auto value : spaces_[family_].parameters()[parameter].values) {
      Config c = centre;
      c.values[parameter].value = value;
      if (spaces_[family_].check(c) && given_.add(c)) batch.push_back(std::move(c));
    }
    return batch;
  }

  std::vector<SearchSpace> spaces_;
  Config first_;
  Random random_;
  Given given_;
  std::vector<Best> best_;
  std::set<std::size_t> climbed_;
  bool sampled_ = false, climbing_ = false;
  std::size_t family_ = 0, parameter_ = 0;
  double round_start_us_ = 0;
};

}  // namespace

std::unique_ptr<Strategy> make_strategy(StrategyKind kind, std::vector<SearchSpace> spaces, Config first, std::uint64_t seed) {
  if (kind == StrategyKind::greedy) return std::make_unique<Greedy>(std::move(spaces), std::move(first), seed);
  return std::make_unique<FixedOrder>(fixed_order(spaces, first, kind == StrategyKind::random, seed));
}

std::vector<Measurement> finalists(const std::vector<Measurement>& measured, double margin, std::size_t most) {
  std::vector<Measurement> ok;
  for (const auto& m : measured)
    if (m.verdict == Verdict::ok) ok.push_back(m);
  std::sort(ok.begin(), ok.end(),
            [](const Measurement& a, const Measurement& b) { return a.us != b.us ? a.us < b.us : a.config < b.config; });
  std::size_t kept = 0;
  while (kept < ok.size() && kept < most && ok[kept].us <= ok[0].us * (1 + margin)) ++kept;
  ok.resize(kept);
  return ok;
}

std::size_t choose_winner(const std::vector<Measurement>& finalists, const std::vector<std::string>& family_order) {
  std::size_t fastest = 0;
  for (std::size_t i = 1; i < finalists.size(); ++i)
    if (finalists[i].us < finalists[fastest].us) fastest = i;
  const double limit = finalists[fastest].us * (1 + std::clamp(finalists[fastest].spread, 0.01, 0.03));
  auto rank = [&](const Measurement& m) {
    const auto at = std::find(family_order.begin(), family_order.end(), m.config.family);
    return std::pair(at - family_order.begin(), m.config);
  };
  std::size_t winner = fastest;
  for (std::size_t i = 0; i < finalists.size(); ++i)
    if (finalists[i].us <= limit && rank(finalists[i]) < rank(finalists[winner])) winner = i;
  return winner;
}

}  // namespace quern

#include "tuner/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tuner/sweep.h"

namespace quern {
namespace {

SearchSpace space(const std::string& family, std::int64_t default_a = 2) {
  return {family, {{"a", {1, 2, 4, 8}, default_a}, {"b", {1, 2, 3, 4, 5, 6, 7, 8}, 1}}};
}

Config at(const std::string& family, std::int64_t a, std::int64_t b) { return {family, {{"a", a}, {"b", b}}}; }

Measurement timed(const Config& config, double us, double spread = 0) {
  Measurement m;
  m.config = config;
  m.us = us;
  m.spread = spread;
  return m;
}

// Everything the strategy gives when each candidate is timed by `cost`.
std::vector<Config> play(Strategy& strategy, const std::function<double(const Config&)>& cost) {
  std::vector<Config> order;
  for (auto batch = strategy.next_batch(); !batch.empty(); batch = strategy.next_batch())
    for (const Config& c : batch) {
      order.push_back(c);
      strategy.report(timed(c, cost(c)));
    }
  return order;
}

double flat(const Config&) { return 1; }

TEST(Search, ExhaustiveGivesTheDefaultThenEveryConfigInTheOrderOfTheSpaces) {
  const auto first = at("two", 4, 3);
  auto strategy = make_strategy(StrategyKind::exhaustive, {space("one"), space("two")}, first, 1);
  const auto order = play(*strategy, flat);
  ASSERT_EQ(order.size(), 64u);
  EXPECT_EQ(order[0], first);
  EXPECT_EQ(order[1], at("one", 1, 1));
  EXPECT_EQ(order[2], at("one", 1, 2));
  EXPECT_EQ(order[33], at("two", 1, 1));
  EXPECT_EQ(order[63], at("two", 8, 8));
  EXPECT_EQ(std::count(order.begin(), order.end(), first), 1);
}

TEST(Search, RandomIsASeededPermutationThatStartsWithTheDefaults) {
  auto order_of = [](std::uint64_t seed) {
    auto strategy = make_strategy(StrategyKind::random, {space("one"), space("two")}, at("two", 2, 1), seed);
    return play(*strategy, flat);
  };
  const auto one = order_of(1), again = order_of(1), other = order_of(2);
  EXPECT_EQ(one, again);
  EXPECT_NE(one, other);
  EXPECT_EQ(one[0], at("two", 2, 1));
  EXPECT_EQ(one[1], at("one", 2, 1));
  auto sorted = one, sorted_other = other;
  std::sort(sorted.begin(), sorted.end());
  std::sort(sorted_other.begin(), sorted_other.end());
  EXPECT_EQ(sorted, sorted_other);
  EXPECT_EQ(sorted.size(), 64u);
}

TEST(Search, GreedyFindsTheOptimumOfASeparableCostWithFewerMeasurements) {
  auto cost = [](const Config& c) {
    return 10 + std::abs(std::log2(static_cast<double>(*c.find("a"))) - 3) + std::abs(static_cast<double>(*c.find("b")) - 5) +
           (c.family == "slow" ? 100 : 0);
  };
  SearchSpace wide{"fast", {{"a", {1, 2, 4, 8}, 1}, {"b", {1, 2, 3, 4, 5, 6, 7, 8}, 1}, {"c", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 0}}};
  auto strategy = make_strategy(StrategyKind::greedy, {space("slow"), wide}, wide.default_config(), 3);
  const auto order = play(*strategy, cost);
  const auto best = *std::min_element(order.begin(), order.end(), [&](const auto& x, const auto& y) { return cost(x) < cost(y); });
  EXPECT_EQ(*best.find("a"), 8);
  EXPECT_EQ(*best.find("b"), 5);
  EXPECT_EQ(order[0], wide.default_config());
  EXPECT_LT(order.size(), 80u);  // of 352
  EXPECT_EQ(std::set<Config>(order.begin(), order.end()).size(), order.size());
  // A family that is far slower is sampled, not climbed.
  EXPECT_LE(std::count_if(order.begin(), order.end(), [](const Config& c) { return c.family == "slow"; }), 9);
}

TEST(Search, GreedyEndsWhenNothingWorks) {
  auto strategy = make_strategy(StrategyKind::greedy, {space("one")}, at("one", 2, 1), 1);
  for (auto batch = strategy->next_batch(); !batch.empty(); batch = strategy->next_batch())
    for (const Config& c : batch) {
      Measurement m = timed(c, 0);
      m.verdict = Verdict::crashed;
      strategy->report(m);
    }
  EXPECT_TRUE(strategy->next_batch().empty());
}

TEST(Search, FinalistsAreTheOkConfigsWithinTheMargin) {
  std::vector<Measurement> all{timed(at("f", 1, 1), 104), timed(at("f", 1, 2), 100), timed(at("f", 1, 3), 106), timed(at("f", 1, 4), 50)};
  all[3].verdict = Verdict::wrong_output;
  const auto last = finalists(all);
  ASSERT_EQ(last.size(), 2u);
  EXPECT_EQ(last[0].us, 100);
  EXPECT_EQ(last[1].us, 104);
  for (int b = 0; b < 8; ++b) all.push_back(timed(at("f", 2, b), 101));
  EXPECT_EQ(finalists(all).size(), 4u);
}

TEST(Search, WithinNoiseTheSimplerFamilyThenTheFirstConfigWins) {
  const std::vector<std::string> order{"simple", "fancy"};
  std::vector<Measurement> last{timed(at("fancy", 1, 1), 100), timed(at("simple", 8, 8), 100.9), timed(at("simple", 1, 1), 100.95)};
  EXPECT_EQ(choose_winner(last, order), 2u);
  last[1].us = last[2].us = 101.5;
  EXPECT_EQ(choose_winner(last, order), 0u);
  last[0].spread = 0.02;  // now 1.5% is noise
  EXPECT_EQ(choose_winner(last, order), 2u);
  last[0].spread = 5;
  last[1].us = last[2].us = 104;
  EXPECT_EQ(choose_winner(last, order), 0u);
}

TEST(Search, CoveringConfigsHoldEveryValueThatAnyValidConfigHas) {
  SearchSpace s{"f", {{"a", {1, 2, 4, 8}, 2}, {"b", {1, 2, 3}, 1}}, {[](const Config& c) {
                  return *c.find("a") == 8 && *c.find("b") != 3 ? std::string("a=8 needs b=3") : std::string();
                }}};
  auto configs = covering_configs(s);
  EXPECT_LE(configs.size(), 3u);
  configs.push_back(s.default_config());
  for (const auto& parameter : s.parameters())
    for (const auto value : parameter.values)
      EXPECT_TRUE(std::any_of(configs.begin(), configs.end(), [&](const Config& c) { return c.find(parameter.name) == value; }))
          << parameter.name << "=" << value;
  for (const Config& c : configs) EXPECT_TRUE(s.check(c));
}

}  // namespace
}  // namespace quern

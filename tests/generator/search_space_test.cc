// What a search space promises, on a small one; the families' own spaces are in family_test.cc.
#include "generator/search_space.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace quern {
namespace {

// warps 1, 2, 4 x rows 1, 3; at most 6 rows per block.
SearchSpace space() {
  SearchSpace::Constraint product = [](const Config& config) -> std::string {
    const auto rows = *config.find("warps") * *config.find("rows");
    return rows <= 6 ? "" : "warps * rows is " + std::to_string(rows) + ", needed at most 6";
  };
  return {"toy", {{"warps", {1, 2, 4}, 2}, {"rows", {1, 3}, 3}}, {product}};
}

std::string error_of(const Config& config) {
  const Status status = space().check(config);
  if (status) return "";
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  return status.error().message;
}

TEST(SearchSpace, TheDefaultConfigIsInParameterOrderAndValid) {
  EXPECT_EQ(to_string(space().default_config()), "toy:warps=2,rows=3");
  EXPECT_EQ(error_of(space().default_config()), "");
}

TEST(DefaultChooser, TakesAWishOnlyWhereTheWholeConfigStaysAllowed) {
  std::vector<Parameter> parameters{{"warps", {1, 2, 4}, 1}, {"rows", {1, 3}, 1}};
  const Constraint product = [](const Config& config) -> std::string {
    return *config.find("warps") * *config.find("rows") <= 6 ? "" : "no";
  };
  DefaultChooser choose("toy", parameters, product);
  choose.wish("warps", 4);
  choose.wish("rows", 3);  // 4 * 3 is not allowed: the earlier wish stands
  EXPECT_EQ(parameters[0].default_value, 4);
  EXPECT_EQ(parameters[1].default_value, 1);
  choose.start("warps", 2);
  choose.wish("rows", 3);
  EXPECT_EQ(parameters[0].default_value, 2);
  EXPECT_EQ(parameters[1].default_value, 3);
}

TEST(SearchSpace, CheckNamesTheParameterTheValueAndTheNeed) {
  EXPECT_EQ(error_of({"toy", {{"warps", 4}, {"rows", 1}}}), "");
  EXPECT_EQ(error_of({"other", {{"warps", 4}, {"rows", 1}}}), "config other:warps=4,rows=1: family is 'other', needed 'toy'");
  EXPECT_EQ(error_of({"toy", {{"warps", 3}, {"rows", 1}}}), "config toy:warps=3,rows=1: warps is 3, needed one of 1, 2, 4");
  EXPECT_EQ(error_of({"toy", {{"warps", 4}, {"rows", 3}}}), "config toy:warps=4,rows=3: warps * rows is 12, needed at most 6");
  EXPECT_EQ(error_of({"toy", {{"warps", 4}}}), "config toy:warps=4: has 1 parameters, needed 2");
  EXPECT_EQ(error_of({"toy", {{"warps", 4}, {"rows", 1}, {"stages", 2}}}),
            "config toy:warps=4,rows=1,stages=2: has 3 parameters, needed 2");
  EXPECT_EQ(error_of({"toy", {{"warps", 4}, {"lanes", 1}}}), "config toy:warps=4,lanes=1: parameter 1 is 'lanes', needed 'rows'");
  EXPECT_EQ(error_of({"toy", {{"rows", 1}, {"warps", 4}}}), "config toy:rows=1,warps=4: parameter 0 is 'rows', needed 'warps'");
}

TEST(SearchSpace, EnumeratesTheValidConfigsAndOnlyThose) {
  const auto all = space().enumerate();
  std::vector<std::string> texts;
  for (const Config& config : all) texts.push_back(to_string(config));
  EXPECT_EQ(texts, (std::vector<std::string>{"toy:warps=1,rows=1", "toy:warps=1,rows=3", "toy:warps=2,rows=1", "toy:warps=2,rows=3",
                                             "toy:warps=4,rows=1"}));
  for (const Config& config : all) EXPECT_EQ(error_of(config), "");
  EXPECT_EQ(space().combinations(), 6u);
}

TEST(SearchSpace, EnumerationIsOrderedWithoutRepetitionAndTheSameEveryTime) {
  const auto one = space().enumerate(), two = space().enumerate();
  EXPECT_EQ(one, two);
  EXPECT_TRUE(std::is_sorted(one.begin(), one.end()));
  EXPECT_EQ(std::set<Config>(one.begin(), one.end()).size(), one.size());
}

TEST(SearchSpace, EveryConstraintMustHold) {
  auto odd = [](const Config& c) -> std::string { return *c.find("a") % 2 == 1 ? "" : "a is even"; };
  auto large = [](const Config& c) -> std::string { return *c.find("a") > 2 ? "" : "a is small"; };
  const SearchSpace both("two", {{"a", {1, 2, 3, 4, 5}, 3}}, {odd, large});
  const auto all = both.enumerate();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(to_string(all[0]), "two:a=3");
  EXPECT_EQ(to_string(all[1]), "two:a=5");
  EXPECT_EQ(both.check({"two", {{"a", 1}}}).error().message, "config two:a=1: a is small");
  EXPECT_EQ(both.check({"two", {{"a", 4}}}).error().message, "config two:a=4: a is even");
}

TEST(SearchSpace, WithoutParametersThereIsOneConfig) {
  const SearchSpace none("none", {});
  ASSERT_EQ(none.enumerate().size(), 1u);
  EXPECT_EQ(to_string(none.enumerate()[0]), "none");
  EXPECT_EQ(none.combinations(), 1u);
  EXPECT_TRUE(none.check(none.default_config()));
}

}  // namespace
}  // namespace quern

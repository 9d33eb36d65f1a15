#include "tools/budget.h"

#include <gtest/gtest.h>

namespace quern::tools {
namespace {

TEST(Budget, TimeHasAUnit) {
  EXPECT_EQ(*parse_budget("90s"), (Budget{90.0, std::nullopt}));
  EXPECT_EQ(*parse_budget("10m"), (Budget{600.0, std::nullopt}));
  EXPECT_EQ(*parse_budget("1.5h"), (Budget{5400.0, std::nullopt}));
}

TEST(Budget, APlainNumberCountsCandidates) { EXPECT_EQ(*parse_budget("200"), (Budget{std::nullopt, 200})); }

TEST(Budget, RefusesNothingNegativeAndNotANumber) {
  for (const char* text :
       {"", "-1", "0", "0s", "-5m", "nan", "nans", "inf", "infs", "1.5", "10x", "10ms", "m", "1e400s", "99999999h", " 10m"})
    EXPECT_FALSE(parse_budget(text)) << text;
}

TEST(Budget, TheMessageNamesWhatWasFound) { EXPECT_NE(parse_budget("-1").error().message.find("'-1'"), std::string::npos); }

}  // namespace
}  // namespace quern::tools

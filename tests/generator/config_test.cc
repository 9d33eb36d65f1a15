#include "quern/config.h"

#include <gtest/gtest.h>

#include <limits>

namespace quern {
namespace {

TEST(ConfigText, ReadsBack) {
  const Config configs[] = {{"generic", {}},
                            {"gemm", {{"warps", 4}}},
                            {"gemv_q8", {{"warps", 4}, {"rows", 2}, {"offset", -1}}},
                            {"f", {{"min", std::numeric_limits<std::int64_t>::min()}, {"max", std::numeric_limits<std::int64_t>::max()}}}};
  for (const Config& config : configs) {
    const auto back = parse_config(to_string(config));
    ASSERT_TRUE(back) << to_string(config) << ": " << back.error().message;
    EXPECT_EQ(*back, config) << to_string(config);
  }
  EXPECT_EQ(to_string(configs[2]), "gemv_q8:warps=4,rows=2,offset=-1");
  EXPECT_EQ(to_string(configs[0]), "generic");
}

TEST(ConfigText, OrderOfValuesIsKeptAndMatters) {
  const auto one = parse_config("f:a=1,b=2"), two = parse_config("f:b=2,a=1");
  ASSERT_TRUE(one && two);
  EXPECT_NE(*one, *two);
  EXPECT_LT(*one, *two);
}

TEST(ConfigText, NamesThePieceThatDoesNotParse) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "config: found '', needed 'family:name=value,...'"},
      {":a=1", "config: found ':a=1', needed 'family:name=value,...'"},
      {"f:", "config: found '', needed 'name=integer'"},
      {"f:a", "config: found 'a', needed 'name=integer'"},
      {"f:a=", "config: found 'a=', needed 'name=integer'"},
      {"f:=1", "config: found '=1', needed 'name=integer'"},
      {"f:a=1,", "config: found '', needed 'name=integer'"},
      {"f:a=1,,b=2", "config: found '', needed 'name=integer'"},
      {"f:a=1x", "config: found 'a=1x', needed 'name=integer'"},
      {"f:a=1.5", "config: found 'a=1.5', needed 'name=integer'"},
      {"f:a= 1", "config: found 'a= 1', needed 'name=integer'"},
      {"f:a=1=2", "config: found 'a=1=2', needed 'name=integer'"},
      {"f:a=1,b=9223372036854775808", "config: found 'b=9223372036854775808', needed 'name=integer'"},
  };
  for (const auto& [text, message] : cases) {
    const auto config = parse_config(text);
    ASSERT_FALSE(config) << text;
    EXPECT_EQ(config.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(config.error().message, message);
  }
}

TEST(Config, FindsValuesByName) {
  const Config config{"f", {{"a", 1}, {"b", 0}}};
  EXPECT_EQ(config.find("b"), 0);
  EXPECT_EQ(config.find("c"), std::nullopt);
  EXPECT_EQ(config.find(""), std::nullopt);
}

TEST(Config, ComparesFamilyThenValues) {
  const Config a{"a", {{"x", 2}}}, b{"b", {{"x", 1}}}, more{"a", {{"x", 2}, {"y", 0}}};
  EXPECT_LT(a, b);
  EXPECT_LT(a, more);
  EXPECT_EQ(a, (Config{"a", {{"x", 2}}}));
}

}  // namespace
}  // namespace quern

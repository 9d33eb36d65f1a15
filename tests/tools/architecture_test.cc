#include "tools/architecture.h"

#include <gtest/gtest.h>

namespace quern::tools {
namespace {

TEST(Architecture, ReadsWithAndWithoutPrefix) {
  EXPECT_EQ(*parse_architecture("sm_80"), (Target{Target::Kind::cuda, 80, false}));
  EXPECT_EQ(*parse_architecture("120"), (Target{Target::Kind::cuda, 120, false}));
  EXPECT_EQ(*parse_architecture("sm_90a"), (Target{Target::Kind::cuda, 90, true}));
}

TEST(Architecture, RefusesWhatIsNoArchitecture) {
  for (const char* text : {"", "sm_", "sm_9", "sm_90b", "sm_90aa", "90 ", "-80", "host", "nan", "99999999999"}) {
    const auto target = parse_architecture(text);
    ASSERT_FALSE(target) << text;
    EXPECT_EQ(target.error().code, ErrorCode::kInvalidArgument) << text;
    EXPECT_NE(target.error().message.find("'" + std::string(text) + "'"), std::string::npos) << target.error().message;
  }
}

}  // namespace
}  // namespace quern::tools

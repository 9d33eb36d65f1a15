// Nothing that C++ throws gets past the border.
#include "runtime/c/border.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace quern::c {
namespace {

TEST(Guard, TurnsAnErrorIntoItsCodeMessageAndLog) {
  EXPECT_EQ(guard([]() -> Status { return Error{ErrorCode::kCompileFailed, "line", "the whole log"}; }), QUERN_COMPILE_FAILED);
  EXPECT_STREQ(quern_last_error(), "line");
  EXPECT_STREQ(quern_last_error_log(), "the whole log");
}

TEST(Guard, SuccessLeavesTheLastError) {
  (void)guard([]() -> Status { return invalid("earlier"); });
  EXPECT_EQ(guard([]() -> Status { return {}; }), QUERN_OK);
  EXPECT_STREQ(quern_last_error(), "earlier");
}

TEST(Guard, CatchesThatMemoryIsShort) {
  (void)guard([]() -> Status { return Error{ErrorCode::kCompileFailed, "earlier", "log"}; });
  EXPECT_EQ(guard([]() -> Status { throw std::bad_alloc(); }), QUERN_OUT_OF_MEMORY);
  EXPECT_STREQ(quern_last_error(), "this process is out of memory");
  EXPECT_STREQ(quern_last_error_log(), "") << "the log is not that of this error";
  EXPECT_EQ(guard([]() -> Status { return invalid("later"); }), QUERN_INVALID_ARGUMENT);
  EXPECT_STREQ(quern_last_error(), "later");
}

TEST(Guard, CatchesWhatNobodyExpected) {
  EXPECT_EQ(guard([]() -> Status { throw std::runtime_error("the reason"); }), QUERN_INTERNAL);
  EXPECT_STREQ(quern_last_error(), "a fault inside quern: the reason");
  EXPECT_EQ(guard([]() -> Status { throw 7; }), QUERN_INTERNAL);
  EXPECT_STREQ(quern_last_error(), "a fault inside quern: an exception of an unknown type");
}

TEST(Guard, CutsALongReasonShort) {
  EXPECT_EQ(guard([]() -> Status { throw std::runtime_error(std::string(1000, 'x')); }), QUERN_INTERNAL);
  EXPECT_EQ(std::string(quern_last_error()).size(), 255u);
}

}  // namespace
}  // namespace quern::c

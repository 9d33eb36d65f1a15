// Unwraps a Result that a test expects to hold.
#pragma once

#include <gtest/gtest.h>

#include <utility>

#include "quern/result.h"

namespace quern::test {

template <class T>
T take(Result<T> result) {
  EXPECT_TRUE(result) << (result ? "" : result.error().message);
  return std::move(result.value());
}

}  // namespace quern::test

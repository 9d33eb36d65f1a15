// Structs of other versions: what an older or newer caller hands over.
#include "runtime/c/structs.h"

#include <gtest/gtest.h>

namespace quern::c {
namespace {

struct First {
  std::uint32_t struct_size;
  std::uint32_t a;
};
struct Second {
  std::uint32_t struct_size;
  std::uint32_t a;
  std::uint64_t b;
};

TEST(ReadStruct, GivesAnOlderCallerTheDefaultsForWhatItLacks) {
  struct {
    First first;
    std::uint64_t behind;
  } caller = {{sizeof(First), 7}, 99};
  Second out{0, 0, 5};
  ASSERT_TRUE(read_struct(reinterpret_cast<const Second*>(&caller), sizeof(First), "s", &out));
  EXPECT_EQ(out.a, 7u);
  EXPECT_EQ(out.b, 0u) << "read behind the caller's struct";
}

TEST(ReadStruct, TakesANewerCallerThatUsesNothingNew) {
  const Second caller{sizeof(Second), 7, 0};
  First out{};
  ASSERT_TRUE(read_struct(reinterpret_cast<const First*>(&caller), sizeof(First), "s", &out));
  EXPECT_EQ(out.a, 7u);
}

TEST(ReadStruct, RefusesANewerCallerThatUsesSomethingNew) {
  const Second caller{sizeof(Second), 7, std::uint64_t{1} << 63};
  First out{};
  const Status read = read_struct(reinterpret_cast<const First*>(&caller), sizeof(First), "s", &out);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(read.error().message, "s uses fields of a newer version: struct_size is 16, this library knows 8 bytes");
}

TEST(ReadStruct, RefusesASizeThatNoVersionHas) {
  for (const std::uint32_t size : {0u, 4u, 7u, 4097u, 0xFFFFFFFFu}) {
    const First caller{size, 7};
    First out{};
    const Status read = read_struct(&caller, sizeof(First), "s", &out);
    ASSERT_FALSE(read) << size;
    EXPECT_EQ(read.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(read.error().message, "s's struct_size is " + std::to_string(size) + ", needed " +
                                        (size < 8 ? "at least 8" : "at most 4096") + ": set it with the init function");
  }
}

TEST(WriteStruct, FillsNoMoreThanTheCallerHas) {
  struct {
    First first;
    std::uint64_t behind;
  } caller = {{sizeof(First), 0}, 99};
  ASSERT_TRUE(write_struct(Second{sizeof(Second), 7, 8}, sizeof(First), "s", reinterpret_cast<Second*>(&caller)));
  EXPECT_EQ(caller.first.a, 7u);
  EXPECT_EQ(caller.first.struct_size, sizeof(First));
  EXPECT_EQ(caller.behind, 99u);
}

TEST(WriteStruct, ClearsWhatANewerCallerHasBeyond) {
  Second caller{sizeof(Second), 0, 99};
  ASSERT_TRUE(write_struct(First{sizeof(First), 7}, sizeof(First), "s", reinterpret_cast<First*>(&caller)));
  EXPECT_EQ(caller.a, 7u);
  EXPECT_EQ(caller.b, 0u);
  EXPECT_EQ(caller.struct_size, sizeof(Second));
}

TEST(Fits, WhatIsUnsetMayBeLeftOut) {
  EXPECT_TRUE(fits(Second{sizeof(Second), 7, 0}, sizeof(First)));
  EXPECT_FALSE(fits(Second{sizeof(Second), 7, 1}, sizeof(First)));
  EXPECT_TRUE(fits(Second{sizeof(Second), 7, 1}, sizeof(Second)));
}

}  // namespace
}  // namespace quern::c

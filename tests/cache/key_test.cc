#include "cache/key.h"

#include <gtest/gtest.h>

#include <set>

#include "quern/problem.h"
#include "quern/target.h"
#include "tests/cache/store_fixture.h"

namespace quern::cache {
namespace {

// Computed apart from this code: SHA-256 of le64(6) "source" le64(6) "int x;" le64(6) "target" le64(6) "sm_90a".
TEST(Key, IsSha256OfTagLengthAndBytes) {
  KeyBuilder builder;
  builder.field("source", "int x;").field("target", "sm_90a");
  EXPECT_EQ(builder.finish().hex(), "8f3f7a0544d8c2a801e0b42560d26b45c82a9060836725aa82c528df2ac1b4bb");
  EXPECT_EQ(builder.dump(), "source: 6 e13e332bd08e13cb\ntarget: 6 fc0ca84dbdced522\n");
}

TEST(Key, HexReadsBack) {
  const Key key = sample_key(1);
  EXPECT_EQ(Key::from_hex(key.hex()), key);
  EXPECT_FALSE(Key::from_hex(key.hex().substr(1)));
  EXPECT_FALSE(Key::from_hex(std::string(63, '0') + "g"));
}

TEST(Key, MovingBytesBetweenFieldsChangesIt) {
  std::set<Key> keys;
  keys.insert(KeyBuilder().field("a", "bc").field("d", "e").finish());
  keys.insert(KeyBuilder().field("a", "b").field("cd", "e").finish());
  keys.insert(KeyBuilder().field("ab", "c").field("d", "e").finish());
  keys.insert(KeyBuilder().field("a", "bcde").finish());
  keys.insert(KeyBuilder().field("d", "e").field("a", "bc").finish());
  keys.insert(KeyBuilder().field("a", "bc").field("d", "e").field("", "").finish());
  EXPECT_EQ(keys.size(), 6u);
}

// Field case 32: same parameters, another template text -> another key; likewise for every other field, changed singly.
TEST(Key, EveryFieldChangedSinglyMisses) {
  const std::vector<std::pair<std::string, std::string>> fields = {{"source", "kernel(4)"},    {"header decode.cuh", "text"},
                                                                   {"option", "-O3"},          {"target", "sm_80"},
                                                                   {"compiler", "NVRTC 13.0"}, {"generator", "1"}};
  const auto key_with = [&](std::size_t changed) {
    KeyBuilder builder;
    for (std::size_t i = 0; i < fields.size(); ++i) builder.field(fields[i].first, fields[i].second + (i == changed ? " " : ""));
    return builder.finish();
  };
  TempDir dir;
  auto store = Store::open(options_for(dir.path()));
  ASSERT_TRUE(store->put_artifact(key_with(fields.size()), sample_artifact(1)));
  EXPECT_TRUE(store->find_artifact(key_with(fields.size())));
  for (std::size_t i = 0; i < fields.size(); ++i) EXPECT_FALSE(store->find_artifact(key_with(i))) << fields[i].first;
}

// Field case 32 (T-MAC#66, flashinfer#3363): every field of the problem, and of the device, is part of a tuning's key.
TEST(TuningKey, EveryFieldOfProblemAndDeviceChangedSinglyMisses) {
  Problem base;
  base.n = 4096, base.k = 4096, base.batch2 = 2, base.batch3 = 2;
  std::vector<Problem> problems(14, base);
  problems[0].op = Op::dequantize, problems[1].type = WeightType::q8_0, problems[2].layout = Layout::gguf, problems[3].m = 2;
  problems[4].n = 4097, problems[5].k = 8192, problems[6].x_type = DType::f16, problems[7].y_type = DType::bf16, problems[8].bias = true;
  problems[9].accuracy = Accuracy::tight, problems[10].batch2 = 4, problems[11].batch3 = 4, problems[12].ratio2 = 2,
  problems[13].ratio3 = 2;
  const DeviceIdentity device{"NVIDIA H200", 132, 140 * 1024, 2000, "sm_90a"};
  std::vector<DeviceIdentity> devices(5, device);
  devices[0].name = "NVIDIA H100", devices[1].sm_count = 114, devices[2].memory_mib = 80 * 1024, devices[3].clock_mhz_class = 1950;
  devices[4].architecture = "sm_90";

  TempDir dir;
  auto store = Store::open(options_for(dir.path()));
  Winner winner = sample_winner(1);
  winner.key = {to_string(base), to_string(device), "1"};
  ASSERT_TRUE(store->put_winner(winner));
  EXPECT_TRUE(store->find_winner(winner.key));
  for (const auto& p : problems) EXPECT_FALSE(store->find_winner({to_string(p), to_string(device), "1"})) << to_string(p);
  for (const auto& d : devices) EXPECT_FALSE(store->find_winner({to_string(base), to_string(d), "1"})) << to_string(d);
  EXPECT_FALSE(store->find_winner({to_string(base), to_string(device), "2"}));
}

}  // namespace
}  // namespace quern::cache

// Rows of another generator, target, compiler or schema: never loaded, never deleted by the way, listed, usable again by their maker.
#include <gtest/gtest.h>

#include "cache/admin.h"
#include "cache/sqlite.h"
#include "tests/cache/store_fixture.h"

namespace quern::cache {
namespace {

StoreOptions of_generator(const std::string& version, const std::string& directory) {
  auto options = options_for(directory);
  options.generator_version = version;
  return options;
}
Artifact artifact_of(const std::string& version, int n) {
  auto artifact = sample_artifact(n);
  artifact.generator_version = version;
  return artifact;
}

class TwoGenerators : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};
INSTANTIATE_TEST_SUITE_P(BothOrders, TwoGenerators, ::testing::Values(std::pair{"1", "2"}, std::pair{"2", "1"}));

// Even under the same key, which only a forgotten field could bring about.
TEST_P(TwoGenerators, NeverMeetEachOthersRows) {
  const auto [first, second] = GetParam();
  TempDir dir;
  Winner winner = sample_winner(1);
  winner.key.generator_version = first;
  {
    auto store = Store::open(of_generator(first, dir.path()));
    ASSERT_TRUE(store->put_artifact(sample_key(1), artifact_of(first, 1)));
    ASSERT_TRUE(store->put_winner(winner));
  }
  {
    auto store = Store::open(of_generator(second, dir.path()));
    EXPECT_FALSE(store->find_artifact(sample_key(1)));
    EXPECT_FALSE(store->find_winner(sample_tuning(1, second)));
    bool made = false;
    ASSERT_TRUE(store->find_or_make(
        sample_key(1), [&]() -> Result<Artifact> { return artifact_of(second, 2); }, &made));
    EXPECT_TRUE(made);
    EXPECT_TRUE(same(store->find_artifact(sample_key(1)).value(), artifact_of(second, 2)));
  }
  auto store = Store::open(of_generator(first, dir.path()));
  ASSERT_TRUE(store->find_artifact(sample_key(1)));
  EXPECT_TRUE(same(*store->find_artifact(sample_key(1)), artifact_of(first, 1)));
  EXPECT_TRUE(same(store->find_winner(winner.key).value(), winner));
}

TEST_P(TwoGenerators, AtTheSameTimeInOneStore) {
  const auto [first, second] = GetParam();
  TempDir dir;
  auto a = Store::open(of_generator(first, dir.path()));
  auto b = Store::open(of_generator(second, dir.path()));
  for (int n = 0; n < 10; ++n) {
    ASSERT_TRUE(a->put_artifact(sample_key(n), artifact_of(first, n)));
    ASSERT_TRUE(b->put_artifact(sample_key(n), artifact_of(second, n + 100)));
  }
  for (int n = 0; n < 10; ++n) {
    EXPECT_TRUE(same(a->find_artifact(sample_key(n)).value(), artifact_of(first, n)));
    EXPECT_TRUE(same(b->find_artifact(sample_key(n)).value(), artifact_of(second, n + 100)));
  }
}

// Field case 29: architectures side by side; a foreign entry says why it is not used.
TEST(Isolation, ForeignRowsAreListedWithTheReason) {
  TempDir dir;
  auto foreign_target = sample_artifact(2), foreign_compiler = sample_artifact(3), foreign_generator = sample_artifact(4);
  foreign_target.target = "sm_80";
  foreign_compiler.compiler = "NVRTC 12.8";
  foreign_generator.generator_version = "7";
  Winner foreign_device = sample_winner(2);
  foreign_device.key.device = "NVIDIA A100";
  {
    auto store = Store::open(options_for(dir.path()));
    ASSERT_TRUE(store->put_artifact(sample_key(1), sample_artifact(1)));
    ASSERT_TRUE(store->put_artifact(sample_key(2), foreign_target));
    ASSERT_TRUE(store->put_artifact(sample_key(3), foreign_compiler));
    ASSERT_TRUE(store->put_artifact(sample_key(4), foreign_generator));
    ASSERT_TRUE(store->put_winner(sample_winner(1)));
    ASSERT_TRUE(store->put_winner(foreign_device));
    EXPECT_TRUE(store->find_artifact(sample_key(1)));
    EXPECT_TRUE(store->find_artifact(sample_key(2)));
  }
  const Running here{kGeneratorVersion, {"NVRTC 13.0"}, {"sm_90a"}, {sample_tuning(1).device}};
  const auto artifacts = list_artifacts(dir.path(), here);
  ASSERT_TRUE(artifacts);
  ASSERT_EQ(artifacts->size(), 4u);  // ordered by name
  EXPECT_TRUE((*artifacts)[0].usable);
  EXPECT_EQ((*artifacts)[0].why_not, "");
  EXPECT_EQ((*artifacts)[1].why_not, "for sm_80, here is sm_90a");
  EXPECT_EQ((*artifacts)[2].why_not, "compiled by NVRTC 12.8, here is NVRTC 13.0");
  EXPECT_EQ((*artifacts)[3].why_not, std::string("made by generator 7, this is generator ") + kGeneratorVersion);
  const auto tunings = list_tunings(dir.path(), here);
  ASSERT_TRUE(tunings);
  ASSERT_EQ(tunings->size(), 2u);  // ordered by device
  EXPECT_EQ((*tunings)[0].why_not, "measured on NVIDIA A100, here is " + sample_tuning(1).device);
  EXPECT_TRUE((*tunings)[1].usable);
}

TEST(Isolation, ANewerSchemaIsLeftAloneByteForByte) {
  TempDir dir;
  {
    auto store = Store::open(options_for(dir.path()));
    ASSERT_TRUE(store->put_artifact(sample_key(1), sample_artifact(1)));
  }
  {
    auto db = sqlite::Connection::open(store_path(dir.path()), sqlite::Connection::Mode::read_write, std::chrono::milliseconds(1000));
    ASSERT_TRUE(db);
    ASSERT_TRUE(db->execute("PRAGMA user_version = 2"));
  }
  const auto before = snapshot(dir.path());
  std::vector<std::string> warnings;
  {
    auto store = Store::open(options_for(dir.path(), &warnings));
    EXPECT_FALSE(store->find_artifact(sample_key(1)));
    EXPECT_FALSE(store->put_artifact(sample_key(2), sample_artifact(2)));
    EXPECT_FALSE(store->put_measurement(sample_measurement(1)));
    EXPECT_TRUE(store->find_or_make(
        sample_key(1), []() -> Result<Artifact> { return sample_artifact(1); }, nullptr));
  }
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("schema version 2, this quern reads version 1; left untouched"), std::string::npos) << warnings[0];
  for (const auto code : {verify(dir.path()).error().code, gc(dir.path(), {}).error().code, list_artifacts(dir.path(), {}).error().code,
                          export_store(dir.path(), dir.path("out")).error().code, show(dir.path(), "ab", {}).error().code})
    EXPECT_EQ(code, ErrorCode::kVersionMismatch);
  EXPECT_EQ(snapshot(dir.path()), before);
}

}  // namespace
}  // namespace quern::cache

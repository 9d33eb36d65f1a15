#include "runtime/lookup.h"

#include <gtest/gtest.h>

#include "fakes.h"
#include "quern/version.h"

namespace quern {
namespace {

constexpr Problem kWanted{.op = Op::mul_mat, .type = WeightType::q4_0, .m = 8, .n = 4096, .k = 4096};
const DeviceIdentity kDevice{"Fake GPU", 132, 140 * 1024, 2000, "sm_90a"};

Problem with(std::int64_t m, std::int64_t n, std::int64_t k) {
  Problem p = kWanted;
  p.m = m, p.n = n, p.k = k;
  return p;
}

TEST(TuningDistance, IsZeroForTheSameShapeAndGrowsWithEachRatio) {
  EXPECT_EQ(tuning_distance(kWanted, kWanted), 0);
  EXPECT_EQ(tuning_distance(kWanted, with(16, 4096, 4096)), 2);
  EXPECT_EQ(tuning_distance(kWanted, with(4, 4096, 4096)), 2);
  EXPECT_EQ(tuning_distance(kWanted, with(8, 8192, 4096)), 1);
  EXPECT_EQ(tuning_distance(kWanted, with(8, 4096, 1024)), 2);
  EXPECT_EQ(tuning_distance(kWanted, with(16, 2048, 8192)), 4);
}

TEST(TuningDistance, EndsWhereTheDefaultIsTheBetterGuess) {
  EXPECT_TRUE(tuning_distance(kWanted, with(16, 4096, 4096)));
  EXPECT_FALSE(tuning_distance(kWanted, with(17, 4096, 4096)));
  EXPECT_FALSE(tuning_distance(kWanted, with(3, 4096, 4096)));
  EXPECT_TRUE(tuning_distance(kWanted, with(8, 16384, 1024)));
  EXPECT_FALSE(tuning_distance(kWanted, with(8, 16416, 4096)));
  EXPECT_FALSE(tuning_distance(kWanted, with(8, 4096, 992)));
}

TEST(TuningDistance, NeedsEverythingButTheShapeToAgree) {
  const auto differs = [](auto change) {
    Problem tuned = kWanted;
    change(tuned);
    return !tuning_distance(kWanted, tuned).has_value();
  };
  EXPECT_TRUE(differs([](Problem& p) { p.op = Op::dequantize; }));
  EXPECT_TRUE(differs([](Problem& p) { p.type = WeightType::q8_0; }));
  EXPECT_TRUE(differs([](Problem& p) { p.layout = Layout::gguf; }));
  EXPECT_TRUE(differs([](Problem& p) { p.x_type = DType::bf16; }));
  EXPECT_TRUE(differs([](Problem& p) { p.y_type = DType::f16; }));
  EXPECT_TRUE(differs([](Problem& p) { p.bias = true; }));
  EXPECT_TRUE(differs([](Problem& p) { p.batch2 = 2; }));
  EXPECT_TRUE(differs([](Problem& p) { p.m = 0; }));
}

TEST(TuningDistance, AcceptsAStricterClassNeverALooserOne) {
  Problem stricter = kWanted, looser = kWanted;
  stricter.accuracy = Accuracy::tight, looser.accuracy = Accuracy::loose;
  EXPECT_TRUE(tuning_distance(kWanted, stricter));
  EXPECT_FALSE(tuning_distance(kWanted, looser));
}

struct Rows {
  test::FakeStore store;
  void add(const Problem& problem, const char* family, DeviceIdentity device = kDevice, const char* version = kGeneratorVersion) {
    store.put_winner({{to_string(problem), to_string(device), version}, {family, {}}, 1.0, std::string("artifact of ") + family, 0});
  }
};

TEST(LookUp, AnswersNothingFromAnEmptyStore) {
  Rows rows;
  const auto lookup = look_up(rows.store, kWanted, kDevice, kGeneratorVersion);
  EXPECT_TRUE(lookup.candidates.empty());
  EXPECT_EQ(lookup.note, "not tuned on this kind of device");
}

TEST(LookUp, OrdersExactThenNearestFirstWhateverTheOrderOfRows) {
  Rows rows;
  rows.add(with(16, 4096, 4096), "two_away");
  rows.add(kWanted, "exact");
  rows.add(with(8, 8192, 4096), "one_away");
  rows.add(with(64, 4096, 4096), "too_far");
  const auto lookup = look_up(rows.store, kWanted, kDevice, kGeneratorVersion);
  ASSERT_EQ(lookup.candidates.size(), 3u);
  EXPECT_EQ(lookup.candidates[0].config.family, "exact");
  EXPECT_EQ(lookup.candidates[0].provenance, Provenance::exact);
  EXPECT_EQ(lookup.candidates[0].artifact, "artifact of exact");
  EXPECT_EQ(lookup.candidates[1].config.family, "one_away");
  EXPECT_EQ(lookup.candidates[1].provenance, Provenance::nearest);
  EXPECT_EQ(lookup.candidates[2].config.family, "two_away");
  EXPECT_TRUE(lookup.note.empty());
}

TEST(LookUp, BreaksTiesByTheProblemsText) {
  Rows rows;
  rows.add(with(8, 4096, 8192), "k");
  rows.add(with(8, 8192, 4096), "n");
  const auto lookup = look_up(rows.store, kWanted, kDevice, kGeneratorVersion);
  ASSERT_EQ(lookup.candidates.size(), 2u);
  EXPECT_EQ(lookup.candidates[0].config.family, "k");  // "... n=4096 k=8192" sorts before "... n=8192 k=4096"
}

TEST(LookUp, NeverOffersARowOfAnotherDeviceOrVersion) {
  for (int field = 0; field < 5; ++field) {
    DeviceIdentity other = kDevice;
    if (field == 0) other.name = "Other";
    if (field == 1) other.sm_count = 131;
    if (field == 2) other.memory_mib = 80 * 1024;
    if (field == 3) other.clock_mhz_class = 1950;
    if (field == 4) other.architecture = "sm_80";
    Rows rows;
    rows.add(kWanted, "foreign", other);
    rows.add(with(8, 8192, 4096), "foreign_near", other);
    const auto lookup = look_up(rows.store, kWanted, kDevice, kGeneratorVersion);
    EXPECT_TRUE(lookup.candidates.empty()) << field;
    EXPECT_NE(lookup.note.find(to_string(other)), std::string::npos) << lookup.note;
  }
  Rows rows;
  rows.add(kWanted, "old", kDevice, "0");
  const auto lookup = look_up(rows.store, kWanted, kDevice, kGeneratorVersion);
  EXPECT_TRUE(lookup.candidates.empty());
  EXPECT_NE(lookup.note.find("generator version 0"), std::string::npos) << lookup.note;
}

TEST(LookUp, SkipsRowsWhoseProblemDoesNotParse) {
  Rows rows;
  rows.store.put_winner({{"mul_mat of_the_future", to_string(kDevice), kGeneratorVersion}, {"x", {}}, 1, {}, 0});
  EXPECT_TRUE(look_up(rows.store, kWanted, kDevice, kGeneratorVersion).candidates.empty());
}

}  // namespace
}  // namespace quern

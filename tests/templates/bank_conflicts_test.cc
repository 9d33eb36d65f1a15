// Which banks of shared memory and of L1 the lanes of a warp meet in, from the functions that the kernels compute their addresses with. A
// warp's 16-byte accesses are served eight lanes at a time: 128 bytes, a cycle when they lie in all of the 32 banks.
#include <gtest/gtest.h>

#include <set>

#include "decode/iq2_xxs.cuh"
#include "decode/mxfp4.cuh"
#include "decode/q4_0.cuh"
#include "decode/q4_k.cuh"
#include "decode/q8_0.cuh"
#include "families/out_prod.cuh"

namespace quern {
namespace {

constexpr OutProdTiles kTiles{128, 256, 64, 1, 0};
constexpr int kThreads = 256;
template <class D>
using Tile = WeightTile<D, PlanarLayout, true, kTiles, kThreads>;

// The least number of different 16-byte bank groups among any eight neighbours' addresses; eight is no conflict.
template <class Address>
std::size_t least_groups(const Address& address) {
  std::size_t least = 8;
  for (int first = 0; first < kThreads; first += 8) {
    std::set<int> groups;
    for (int i = first; i < first + 8; ++i) groups.insert(address(i) % 128 / 16);
    least = std::min(least, groups.size());
  }
  return least;
}

template <class D>
class BankConflicts : public testing::Test {};
using Types = testing::Types<decode::q8_0, decode::q4_0, decode::q4_k, decode::mxfp4, decode::iq2_xxs>;
TYPED_TEST_SUITE(BankConflicts, Types);

TYPED_TEST(BankConflicts, StoresOfDecodedWeightsMeetNoBankTwice) {
  using Weights = Tile<TypeParam>;
  static_assert(Weights::kAlike);
  for (int q = 0; q < 8; q += 2)
    EXPECT_EQ(least_groups([q](int i) { return Weights::behind(Weights::place_of(i, 0, 0), q); }), 8U) << "quad " << q;
}

TEST(BankConflictsOfLoads, HalvesOfQ80MeetNoBankTwice) {
  using Weights = Tile<decode::q8_0>;
  static_assert(Weights::kHalves);
  // Rows of a plane lie whole lines apart when K is a multiple of 128.
  for (int half : {0, 16})
    EXPECT_EQ(least_groups([half](int i) { return Weights::column(i) * 32 + (Weights::first_byte(i) ^ half); }), 8U) << "half " << half;
}

}  // namespace
}  // namespace quern

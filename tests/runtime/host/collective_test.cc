// Barriers and warp collectives on fibers: what they compute, and what breaks their rules.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "tests/runtime/host/host_kernel.h"

namespace quern::test {
namespace {

using Order = HostExecution::Order;

const std::vector<HostExecution> kExecutions = {
    {1, Order::forward}, {1, Order::reverse}, {1, Order::random, HostExecution::Copies::random, 7}, {2, Order::random}};

TEST(HostCollective, ShufflesOfFourAndEightBytesReadTheLaneTheyName) {
  const std::string body = R"(
    u32 v = static_cast<u32>(ptx::lane() * 10 + ptx::warp() * 1000);
    u32* y = static_cast<u32*>(args.y) + ptx::thread_x() * 4;
    y[0] = ptx::shuffle_xor(v, 5);
    y[1] = ptx::shuffle(v, 31 - ptx::lane());
    u64 wide = ptx::shuffle_xor(static_cast<u64>(v) << 32 | 7u, 16);
    y[2] = static_cast<u32>(wide >> 32);
    y[3] = ptx::bits_of(ptx::shuffle(static_cast<f32>(v), 3)) ;
  )";
  for (const auto& execution : kExecutions) {
    const auto y = HostKernel::make(body, execution).run<std::uint32_t, int>({1, 96}, {}, 96 * 4);
    for (std::uint32_t t = 0; t < 96; ++t) {
      const std::uint32_t lane = t % 32, base = t / 32 * 1000;
      EXPECT_EQ(y[t * 4], base + (lane ^ 5) * 10);
      EXPECT_EQ(y[t * 4 + 1], base + (31 - lane) * 10);
      EXPECT_EQ(y[t * 4 + 2], base + (lane ^ 16) * 10);
      float from_three = 0;
      std::memcpy(&from_three, &y[t * 4 + 3], 4);
      EXPECT_EQ(from_three, static_cast<float>(base + 30));
    }
  }
}

TEST(HostCollective, ABlockReductionThroughSharedMemoryIsTheSumInEveryOrder) {
  const std::string body = R"(
    f32* shared = reinterpret_cast<f32*>(ptx::shared_memory());
    const f32* x = static_cast<const f32*>(args.x) + ptx::block_x() * 256;
    shared[ptx::thread_x()] = x[ptx::thread_x()];
    ptx::barrier();
    f32 v = shared[255 - ptx::thread_x()];
    for (int mask = 16; mask > 0; mask /= 2) v = ptx::add(v, ptx::shuffle_xor(v, mask));
    ptx::barrier();
    if (ptx::lane() == 0) shared[ptx::warp()] = v;
    ptx::barrier();
    if (ptx::thread_x() == 0) {
      f32 sum = 0;
      for (int i = 0; i < 8; ++i) sum = ptx::add(sum, shared[i]);
      static_cast<f32*>(args.y)[ptx::block_x()] = sum;
    }
  )";
  std::vector<float> x(256 * 50);
  std::iota(x.begin(), x.end(), 1.0f);
  for (const auto& execution : kExecutions) {
    const auto y = HostKernel::make(body, execution).run<float>({50, 256, 1024}, x, 50);
    for (std::size_t b = 0; b < 50; ++b)
      EXPECT_EQ(y[b], std::accumulate(x.begin() + static_cast<long>(b) * 256, x.begin() + static_cast<long>(b + 1) * 256, 0.0f));
  }
}

}  // namespace
}  // namespace quern::test

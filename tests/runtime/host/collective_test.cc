// Barriers and warp collectives on fibers: what they compute, and what breaks their rules.
#include <gtest/gtest.h>

#include <cstdlib>
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

// a[16x16] * b[16x8] + c[16x8], the operands spread over lanes as the instruction documents, against a plain matrix product.
void check_mma(const std::string& type, std::uint32_t (*element)(int)) {
  const std::string body = R"(
    const u16* a = static_cast<const u16*>(args.x);            // [16][16]
    const u16* b = a + 256;                                    // [16][8]
    int g = ptx::lane() / 4, t = ptx::lane() % 4;
    const auto pair = [](u16 low, u16 high) { return low | static_cast<u32>(high) << 16; };
    u32 fa[4];
    for (int i = 0; i < 4; ++i) {
      const u16* p = a + (g + 8 * (i % 2)) * 16 + 2 * t + 8 * (i / 2);
      fa[i] = pair(p[0], p[1]);
    }
    u32 b0 = pair(b[2 * t * 8 + g], b[(2 * t + 1) * 8 + g]), b1 = pair(b[(2 * t + 8) * 8 + g], b[(2 * t + 9) * 8 + g]);
    f32 c[4];
    for (int i = 0; i < 4; ++i) c[i] = static_cast<f32>((g + 8 * (i / 2)) * 8 + 2 * t + i % 2);
    ptx::mma_)" + type + R"((c, fa, b0, b1);
    f32* y = static_cast<f32*>(args.y) + ptx::warp() * 128;
    for (int i = 0; i < 4; ++i) y[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2] = c[i];
  )";
  // Small integers: every product and sum is exact, so that one wrong place shows.
  std::vector<std::uint16_t> x(256 + 128);
  std::vector<int> value(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    value[i] = static_cast<int>((i * 7 + i / 16 * 5) % 15) - 7;
    x[i] = static_cast<std::uint16_t>(element(value[i]));
  }
  for (const auto& execution : kExecutions) {
    const auto y = HostKernel::make(body, execution).run<float>({1, 64}, x, 256);
    for (int warp = 0; warp < 2; ++warp)
      for (int row = 0; row < 16; ++row)
        for (int column = 0; column < 8; ++column) {
          int sum = row * 8 + column;
          for (int k = 0; k < 16; ++k)
            sum += value[static_cast<std::size_t>(row * 16 + k)] * value[static_cast<std::size_t>(256 + k * 8 + column)];
          ASSERT_EQ(y[static_cast<std::size_t>(warp * 128 + row * 8 + column)], static_cast<float>(sum)) << row << "," << column;
        }
  }
}

// Patterns of the integers -7..7.
std::uint32_t half_of_int(int v) {
  static const std::uint32_t kPatterns[] = {0, 0x3c00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600, 0x4700};
  return kPatterns[std::abs(v)] | (v < 0 ? 0x8000u : 0u);
}
std::uint32_t brain_of_int(int v) {
  const float f = static_cast<float>(v);
  std::uint32_t bits = 0;
  std::memcpy(&bits, &f, 4);
  return bits >> 16;
}

TEST(HostCollective, MmaOfF16IsTheMatrixProduct) { check_mma("f16", half_of_int); }
TEST(HostCollective, MmaOfBf16IsTheMatrixProduct) { check_mma("bf16", brain_of_int); }

// a[16x32] * b[32x8] + c[16x8] of bytes, b given by columns.
TEST(HostCollective, MmaOfBytesIsTheMatrixProduct) {
  const std::string body = R"(
    const u32* a = static_cast<const u32*>(args.x);   // [16][32 bytes]
    const u32* b = a + 128;                            // [8 columns][32 bytes]
    int g = ptx::lane() / 4, t = ptx::lane() % 4;
    u32 fa[4] = {a[g * 8 + t], a[(g + 8) * 8 + t], a[g * 8 + 4 + t], a[(g + 8) * 8 + 4 + t]};
    i32 c[4];
    for (int i = 0; i < 4; ++i) c[i] = (g + 8 * (i / 2)) * 8 + 2 * t + i % 2;
    ptx::mma_s8(c, fa, b[g * 8 + t], b[g * 8 + 4 + t]);
    f32* y = static_cast<f32*>(args.y) + ptx::warp() * 128;
    for (int i = 0; i < 4; ++i) y[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2] = static_cast<f32>(c[i]);
  )";
  std::vector<std::int8_t> x(16 * 32 + 8 * 32);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<std::int8_t>(static_cast<int>(i * 37 + i / 32 * 11) % 256 - 128);
  for (const auto& execution : kExecutions) {
    const auto y = HostKernel::make(body, execution).run<float>({1, 64}, x, 256);
    for (int warp = 0; warp < 2; ++warp)
      for (int row = 0; row < 16; ++row)
        for (int column = 0; column < 8; ++column) {
          int sum = row * 8 + column;
          for (int k = 0; k < 32; ++k)
            sum += x[static_cast<std::size_t>(row * 32 + k)] * x[static_cast<std::size_t>(512 + column * 32 + k)];
          ASSERT_EQ(y[static_cast<std::size_t>(warp * 128 + row * 8 + column)], static_cast<float>(sum)) << row << "," << column;
        }
  }
}

TEST(HostCollective, LdmatrixGivesEachLaneTwoNeighboursOfItsRow) {
  const std::string body = R"(
    u16* shared = reinterpret_cast<u16*>(ptx::shared_memory());
    for (int i = ptx::lane(); i < 32 * 8; i += 32) shared[i] = static_cast<u16>(i);
    ptx::warp_barrier();
    u32 r[4];
    ptx::ldmatrix_x4(r, shared + ((ptx::lane() * 5) % 32) * 8);  // rows in another order: 5 is odd, so every row once
    for (int i = 0; i < 4; ++i) static_cast<u32*>(args.y)[ptx::lane() * 4 + i] = r[i];
  )";
  const auto y = HostKernel::make(body, {1, Order::reverse}).run<std::uint32_t, int>({1, 32, 512}, {}, 128);
  for (std::uint32_t lane = 0; lane < 32; ++lane)
    for (std::uint32_t matrix = 0; matrix < 4; ++matrix) {
      const std::uint32_t row = (matrix * 8 + lane / 4) * 5 % 32, first = row * 8 + lane % 4 * 2;
      EXPECT_EQ(y[lane * 4 + matrix], first | (first + 1) << 16) << lane << " " << matrix;
    }
}

std::string launch_error(const std::string& body, const Geometry& geometry, const HostExecution& execution = {}) {
  KernelArgs args{};
  alignas(16) static unsigned char bytes[4096];
  args.x = args.y = bytes;
  const Status status = HostKernel::make(body, execution, 256).launch(geometry, args);
  if (status) return "succeeded";
  EXPECT_EQ(status.error().code, ErrorCode::kLaunchFailed);
  return status.error().message;
}

TEST(HostCollective, LanesThatMeetInDifferentCollectivesAreAnError) {
  const std::string message = launch_error(R"(
    f32 v = 1;
    if (ptx::lane() < 16) v = ptx::shuffle(v, 0); else v = ptx::shuffle_xor(v, 1);
    static_cast<f32*>(args.y)[ptx::thread_x()] = v;
  )",
                                           {1, 32});
  EXPECT_NE(message.find("kernel quern_main, block 0: divergent warp collective"), std::string::npos) << message;
  EXPECT_NE(message.find("shuffle_xor of 4 bytes"), std::string::npos) << message;
}

TEST(HostCollective, LanesThatReturnBeforeACollectiveAreAnErrorNotAHang) {
  const std::string message =
      launch_error("if (ptx::lane() < 4) return; static_cast<f32*>(args.y)[ptx::thread_x()] = ptx::shuffle(1.0f, 5);", {3, 64});
  EXPECT_NE(message.find("divergent warp collective: of warp 0 28 lanes wait in shuffle, 0 at a barrier, 4 have returned"),
            std::string::npos)
      << message;
}

TEST(HostCollective, ABarrierThatAWarpNeverReachesIsAnErrorNotAHang) {
  const std::string message = launch_error("if (ptx::warp() != 1) ptx::barrier();", {1, 96});
  EXPECT_NE(message.find("divergent barrier: 64 of 96 threads wait at a barrier, 32 have returned"), std::string::npos) << message;
  const std::string half = launch_error("if (ptx::lane() < 16) ptx::barrier();", {1, 32}, {1, Order::reverse});
  EXPECT_NE(half.find("divergent barrier: of warp 0 16 at a barrier, 16 have returned"), std::string::npos) << half;
}

// A launch that fails leaves nothing behind: the same device runs the next one.
TEST(HostCollective, ADeviceRunsOnAfterAFailedLaunch) {
  const auto kernel = HostKernel::make(R"(
    if (args.k != 0 && ptx::lane() == 0) return;
    static_cast<u32*>(args.y)[ptx::thread_x()] = ptx::shuffle_xor(static_cast<u32>(ptx::lane()), 1);
  )");
  for (int round = 0; round < 3; ++round) {
    std::uint32_t y[64] = {};
    KernelArgs args{};
    args.y = y;
    args.k = 1;
    EXPECT_FALSE(kernel.launch({1, 64}, args));
    args.k = 0;
    EXPECT_TRUE(kernel.launch({1, 64}, args));
    for (std::uint32_t i = 0; i < 64; ++i) EXPECT_EQ(y[i], (i % 32) ^ 1u);
  }
}

}  // namespace
}  // namespace quern::test

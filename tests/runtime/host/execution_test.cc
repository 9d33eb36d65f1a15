// How the host runs launches: what it shows of a kernel's mistakes, and that blocks, threads and orders change nothing for a right one.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <thread>

#include "tests/runtime/host/host_kernel.h"

namespace quern::test {
namespace {

using Order = HostExecution::Order;
using Copies = HostExecution::Copies;

HostExecution execution(int threads, Order order, Copies copies = Copies::deferred, std::uint64_t seed = 1) {
  return {threads, order, copies, seed};
}

TEST(HostExecution, UnwrittenSharedMemoryReadsAsNanInEveryBlock) {
  const std::string body = R"(
    f32* shared = reinterpret_cast<f32*>(ptx::shared_memory());
    static_cast<f32*>(args.y)[ptx::block_x() * 32 + ptx::thread_x()] = shared[ptx::thread_x()];
    ptx::barrier();
    shared[ptx::thread_x()] = 1.0f;  // must not show in the next block
  )";
  for (float v : HostKernel::make(body, execution(1, Order::forward)).run<float, int>({4, 32, 128}, {}, 128)) EXPECT_TRUE(std::isnan(v));
}

TEST(HostExecution, SharedMemoryIsAligned1024AndPrivateToABlock) {
  const std::string body = R"(
    i64* shared = reinterpret_cast<i64*>(ptx::shared_memory());
    if (reinterpret_cast<u64>(shared) % 1024 != 0) return;
    if (ptx::thread_x() == 0) shared[0] = ptx::block_x() * 3;
    ptx::barrier();
    static_cast<i64*>(args.y)[ptx::block_x() * 64 + ptx::thread_x()] = shared[0];
  )";
  const auto y = HostKernel::make(body, execution(4, Order::random)).run<std::int64_t, int>({500, 64, 8}, {}, 500 * 64);
  for (std::size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], static_cast<std::int64_t>(i / 64 * 3));
}

// A warp reads what another wrote, without a barrier between.
const char* const kMissingBarrier = R"(
  f32* shared = reinterpret_cast<f32*>(ptx::shared_memory());
  shared[ptx::thread_x()] = static_cast<f32>(ptx::thread_x());
  if (args.k != 0) ptx::barrier();
  static_cast<f32*>(args.y)[ptx::thread_x()] = shared[ptx::thread_x() ^ 32];
)";

int wrong_results(const char* body, const HostExecution& how, long long with_barrier) {
  const auto kernel = HostKernel::make(body, how);
  float y[128];
  KernelArgs args{};
  args.y = y;
  args.k = with_barrier;
  const Status status = kernel.launch({1, 128, 512}, args);
  if (!status) ADD_FAILURE() << status.error().message;
  int wrong = 0;
  for (int i = 0; i < 128; ++i) wrong += y[i] != static_cast<float>(i ^ 32);
  return wrong;
}

TEST(HostExecution, EveryOrderShowsAMissingBarrierAndNoneABarrierInPlace) {
  for (Order order : {Order::forward, Order::reverse, Order::random}) {
    EXPECT_GT(wrong_results(kMissingBarrier, execution(1, order), 0), 0);
    EXPECT_EQ(wrong_results(kMissingBarrier, execution(1, order), 1), 0);
  }
}

// Written by the first warp, read by the last: the forward order hides it, the others do not.
TEST(HostExecution, ReverseAndRandomOrdersShowWhatTheForwardOrderHides) {
  const char* const body = R"(
    f32* shared = reinterpret_cast<f32*>(ptx::shared_memory());
    if (ptx::warp() == 0) for (int i = ptx::lane(); i < 128; i += 32) shared[i] = static_cast<f32>(i);
    static_cast<f32*>(args.y)[ptx::thread_x()] = shared[ptx::thread_x() ^ 32];
  )";
  EXPECT_GT(wrong_results(body, execution(1, Order::reverse), 0), 0);
  EXPECT_GT(wrong_results(body, execution(1, Order::random, Copies::deferred, 3), 0), 0);
}

TEST(HostExecution, TheSameSeedRunsTheSame) {
  const std::string body = R"(
    u32* shared = reinterpret_cast<u32*>(ptx::shared_memory());
    ptx::barrier();
    shared[0] = shared[0] * 31u + static_cast<u32>(ptx::thread_x());  // depends on the order alone
    ptx::barrier();
    static_cast<u32*>(args.y)[ptx::block_x()] = shared[0];
  )";
  const auto first = HostKernel::make(body, execution(1, Order::random, Copies::deferred, 5)).run<std::uint32_t, int>({20, 96, 4}, {}, 20);
  EXPECT_EQ(first, (HostKernel::make(body, execution(2, Order::random, Copies::deferred, 5)).run<std::uint32_t, int>({20, 96, 4}, {}, 20)));
  EXPECT_NE(first, (HostKernel::make(body, execution(1, Order::random, Copies::deferred, 6)).run<std::uint32_t, int>({20, 96, 4}, {}, 20)));
}

// Each lane copies 16 bytes and reads them back; args.k: 0 without a wait, 1 with a wait for all, 2 with a wait that leaves the last group
// in flight.
const char* const kAsyncCopy = R"(
  u8* shared = ptx::shared_memory() + ptx::thread_x() * 32;
  const u8* x = static_cast<const u8*>(args.x) + ptx::thread_x() * 32;
  ptx::cp_async16(shared, x);
  ptx::cp_async_commit();
  ptx::cp_async_zero16(shared + 16, x + 16, 5);
  ptx::cp_async_commit();
  if (args.k == 1) ptx::cp_async_wait<0>();
  if (args.k == 2) ptx::cp_async_wait<1>();
  for (int i = 0; i < 2; ++i) static_cast<u32x4*>(args.y)[ptx::thread_x() * 2 + i] = reinterpret_cast<const u32x4*>(shared)[i];
)";

std::vector<unsigned char> async_copy(Copies copies, long long waits) {
  const auto kernel = HostKernel::make(kAsyncCopy, execution(1, Order::forward, copies));
  alignas(16) unsigned char x[32 * 32];
  for (std::size_t i = 0; i < sizeof x; ++i) x[i] = static_cast<unsigned char>(i % 200 + 1);
  std::vector<unsigned char> y(sizeof x + 16);
  KernelArgs args{};
  args.x = x;
  void* aligned = y.data();
  std::size_t space = y.size();
  args.y = std::align(16, sizeof x, aligned, space);
  args.k = waits;
  const Status status = kernel.launch({1, 32, 1024}, args);
  if (!status) ADD_FAILURE() << status.error().message;
  return {static_cast<unsigned char*>(args.y), static_cast<unsigned char*>(args.y) + sizeof x};
}

TEST(HostExecution, AnAsyncCopyThatIsNotWaitedForShowsStaleBytes) {
  const auto all = async_copy(Copies::deferred, 1), none = async_copy(Copies::deferred, 0), first = async_copy(Copies::deferred, 2);
  EXPECT_EQ(async_copy(Copies::eager, 0), all);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::size_t at = i % 32;
    const auto source = static_cast<unsigned char>(i % 200 + 1);
    EXPECT_EQ(all[i], at < 16 + 5 ? source : 0);
    EXPECT_EQ(none[i], 0xff);
    EXPECT_EQ(first[i], at < 16 ? source : 0xff);
  }
}

std::string launch_error(const std::string& body, const Geometry& geometry, int max_threads = 1024) {
  alignas(16) static unsigned char bytes[4096];
  KernelArgs args{};
  args.x = args.y = bytes;
  const Status status = HostKernel::make(body, {}, max_threads).launch(geometry, args);
  return status ? "succeeded" : status.error().message;
}

TEST(HostExecution, MisalignedLoadsAndStrayCopiesEndTheLaunch) {
  const auto contains = [](const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; };
  const std::string load =
      "static_cast<u32*>(args.y)[0] = ptx::load_stream(reinterpret_cast<const u32*>(static_cast<const u8*>(args.x) + 2));";
  EXPECT_TRUE(contains(launch_error(load, {1, 32}), "block 0: misaligned load at 0x")) << launch_error(load, {1, 32});
  const std::string wide =
      "static_cast<u32x4*>(args.y)[0] = ptx::load_cached(reinterpret_cast<const u32x4*>(static_cast<const u8*>(args.x) + 8));";
  EXPECT_TRUE(contains(launch_error(wide, {1, 32}), "misaligned load"));
  const std::string fine =
      "static_cast<u16*>(args.y)[0] = ptx::load_stream(reinterpret_cast<const u16*>(static_cast<const u8*>(args.x) + 2));";
  EXPECT_EQ(launch_error(fine, {1, 32}), "succeeded");
  EXPECT_TRUE(
      contains(launch_error("ptx::cp_async16(ptx::shared_memory() + 112, args.x);", {1, 32, 120}), "16-byte access outside shared memory"));
  EXPECT_TRUE(contains(launch_error("ptx::cp_async16(ptx::shared_memory() + 8, args.x);", {1, 32, 120}), "misaligned shared address"));
}

#ifndef QUERN_SANITIZE  // there, the write itself is caught
TEST(HostExecution, AWritePastSharedMemoryEndsTheLaunch) {
  const std::string message = launch_error("ptx::shared_memory()[100 + ptx::block_x()] = 1;", {1, 32, 100});
  EXPECT_NE(message.find("wrote past its 100 bytes of shared memory"), std::string::npos) << message;
  EXPECT_EQ(launch_error("ptx::shared_memory()[99] = 1;", {1, 32, 100}), "succeeded");
}
#endif

TEST(HostExecution, LaunchesOutsideTheKernelsBoundsAreRefused) {
  EXPECT_NE(launch_error("", {1, 128}, 64).find("block of 128 threads, launch bound 64"), std::string::npos);
  EXPECT_NE(launch_error("", {1, 48}).find("block of 48 threads, needed a multiple of 32 up to 1024"), std::string::npos);
  EXPECT_NE(launch_error("", {0, 32}).find("grid of 0 x 1 blocks"), std::string::npos);
}

TEST(HostExecution, ABlockOf1024ThreadsKeepsEveryLaneApart) {
  const auto y = HostKernel::make(R"(
    int local[8];
    for (int i = 0; i < 8; ++i) local[i] = ptx::thread_x() * 8 + i;
    ptx::barrier();
    int sum = 0;
    for (int i = 0; i < 8; ++i) sum += ptx::shuffle_xor(local[i], 1);
    ptx::barrier();
    static_cast<int*>(args.y)[ptx::thread_x()] = sum;
  )",
                                  execution(1, Order::random))
                     .run<int, int>({1, 1024}, {}, 1024);
  for (int t = 0; t < 1024; ++t) EXPECT_EQ(y[static_cast<std::size_t>(t)], (t ^ 1) * 64 + 28);
}

TEST(HostExecution, ThreeHundredThousandBlocksEachRunOnce) {
  constexpr std::uint32_t kBlocks = 300000;
  std::vector<std::uint32_t> count(kBlocks);
  KernelArgs args{};
  args.y = count.data();
  const auto kernel = HostKernel::make("if (ptx::thread_x() == 0) static_cast<u32*>(args.y)[ptx::block_x()] += 1;");
  ASSERT_TRUE(kernel.launch({kBlocks, 32}, args));
  for (std::uint32_t i = 0; i < kBlocks; ++i) ASSERT_EQ(count[i], 1u) << i;
}

TEST(HostExecution, AFailingBlockAmongManyEndsTheLaunchWithItsNumber) {
  const std::string message = launch_error("if (ptx::block_x() == 777 && ptx::lane() == 0) return; ptx::warp_barrier();", {2000, 32});
  EXPECT_NE(message.find("kernel quern_main, block 777: divergent"), std::string::npos) << message;
}

TEST(HostExecution, LaunchesFromSeveralThreadsDoNotMix) {
  const auto kernel = HostKernel::make(R"(
    u32* shared = reinterpret_cast<u32*>(ptx::shared_memory());
    shared[ptx::thread_x()] = static_cast<u32>(args.k);
    ptx::barrier();
    static_cast<u32*>(args.y)[ptx::block_x() * 64 + ptx::thread_x()] = shared[63 - ptx::thread_x()] + ptx::shuffle_xor(static_cast<u32>(ptx::thread_x()), 1);
  )",
                                       execution(2, Order::forward));
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (std::uint32_t id = 0; id < 4; ++id)
    threads.emplace_back([&, id] {
      for (int round = 0; round < 50; ++round) {
        std::vector<std::uint32_t> y(20 * 64);
        KernelArgs args{};
        args.y = y.data();
        args.k = id * 1000;
        if (!kernel.launch({20, 64, 256}, args)) ++wrong[id];
        for (std::uint32_t i = 0; i < y.size(); ++i) wrong[id] += y[i] != id * 1000 + ((i % 64) ^ 1u);
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

TEST(HostDevice, DescribesItselfAndTimesLaunches) {
  auto device = open_host_device(plugin_paths());
  ASSERT_TRUE(device) << device.error().message;
  const DeviceInfo& info = (*device)->info();
  EXPECT_EQ(info.spec, "host");
  EXPECT_EQ(info.target.kind, Target::Kind::host);
  EXPECT_EQ(info.identity.architecture, "host");
  EXPECT_GE(info.identity.sm_count, 1);
  EXPECT_GT(info.memory_bytes, 0);
  auto binary = compile_source(kernel_source("static_cast<u32*>(args.y)[0] += 1;", 32));
  ASSERT_TRUE(binary);
  auto module = (*device)->load(*binary);
  ASSERT_TRUE(module);
  auto function = (*module)->function("quern_main", 0);
  ASSERT_TRUE(function);
  auto missing = (*module)->function("other", 0);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(missing.error().message, "the binary has no kernel 'other'");

  std::uint32_t count = 0;
  Launch launch{*function, {}, {}};
  launch.step.entry = "quern_main";
  launch.step.block.x = 32;
  launch.args.y = &count;
  const std::vector<std::vector<Launch>> ops(3, {launch});
  auto timing = (*device)->time(ops, 4, 10.0);
  ASSERT_TRUE(timing);
  EXPECT_EQ(timing->samples, 4);
  EXPECT_EQ(count, 32u * 3 * 5);  // four samples and the warm-up
  EXPECT_GT(timing->us_median, 0);
  EXPECT_LE(timing->us_p10, timing->us_median);
  EXPECT_LE(timing->us_median, timing->us_p90);
}

TEST(HostDevice, BuffersHoldWhatIsCopiedAndFilled) {
  auto device = open_host_device(plugin_paths());
  ASSERT_TRUE(device);
  auto a = (*device)->allocate(1001), b = (*device)->allocate(1001);
  ASSERT_TRUE(a && b);
  EXPECT_EQ((*a)->size(), 1001u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>((*a)->data()) % 256, 0u);
  ASSERT_TRUE((*device)->fill((*a)->data(), 0x5a, 1001));
  ASSERT_TRUE((*device)->copy_on_device((*b)->data(), (*a)->data(), 1001));
  std::vector<unsigned char> back(1001);
  ASSERT_TRUE((*device)->copy_to_host(back.data(), (*b)->data(), 1001));
  EXPECT_EQ(back, std::vector<unsigned char>(1001, 0x5a));
}

}  // namespace
}  // namespace quern::test

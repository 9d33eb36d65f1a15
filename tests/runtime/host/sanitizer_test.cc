// Built with the sanitizers, the host target is a memory checker of kernels: each mistake ends the process with a report.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

#include "tests/runtime/host/host_kernel.h"

namespace quern::test {
namespace {

// Runs on the caller's thread with x in a device buffer of exactly `bytes`.
void run_on_buffer(const std::string& body, std::size_t bytes, const Geometry& geometry = {}) {
  auto device = open_host_device(plugin_paths());
  ASSERT_TRUE(device) << device.error().message;
  auto x = (*device)->allocate(bytes), y = (*device)->allocate(4096);
  ASSERT_TRUE(x && y);
  ASSERT_TRUE((*device)->fill((*x)->data(), 1, bytes));
  KernelArgs args{};
  args.x = args.w = (*x)->data();
  args.y = (*y)->data();
  args.k = static_cast<long long>(bytes);
  const auto kernel = HostKernel::make(body);
  const Status status = kernel.launch(geometry, args);
  ASSERT_TRUE(status) << status.error().message;
}

const char* const kReadAll = R"(
  u32 sum = 0;
  for (i64 i = ptx::thread_x(); i < args.k + EXTRA; i += 32) sum += ptx::load_stream(static_cast<const u8*>(args.w) + i);
  static_cast<u32*>(args.y)[ptx::thread_x()] = sum;
)";
std::string read_all(const char* extra) {
  std::string body = kReadAll;
  return body.replace(body.find("EXTRA"), 5, extra);
}

TEST(SanitizedKernel, OneByteReadPastAWeightBufferIsReported) {
  run_on_buffer(read_all("0"), 210);
  EXPECT_DEATH(run_on_buffer(read_all("1"), 210), "AddressSanitizer: heap-buffer-overflow");
}

TEST(SanitizedKernel, AReadPastTheBufferOnASuspendedLanesFiberIsReported) {
  const std::string body = "ptx::barrier(); u32 v = ptx::shuffle_xor(static_cast<u32>(ptx::lane()), 1); ptx::barrier();" + read_all("1") +
                           "static_cast<u32*>(args.y)[0] += v;";
  EXPECT_DEATH(run_on_buffer(body, 18, {1, 64, 0}), "AddressSanitizer: heap-buffer-overflow");
}

TEST(SanitizedKernel, AWritePastSharedMemoryIsReported) {
  run_on_buffer("ptx::shared_memory()[99] = 1;", 16, {1, 32, 100});
  EXPECT_DEATH(run_on_buffer("ptx::shared_memory()[100] = 1;", 16, {1, 32, 100}), "AddressSanitizer: use-after-poison");
}

TEST(SanitizedKernel, AnAsyncCopyPastTheBufferIsReported) {
  EXPECT_DEATH(
      run_on_buffer(
          "ptx::cp_async16(ptx::shared_memory(), static_cast<const u8*>(args.w) + 32); ptx::cp_async_commit(); ptx::cp_async_wait<0>();",
          44, {1, 32, 64}),
      "AddressSanitizer: heap-buffer-overflow");
  run_on_buffer(
      "ptx::cp_async_zero16(ptx::shared_memory(), static_cast<const u8*>(args.w) + 32, 12); ptx::cp_async_commit(); "
      "ptx::cp_async_wait<0>();",
      44, {1, 32, 64});
}

// The second 210-byte block of Q6_K is only 2-byte aligned.
TEST(SanitizedKernel, A32BitLoadFromATwoByteAlignedBlockIsReported) {
  const std::string load = "static_cast<u32*>(args.y)[0] = *reinterpret_cast<const u32*>(static_cast<const u8*>(args.w) + ";
  run_on_buffer(load + "208);", 420);
  EXPECT_DEATH(run_on_buffer(load + "210);", 420), "load of misaligned address .* for type .*requires 4 byte alignment");
}

TEST(SanitizedKernel, AShiftBy32IsReported) {
  EXPECT_DEATH(run_on_buffer("static_cast<u32*>(args.y)[0] = 1u << (args.k - 64 + 32);", 64), "shift exponent 32 is too large");
}

TEST(SanitizedKernel, ALocalArrayIsFenced) {
  EXPECT_DEATH(
      run_on_buffer("volatile int a[8]; for (int i = 0; i < 8; ++i) a[i] = i; static_cast<int*>(args.y)[0] = a[args.k - 64 + 8];", 64),
      "AddressSanitizer: stack-buffer-overflow|index 8 out of bounds");
}

// Fibers, failed launches and abandoned stacks leave the sanitizer's books in order.
TEST(SanitizedKernel, ADeviceRunsOnAfterAbandonedFibers) {
  const auto kernel = HostKernel::make(R"(
    volatile int local[16];
    for (int i = 0; i < 16; ++i) local[i] = ptx::thread_x();
    if (args.k != 0 && ptx::thread_x() == 40) return;
    ptx::barrier();
    static_cast<int*>(args.y)[ptx::thread_x()] = local[ptx::thread_x() % 16];
  )");
  for (int round = 0; round < 20; ++round) {
    int y[128] = {};
    KernelArgs args{};
    args.y = y;
    args.k = 1;
    EXPECT_FALSE(kernel.launch({1, 128}, args));
    args.k = 0;
    EXPECT_TRUE(kernel.launch({1, 128}, args));
    for (int i = 0; i < 128; ++i) ASSERT_EQ(y[i], i);
  }
}

}  // namespace
}  // namespace quern::test

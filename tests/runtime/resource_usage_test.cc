#include "runtime/cuda/resource_usage.h"

#include <gtest/gtest.h>

#include <vector>

#include "runtime/compiler.h"

namespace quern::cuda {
namespace {

TEST(UsageFromLog, TakesTheLargestOverAllEntries) {
  const auto usage = usage_from_log(
      "ptxas info    : 16 bytes gmem, 8 bytes cmem[4]\n"
      "ptxas info    : Compiling entry function 'a' for 'sm_80'\n"
      "ptxas info    : Function properties for a\n"
      "    24 bytes stack frame, 12 bytes spill stores, 20 bytes spill loads\n"
      "ptxas info    : Used 255 registers, used 1 barriers, 360 bytes cmem[0]\n"
      "ptxas info    : Compiling entry function 'b' for 'sm_80'\n"
      "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 40 registers, used 1 barriers, 4096 bytes smem, 360 bytes cmem[0]");
  ASSERT_TRUE(usage);
  EXPECT_EQ(*usage, (ResourceUsage{.registers = 255, .static_shared_bytes = 4096, .local_bytes = 24, .spill_bytes = 32}));
}

TEST(UsageFromLog, IsEmptyWithoutARegisterCount) {
  EXPECT_FALSE(usage_from_log(""));
  EXPECT_FALSE(usage_from_log("warning: variable declared but never referenced\n"));
  EXPECT_FALSE(usage_from_log("many registers"));
}

class UsageFromCubin : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    auto compiler = open_nvrtc({});
    if (!compiler) GTEST_SKIP() << compiler.error().message;
    KernelSource source;
    source.name = "shared and stack";
    source.text =
        "extern \"C\" __global__ void k(float* y, int i) { __shared__ float t[256]; float s[64] = {};"
        " for (int j = 0; j < i; ++j) s[(j * i) & 63] += y[j]; t[threadIdx.x] = s[i & 63]; __syncthreads(); y[threadIdx.x] = t[255 - "
        "threadIdx.x]; }"
        "extern \"C\" __global__ void small(float* y) { y[0] = 1; }";
    auto binary = (*compiler)->compile(source, {Target::Kind::cuda, GetParam(), GetParam() >= 90});
    ASSERT_TRUE(binary) << binary.error().log;
    binary_ = std::move(*binary);
  }
  Binary binary_;
};

TEST_P(UsageFromCubin, AgreesWithTheAssemblersLog) {
  const auto from_log = usage_from_log(binary_.log);
  const auto from_cubin = usage_from_cubin(binary_.bytes);
  ASSERT_TRUE(from_log && from_cubin);
  EXPECT_GT(from_log->registers, 0);
  EXPECT_EQ(from_log->static_shared_bytes, 1024);
  EXPECT_GE(from_log->local_bytes, 256);
  EXPECT_EQ(from_cubin->registers, from_log->registers);
  EXPECT_EQ(from_cubin->static_shared_bytes, from_log->static_shared_bytes);
  EXPECT_EQ(from_cubin->local_bytes, from_log->local_bytes);
}

TEST_P(UsageFromCubin, SurvivesEveryTruncationAndFlippedHeaderBytes) {
  for (std::size_t size = 0; size < binary_.bytes.size(); size += 7) {
    const std::vector<std::byte> cut(binary_.bytes.begin(), binary_.bytes.begin() + static_cast<std::ptrdiff_t>(size));
    (void)usage_from_cubin(cut);
  }
  for (std::size_t at = 0; at < 64; ++at) {
    auto flipped = binary_.bytes;
    flipped[at] ^= std::byte{0xff};
    (void)usage_from_cubin(flipped);
  }
  EXPECT_FALSE(usage_from_cubin(std::vector<std::byte>(binary_.bytes.begin(), binary_.bytes.begin() + 64)));
}

INSTANTIATE_TEST_SUITE_P(Architectures, UsageFromCubin, testing::Values(75, 80, 90, 100, 120));

}  // namespace
}  // namespace quern::cuda

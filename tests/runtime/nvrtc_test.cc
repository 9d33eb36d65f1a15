// Real compiles, where NVRTC is installed; skipped with the reason where it is not.
#include <gtest/gtest.h>

#include <thread>

#include "runtime/compiler.h"

namespace quern {
namespace {

constexpr Target cuda(int sm, bool exact = false) { return {Target::Kind::cuda, sm, exact}; }

KernelSource kernel(std::string text) {
  KernelSource source;
  source.name = "probe";
  source.text = std::move(text);
  return source;
}

KernelSource good() {
  auto source = kernel("#include \"inner/a.cuh\"\nextern \"C\" __global__ void k(float* y) { y[threadIdx.x] = scale(y[0]); }");
  source.headers = {{"inner/a.cuh", "#include \"b.cuh\"\nnamespace { float scale(float x) { return kScale * x; } }"},
                    {"b.cuh", "inline constexpr float kScale = SCALE;"}};
  source.options = {"-DSCALE=3.0f"};
  return source;
}

class Nvrtc : public testing::Test {
 protected:
  void SetUp() override {
    auto compiler = open_nvrtc({});
    if (!compiler) GTEST_SKIP() << compiler.error().message;
    compiler_ = std::move(*compiler);
  }
  std::unique_ptr<Compiler> compiler_;
};

TEST_F(Nvrtc, NamesItself) {
  EXPECT_EQ(compiler_->identity().substr(0, 6), "nvrtc ");
  EXPECT_FALSE(compiler_->architectures().empty());
}

TEST_F(Nvrtc, CompilesHeadersFromMemoryToACubin) {
  const auto binary = compiler_->compile(good(), cuda(80));
  ASSERT_TRUE(binary) << binary.error().message << binary.error().log;
  EXPECT_EQ(binary->format, Binary::Format::cubin);
  ASSERT_GT(binary->bytes.size(), 64u);
  EXPECT_EQ(binary->bytes[1], std::byte{'E'});
  EXPECT_GT(binary->usage.registers, 0);
  EXPECT_GT(binary->compile_ms, 0);
}

TEST_F(Nvrtc, CompilesForExactArchitectures) {
  auto source = kernel("extern \"C\" __global__ void k() { asm volatile(\"wgmma.fence.sync.aligned;\"); }");
  EXPECT_TRUE(compiler_->compile(source, cuda(90, true)));
  EXPECT_FALSE(compiler_->compile(source, cuda(90, false)));
}

TEST_F(Nvrtc, EmitsPtxForAGpuNewerThanItself) {
  const int newer = compiler_->architectures().back() + 10;
  const auto binary = compiler_->compile(good(), cuda(newer));
  ASSERT_TRUE(binary) << binary.error().message;
  EXPECT_EQ(binary->format, Binary::Format::ptx);
  const std::string text(reinterpret_cast<const char*>(binary->bytes.data()), binary->bytes.size());
  EXPECT_NE(text.find(".target sm_" + std::to_string(compiler_->architectures().back())), std::string::npos);
  const auto exact = compiler_->supports(cuda(newer, true));
  ASSERT_FALSE(exact);
  EXPECT_EQ(exact.error().code, ErrorCode::kUnsupported);
}

TEST_F(Nvrtc, SaysWhichArchitecturesItKnows) {
  for (const Target& target : {cuda(10), cuda(80, true), Target{}}) {
    const auto status = compiler_->supports(target);
    ASSERT_FALSE(status) << to_string(target);
    EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(status.error().message.find(to_string(target)), std::string::npos);
    EXPECT_NE(status.error().message.find("it knows sm_"), std::string::npos);
    EXPECT_FALSE(compiler_->compile(good(), target));
  }
}

TEST_F(Nvrtc, ReportsTheFirstErrorInOneLineAndKeepsTheLog) {
  const auto binary = compiler_->compile(kernel("\n\nextern \"C\" __global__ void k() { nothing_like_this(); }"), cuda(80));
  ASSERT_FALSE(binary);
  EXPECT_EQ(binary.error().code, ErrorCode::kCompileFailed);
  EXPECT_EQ(binary.error().message.find('\n'), std::string::npos);
  EXPECT_NE(binary.error().message.find("probe for sm_80"), std::string::npos) << binary.error().message;
  EXPECT_NE(binary.error().message.find("kernel.cu(3): error"), std::string::npos) << binary.error().message;
  EXPECT_NE(binary.error().log.find("nothing_like_this"), std::string::npos);
}

// Field case 22.
TEST_F(Nvrtc, NeverAnswersWithAssemblerText) {
  const auto binary =
      compiler_->compile(kernel("extern \"C\" __global__ void k() { asm volatile(\"wgmma.fence.sync.aligned;\"); }"), cuda(80));
  ASSERT_FALSE(binary);
  EXPECT_EQ(binary.error().code, ErrorCode::kCompileFailed);
  EXPECT_EQ(binary.error().message.find("ptxas"), std::string::npos) << binary.error().message;
  EXPECT_NE(binary.error().message.find("the assembler does not accept"), std::string::npos) << binary.error().message;
  EXPECT_NE(binary.error().log.find("wgmma"), std::string::npos);
}

// Field case 33: internal linkage is where NVRTC would put a random value.
TEST_F(Nvrtc, CompilesTheSameSourceToTheSameBytes) {
  auto source = kernel(
      "namespace { __device__ float table[4]; template <class T> __noinline__ T f(T x) { return x * 2; } } static __device__ int counter;"
      "extern \"C\" __global__ void k(float* y) { y[0] = f(y[1]) + table[threadIdx.x & 3]; atomicAdd(&counter, 1); }");
  const auto first = compiler_->compile(source, cuda(90)), second = compiler_->compile(source, cuda(90));
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->bytes, second->bytes);
}

TEST_F(Nvrtc, CompilesInParallel) {
  std::vector<std::thread> threads;
  std::vector<std::string> failures(8);
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      auto source = good();
      source.options = {"-DSCALE=" + std::to_string(i) + ".0f"};
      auto binary = compiler_->compile(source, cuda(i % 2 == 0 ? 80 : 90));
      if (!binary) failures[i] = binary.error().message;
    });
  for (auto& thread : threads) thread.join();
  for (const auto& failure : failures) EXPECT_EQ(failure, "");
}

TEST_F(Nvrtc, FindsNothingOnDiskThatWasNotPassed) {
  const auto binary = compiler_->compile(kernel("#include \"CMakeLists.txt\"\nextern \"C\" __global__ void k() {}"), cuda(80));
  EXPECT_FALSE(binary);
}

TEST(OpenNvrtc, NamesWhereItLooked) {
  const auto compiler = open_nvrtc({.nvrtc = "/nowhere/libnvrtc.so.13"});
  ASSERT_FALSE(compiler);
  EXPECT_EQ(compiler.error().code, ErrorCode::kEnvironment);
  EXPECT_EQ(compiler.error().message, "NVRTC not found: looked for /nowhere/libnvrtc.so.13");
}

TEST(OpenNvrtc, RefusesALibraryThatIsNotNvrtc) {
  const auto compiler = open_nvrtc({.nvrtc = "libm.so.6"});
  ASSERT_FALSE(compiler);
  EXPECT_NE(compiler.error().message.find("lacks nvrtc"), std::string::npos) << compiler.error().message;
}

}  // namespace
}  // namespace quern

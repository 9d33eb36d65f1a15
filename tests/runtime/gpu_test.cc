// The CUDA device on a real GPU; skipped with the reason where there is none.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>

#include "generator/family.h"
#include "open_gpu.h"
#include "runtime/compiler.h"
#include "runtime/context_parts.h"
#include "runtime/device.h"
#include "take.h"

namespace quern {
namespace {

using test::take;

class Gpu : public testing::Test {
 protected:
  void SetUp() override {
    auto gpu = test::open_gpu();
    if (!gpu.missing.empty()) GTEST_SKIP() << gpu.missing;
    device_ = std::move(gpu.device), compiler_ = std::move(gpu.compiler);
  }
  std::unique_ptr<Module> load(const std::string& body) {
    KernelSource source;
    source.name = "probe";
    source.text = "#include \"args.h\"\nextern \"C\" __global__ void k(const quern::KernelArgs args) {" + body + "}";
    source.headers = {
        {"args.h",
         "namespace quern { struct KernelArgs { const void *w, *x; void* y; const void* bias; void* workspace; long long m, n, k, ldx, "
         "ldy, "
         "w_row_bytes, batch2, batch3, ratio2, ratio3, x_stride2, x_stride3, y_stride2, y_stride3, w_stride2, w_stride3; }; }"}};
    auto binary = compiler_->compile(source, device_->info().target);
    EXPECT_TRUE(binary) << binary.error().message << binary.error().log;
    auto module = device_->load(*binary);
    EXPECT_TRUE(module) << module.error().message;
    return std::move(*module);
  }
  std::unique_ptr<Device> device_;
  std::unique_ptr<Compiler> compiler_;
};

TEST_F(Gpu, DescribesItself) {
  const auto& info = device_->info();
  EXPECT_GE(info.target.sm, 75);
  EXPECT_GT(info.identity.sm_count, 0);
  EXPECT_GT(info.identity.clock_mhz_class, 0);
  EXPECT_GT(info.l2_bytes, 0);
  EXPECT_GE(info.max_shared_bytes, 48 * 1024);
}

TEST_F(Gpu, LaunchesAKernelThatSeesItsArguments) {
  const auto module = load("static_cast<long long*>(args.y)[threadIdx.x] = args.m * 1000 + args.w_stride3 + threadIdx.x;");
  const auto buffer = take(device_->allocate(32 * 8));
  KernelArgs args{};
  args.y = buffer->data(), args.m = 7, args.w_stride3 = 100;
  ASSERT_TRUE(device_->launch(*module->function("k", 0), {"k", {1, 1, 1}, {32, 1, 1}, 0}, args, nullptr));
  ASSERT_TRUE(device_->synchronize(nullptr));
  long long out[32];
  ASSERT_TRUE(device_->copy_to_host(out, buffer->data(), sizeof out));
  for (int i = 0; i < 32; ++i) EXPECT_EQ(out[i], 7100 + i);
}

TEST_F(Gpu, LaunchesWithAllTheSharedMemoryThereIs) {
  const auto module =
      load("extern __shared__ char s[]; s[args.n - 1] = 5; __syncthreads(); static_cast<char*>(args.y)[0] = s[args.n - 1];");
  const auto bytes = static_cast<std::uint32_t>(device_->info().max_shared_bytes);
  const auto buffer = take(device_->allocate(1));
  KernelArgs args{};
  args.y = buffer->data(), args.n = bytes;
  ASSERT_TRUE(device_->launch(*module->function("k", bytes), {"k", {1, 1, 1}, {1, 1, 1}, bytes}, args, nullptr));
  char out = 0;
  ASSERT_TRUE(device_->copy_to_host(&out, buffer->data(), 1));
  EXPECT_EQ(out, 5);
  EXPECT_EQ(module->function("k", bytes + 1).error().code, ErrorCode::kUnsupported);
}

TEST_F(Gpu, TimesLongerWorkAsLonger) {
  const auto module = load("for (long long i = 0; i < args.n; ++i) static_cast<volatile int*>(args.y)[0] = i;");
  const auto buffer = take(device_->allocate(4));
  Launch one{*module->function("k", 0), {"k", {1, 1, 1}, {1, 1, 1}, 0}, {}};
  one.args.y = buffer->data();
  const auto time = [&](long long n) {
    one.args.n = n;
    const std::vector<std::vector<Launch>> ops(4, {one});
    const auto timing = device_->time(ops, 20, 1.0);
    EXPECT_TRUE(timing) << timing.error().message;
    return timing ? timing->us_median : 0;
  };
  const double shorter = time(1000), longer = time(10000);
  EXPECT_GT(shorter, 0);
  EXPECT_GT(longer, shorter * 4);
}

TEST_F(Gpu, RunsAPlannedProblemAndItsOverheadIsBelowAMicrosecond) {
  ContextParts parts;
  parts.device = take(open_device("cuda:0", {}));
  parts.store = cache::Store::open({});
  parts.compiler = std::move(compiler_);
  parts.kernels = generator_kernels();
  const Context context = make_context(std::move(parts));
  Device& device = *parts_of(context).device;
  const auto plan =
      context.plan({.op = Op::dequantize, .type = WeightType::q8_0, .layout = Layout::gguf, .n = 4, .k = 32, .accuracy = Accuracy::exact});
  ASSERT_TRUE(plan) << plan.error().message << plan.error().log;
  const auto w = take(device.allocate(4 * 34)), y = take(device.allocate(4 * 32 * 4)),
             workspace = take(device.allocate(plan->workspace_bytes()));
  ASSERT_TRUE(device.fill(w->data(), 0x3C, w->size()));
  const LaunchArgs args{
      .w = {.data = w->data()}, .y = {.data = y->data()}, .workspace = workspace->data(), .workspace_bytes = workspace->size()};
  ASSERT_TRUE(plan->launch(nullptr, args));
  std::vector<float> out(128);
  ASSERT_TRUE(device.copy_to_host(out.data(), y->data(), y->size()));
  for (float v : out) EXPECT_EQ(v, 1.05859375F * 60) << "d = fp16 0x3C3C, q = 0x3C";

  // The same kernel straight through the device, which is cuLaunchKernel behind a handful of comparisons.
  const Stream stream = *device.create_stream();
  const auto nanoseconds = [&](auto launch) {
    double best = 1e18;
    for (int round = 0; round < 20; ++round) {
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < 200; ++i) launch();
      best = std::min(best, std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() / 200);
      (void)device.synchronize(stream);
    }
    return best;
  };
  const auto source = *render(plan->problem(), context.target(), plan->config());
  const auto binary = *parts_of(context).compiler->compile(source, context.target());
  const auto module = take(device.load(binary));
  const auto function = *module->function(source.steps[0].entry, source.steps[0].shared_bytes);
  KernelArgs block{};
  block.w = w->data(), block.y = y->data(), block.m = 1, block.n = 4, block.k = 32, block.ldy = 32, block.w_row_bytes = 34;
  block.batch2 = block.batch3 = block.ratio2 = block.ratio3 = 1;
  const double direct = nanoseconds([&] { (void)device.launch(function, source.steps[0], block, stream); });
  const double planned = nanoseconds([&] { (void)plan->launch(stream, args); });
  std::printf("launch: direct %.0f ns, planned %.0f ns\n", direct, planned);
  EXPECT_LT(planned / static_cast<double>(source.steps.size()) - direct, 1000);
  ASSERT_TRUE(device.destroy_stream(stream));
}

// Last, because it costs the process its GPU.
TEST_F(Gpu, ZIsLostAfterAFault) {
  const auto module = load("*reinterpret_cast<volatile int*>(8) = 1;");
  ASSERT_TRUE(device_->launch(*module->function("k", 0), {"k", {1, 1, 1}, {1, 1, 1}, 0}, {}, nullptr));
  EXPECT_EQ(device_->synchronize(nullptr).error().code, ErrorCode::kDeviceLost);
  EXPECT_EQ(device_->allocate(1).error().code, ErrorCode::kDeviceLost);
}

}  // namespace
}  // namespace quern

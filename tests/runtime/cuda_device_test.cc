// The CUDA device over a fake driver: everything but the GPU.
#include "runtime/cuda/cuda_device.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "fake_driver.h"
#include "runtime/compiler.h"
#include "runtime/cuda/graph_timer.h"
#include "take.h"

namespace quern::cuda {
namespace {

using test::take;

class CudaDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    void* library = dlopen(QUERN_FAKE_DRIVER, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    driver_ = reinterpret_cast<test::FakeDriver* (*)()>(dlsym(library, "fake_driver"))();
    *driver_ = {};
    driver_->attributes = {{1, 1024},  {2, 1024},     {3, 1024}, {4, 64},        {5, 2147483647}, {6, 65535}, {7, 65535},
                           {8, 49152}, {13, 1980000}, {16, 132}, {38, 50 << 20}, {75, 9},         {76, 0},    {97, 232448}};
  }
  std::unique_ptr<Device> open() {
    auto device = open_device("cuda:1", {.driver = QUERN_FAKE_DRIVER});
    EXPECT_TRUE(device) << device.error().message;
    return std::move(*device);
  }

  test::FakeDriver* driver_ = nullptr;
};

Binary cubin() { return {.format = Binary::Format::cubin, .bytes = {std::byte{'c'}, std::byte{'b'}}}; }

TEST_F(CudaDeviceTest, DescribesTheGpu) {
  const auto device = open();
  const DeviceInfo& info = device->info();
  EXPECT_EQ(info.spec, "cuda:1");
  EXPECT_EQ(to_string(info.target), "sm_90a");
  EXPECT_EQ(to_string(info.identity), "Fake GPU | sm_90a | 132 SMs | 139 GiB | 2000 MHz");
  EXPECT_EQ(info.identity.memory_mib % 1024, 0);
  EXPECT_EQ(info.l2_bytes, 50 << 20);
  EXPECT_EQ(info.max_shared_bytes, 232448);
  EXPECT_EQ(info.driver_version, 13000);
}

TEST_F(CudaDeviceTest, HasNoArchitectureSpecificFeaturesBeforeSm90) {
  driver_->attributes[75] = 8, driver_->attributes[76] = 9;
  EXPECT_EQ(to_string(open()->info().target), "sm_89");
}

TEST_F(CudaDeviceTest, NamesADeviceThatIsNotThere) {
  const auto device = open_device("cuda:2", {.driver = QUERN_FAKE_DRIVER});
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().code, ErrorCode::kEnvironment);
  EXPECT_EQ(device.error().message, "no device cuda:2: this machine shows 2 CUDA device(s)");
}

TEST_F(CudaDeviceTest, NamesADriverWithoutADevice) {
  driver_->answers["cuInit"] = 100;
  const auto device = open_device("cuda:0", {.driver = QUERN_FAKE_DRIVER});
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().code, ErrorCode::kEnvironment);
  EXPECT_NE(device.error().message.find("no CUDA device"), std::string::npos);
}

TEST_F(CudaDeviceTest, ReleasesTheContextWithItsLastUser) {
  auto device = open();
  auto buffer = take(device->allocate(64));
  device.reset();
  EXPECT_EQ(driver_->calls["cuDevicePrimaryCtxRelease_v2"], 0);
  buffer.reset();
  EXPECT_EQ(driver_->calls["cuDevicePrimaryCtxRelease_v2"], 1);
  EXPECT_EQ(driver_->calls["cuMemFree_v2"], 1);
}

TEST_F(CudaDeviceTest, LeavesTheCallersContextAsItWas) {
  const auto device = open();
  auto buffer = take(device->allocate(64));
  (void)device->fill(buffer->data(), 1, 64);
  EXPECT_EQ(driver_->calls["cuCtxPushCurrent_v2"], driver_->calls["cuCtxPopCurrent_v2"]);
  EXPECT_GT(driver_->calls["cuCtxPushCurrent_v2"], 0);
}

TEST_F(CudaDeviceTest, CopiesThereAndBack) {
  const auto device = open();
  auto a = take(device->allocate(4)), b = take(device->allocate(4));
  char out[4] = {};
  ASSERT_TRUE(device->copy_to_device(a->data(), "abc", 4));
  ASSERT_TRUE(device->copy_on_device(b->data(), a->data(), 4));
  ASSERT_TRUE(device->copy_to_host(out, b->data(), 4));
  EXPECT_STREQ(out, "abc");
  ASSERT_TRUE(device->fill(b->data(), 'z', 3));
  ASSERT_TRUE(device->copy_to_host(out, b->data(), 4));
  EXPECT_STREQ(out, "zzz");
  EXPECT_TRUE(device->copy_to_host(nullptr, nullptr, 0));
  EXPECT_TRUE(device->allocate(0)) << "an empty buffer is a buffer";
}

TEST_F(CudaDeviceTest, SaysHowMuchMemoryWasMissing) {
  const auto device = open();
  driver_->answers["cuMemAlloc_v2"] = 2;
  const auto buffer = device->allocate(123456);
  ASSERT_FALSE(buffer);
  EXPECT_EQ(buffer.error().code, ErrorCode::kEnvironment);
  EXPECT_EQ(buffer.error().message, "out of GPU memory: cuda:1 cannot allocate 123456 bytes");
  driver_->answers.clear();
  EXPECT_TRUE(device->allocate(64)) << "running out of memory loses nothing";
}

TEST_F(CudaDeviceTest, KeepsTheLoadersLog) {
  const auto device = open();
  driver_->answers["cuModuleLoadDataEx"] = 209;
  const auto module = device->load(cubin());
  ASSERT_FALSE(module);
  EXPECT_EQ(module.error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(module.error().log, "what the loader says");
  EXPECT_FALSE(device->load({.format = Binary::Format::host_object}));
}

TEST_F(CudaDeviceTest, TerminatesPtx) {
  const auto device = open();
  const Binary ptx{.format = Binary::Format::ptx, .bytes = {std::byte{'p'}, std::byte{'t'}, std::byte{'x'}}};
  ASSERT_TRUE(device->load(ptx));
  EXPECT_EQ(driver_->loaded, "ptx");
}

TEST_F(CudaDeviceTest, NamesAnEntryThatIsNotThere) {
  const auto device = open();
  const auto module = take(device->load(cubin()));
  const auto function = module->function("absent", 0);
  ASSERT_FALSE(function);
  EXPECT_EQ(function.error().message, "the binary has no kernel named 'absent'");
}

TEST_F(CudaDeviceTest, CallsAFunctionWhatTheDriverCallsIt) {
  const auto device = open();
  const auto module = take(device->load(cubin()));
  const auto function = *module->function("k", 0);
  driver_->names["k"] = "as_loaded";
  EXPECT_EQ(module->loaded_name(function), "as_loaded");
  driver_->answers["cuFuncGetName"] = 400;
  EXPECT_EQ(module->loaded_name(function), "");
}

TEST_F(CudaDeviceTest, RunsOnADriverThatCannotNameFunctions) {
  const std::string old_driver = QUERN_FAKE_OLD_DRIVER;
  void* library = dlopen(old_driver.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  ASSERT_EQ(dlsym(library, "cuFuncGetName"), nullptr);
  reinterpret_cast<test::FakeDriver* (*)()>(dlsym(library, "fake_driver"))()->attributes = driver_->attributes;
  const auto device = open_device("cuda:0", {.driver = old_driver});
  ASSERT_TRUE(device) << device.error().message;
  const auto module = take((*device)->load(cubin()));
  EXPECT_EQ(module->loaded_name(*module->function("k", 0)), "");
}

TEST_F(CudaDeviceTest, AsksForSharedMemoryOnlyAboveTheDefaultAndNeverLowersIt) {
  const auto device = open();
  const auto module = take(device->load(cubin()));
  ASSERT_TRUE(module->function("k", 49152));
  EXPECT_EQ(driver_->functions["k"].max_dynamic_shared, 0);
  ASSERT_TRUE(module->function("k", 100000));
  ASSERT_TRUE(module->function("k", 60000));
  EXPECT_EQ(driver_->functions["k"].max_dynamic_shared, 100000);
  driver_->functions["s"].static_shared = 8192;
  ASSERT_TRUE(module->function("s", 45000));
  EXPECT_EQ(driver_->functions["s"].max_dynamic_shared, 45000) << "static and dynamic together exceed the default";
  const auto too_much = module->function("s", 232448);
  ASSERT_FALSE(too_much);
  EXPECT_EQ(too_much.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(too_much.error().message, "kernel 's' needs 240640 bytes of shared memory per block, this GPU has 232448");
}

TEST_F(CudaDeviceTest, LaunchesWithTheGivenGeometryAndArguments) {
  const auto device = open();
  const auto module = take(device->load(cubin()));
  const auto function = *module->function("k", 0);
  KernelArgs args{};
  args.m = 7, args.w_stride3 = 9;
  int stream = 0;
  ASSERT_TRUE(device->launch(function, {"k", {250880, 2, 3}, {32, 4, 1}, 77}, args, &stream));
  ASSERT_EQ(driver_->launches.size(), 1u);
  const auto& launched = driver_->launches[0];
  EXPECT_EQ(launched.function, &driver_->functions["k"]);
  EXPECT_EQ(launched.grid, (Dim3{250880, 2, 3}));
  EXPECT_EQ(launched.block, (Dim3{32, 4, 1}));
  EXPECT_EQ(launched.shared, 77u);
  EXPECT_EQ(launched.stream, &stream);
  EXPECT_TRUE(launched.context_current);
  EXPECT_EQ(launched.args.m, 7);
  EXPECT_EQ(launched.args.w_stride3, 9);
}

// Field case 7: a grid that the hardware cannot address must be named, not cut.
TEST_F(CudaDeviceTest, RefusesGeometryBeyondTheHardware) {
  const auto device = open();
  const auto module = take(device->load(cubin()));
  const auto function = *module->function("k", 0);
  const auto message = [&](Dim3 grid, Dim3 block) { return device->launch(function, {"k", grid, block, 0}, {}, nullptr).error().message; };
  EXPECT_EQ(message({1, 65536, 1}, {32, 1, 1}), "kernel 'k': grid.y is 65536, cuda:1 allows 1 to 65535");
  EXPECT_EQ(message({1, 1, 65536}, {32, 1, 1}), "kernel 'k': grid.z is 65536, cuda:1 allows 1 to 65535");
  EXPECT_EQ(message({0, 1, 1}, {32, 1, 1}), "kernel 'k': grid.x is 0, cuda:1 allows 1 to 2147483647");
  EXPECT_EQ(message({1, 1, 1}, {32, 1, 65}), "kernel 'k': block.z is 65, cuda:1 allows 1 to 64");
  EXPECT_EQ(message({1, 1, 1}, {32, 33, 1}), "kernel 'k': threads per block is 1056, cuda:1 allows 1 to 1024");
  EXPECT_TRUE(driver_->launches.empty());
  EXPECT_TRUE(device->launch(function, {"k", {1, 65535, 65535}, {32, 32, 1}, 0}, {}, nullptr));
}

TEST_F(CudaDeviceTest, IsLostAfterAStickyErrorAndSaysSince) {
  const auto device = open();
  const auto module = take(device->load(cubin()));
  const auto function = *module->function("k", 0);
  EXPECT_FALSE(device->is_lost());
  driver_->answers["cuStreamSynchronize"] = 700;
  const auto fault = device->synchronize(nullptr);
  ASSERT_FALSE(fault);
  EXPECT_EQ(fault.error().code, ErrorCode::kDeviceLost);
  EXPECT_EQ(fault.error().message, "waiting for a stream: CUDA_ERROR_ILLEGAL_ADDRESS: as the driver says");
  driver_->answers.clear();
  EXPECT_TRUE(device->is_lost());
  const auto later = device->launch(function, {"k", {}, {}, 0}, {}, nullptr);
  ASSERT_FALSE(later);
  EXPECT_EQ(later.error().code, ErrorCode::kDeviceLost);
  EXPECT_NE(later.error().message.find("lost since waiting for a stream: CUDA_ERROR_ILLEGAL_ADDRESS"), std::string::npos)
      << later.error().message;
  EXPECT_TRUE(driver_->launches.empty());
  EXPECT_EQ(device->allocate(1).error().code, ErrorCode::kDeviceLost);
  EXPECT_EQ(device->load(cubin()).error().code, ErrorCode::kDeviceLost);
  EXPECT_EQ(device->synchronize(nullptr).error().code, ErrorCode::kDeviceLost);
  EXPECT_EQ(device->fill(nullptr, 0, 1).error().code, ErrorCode::kDeviceLost);
}

TEST_F(CudaDeviceTest, IsNotLostAfterARefusedLaunch) {
  const auto device = open();
  const auto module = take(device->load(cubin()));
  const auto function = *module->function("k", 0);
  driver_->answers["cuLaunchKernel"] = 701;
  EXPECT_EQ(device->launch(function, {"k", {}, {}, 0}, {}, nullptr).error().code, ErrorCode::kLaunchFailed);
  driver_->answers.clear();
  EXPECT_TRUE(device->launch(function, {"k", {}, {}, 0}, {}, nullptr));
}

TEST_F(CudaDeviceTest, TimesByReplayingOneGraphOfAllOps) {
  const auto device = open();
  const auto module = take(device->load(cubin()));
  const Launch one{*module->function("k", 0), {"k", {}, {}, 0}, {}};
  const std::vector<std::vector<Launch>> ops = {{one, one}, {one}, {one}};
  const auto timing = device->time(ops, 20, 0.0);
  ASSERT_TRUE(timing) << timing.error().message;
  EXPECT_EQ(driver_->launches.size(), 4u);
  for (const auto& launched : driver_->launches) EXPECT_TRUE(launched.captured);
  EXPECT_EQ(driver_->calls["cuGraphInstantiateWithFlags"], 1);
  EXPECT_NEAR(timing->us_median, 2.0, 1e-5) << "6 us for 3 ops";
  EXPECT_GE(timing->samples, 5);
  EXPECT_EQ(device->time(ops, 12, 60.0)->samples, 12);
  EXPECT_EQ(driver_->calls["cuEventCreate"], driver_->calls["cuEventDestroy_v2"]);
  EXPECT_EQ(driver_->calls["cuStreamCreate"], driver_->calls["cuStreamDestroy_v2"]);
  EXPECT_EQ(driver_->calls["cuGraphExecDestroy"], 2);
  EXPECT_EQ(device->time({}, 1, 1).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(CudaDeviceTest, EndsTheCaptureWhenATimedLaunchFails) {
  const auto device = open();
  const auto module = take(device->load(cubin()));
  const std::vector<std::vector<Launch>> ops = {{{*module->function("k", 0), {"k", {0, 1, 1}, {}, 0}, {}}}};
  const auto timing = device->time(ops, 20, 0.0);
  ASSERT_FALSE(timing);
  EXPECT_NE(timing.error().message.find("grid.x is 0"), std::string::npos);
  EXPECT_EQ(driver_->calls["cuStreamEndCapture"], 1);
}

TEST_F(CudaDeviceTest, TellsWhetherAStreamIsBeingCaptured) {
  const auto device = open();
  EXPECT_FALSE(device->is_capturing(nullptr));
  driver_->answers["cuStreamIsCapturing"] = 906;
  EXPECT_TRUE(device->is_capturing(nullptr));
  driver_->answers.clear(), driver_->capturing = true;
  EXPECT_TRUE(device->is_capturing(nullptr));
}

TEST(Summarize, TakesMedianAndDeciles) {
  const Timing odd = summarize({5, 1, 3, 2, 4, 11, 7, 8, 9, 10, 6});
  EXPECT_EQ(odd.us_median, 6);
  EXPECT_EQ(odd.us_p10, 2);
  EXPECT_EQ(odd.us_p90, 10);
  EXPECT_EQ(odd.samples, 11);
  EXPECT_EQ(summarize({4, 1, 2, 3}).us_median, 2.5);
  EXPECT_EQ(summarize({4}).us_p90, 4);
}

TEST(OpenDevice, RefusesAMalformedSpec) {
  for (const char* spec : {"", "cuda", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cuda:99999999999", "gpu", "Host"}) {
    const auto device = open_device(spec, {});
    ASSERT_FALSE(device) << spec;
    EXPECT_EQ(device.error().code, ErrorCode::kInvalidArgument) << spec;
    EXPECT_NE(device.error().message.find(std::string("'") + spec + "'"), std::string::npos) << device.error().message;
  }
}

// Field case 30.
TEST(OpenDevice, WithoutADriverNamesWhereItLooked) {
  const auto device = open_device("cuda:0", {.driver = "/nowhere/libcuda.so.1"});
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().code, ErrorCode::kEnvironment);
  EXPECT_EQ(device.error().message, "the CUDA driver library not found: looked for /nowhere/libcuda.so.1");
}

TEST(OpenDevice, AutoWithoutAnythingNamesBoth) {
  const auto device = open_device("auto", {.driver = "/nowhere/libcuda.so.1", .host_plugin = "/nowhere/libquern_host.so"});
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().code, ErrorCode::kEnvironment);
  EXPECT_NE(device.error().message.find("/nowhere/libcuda.so.1"), std::string::npos);
  EXPECT_NE(device.error().message.find("/nowhere/libquern_host.so"), std::string::npos);
}

TEST(OpenDevice, RefusesALibraryThatIsNoDriver) {
  const auto device = open_device("cuda:0", {.driver = "libm.so.6"});
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().code, ErrorCode::kEnvironment);
  EXPECT_NE(device.error().message.find("lacks cuInit"), std::string::npos) << device.error().message;
}

}  // namespace
}  // namespace quern::cuda

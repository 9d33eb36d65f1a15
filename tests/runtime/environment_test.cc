#include <gtest/gtest.h>

#include <cstdlib>

#include "runtime/context_parts.h"

namespace quern {
namespace {

TEST(FromEnvironment, ReadsEveryVariable) {
  setenv("QUERN_DEVICE", "cuda:3", 1);
  setenv("QUERN_CACHE_DIR", "/store", 1);
  setenv("QUERN_SYSTEM_CACHE_DIRS", "/a::/b:", 1);
  setenv("QUERN_NVRTC", "/n.so", 1);
  setenv("QUERN_CUDA_DRIVER", "/d.so", 1);
  setenv("QUERN_HOST_PLUGIN", "/h.so", 1);
  setenv("QUERN_RECORD_LAUNCHES", "1", 1);
  setenv("QUERN_LAUNCH_APART", "1", 1);
  const ContextOptions options = from_environment();
  EXPECT_EQ(options.device, "cuda:3");
  EXPECT_EQ(options.cache_directory, "/store");
  EXPECT_EQ(options.system_cache_directories, (std::vector<std::string>{"/a", "/b"}));
  EXPECT_EQ(library_paths(options).nvrtc, "/n.so");
  EXPECT_EQ(library_paths(options).driver, "/d.so");
  EXPECT_EQ(library_paths(options).host_plugin, "/h.so");
  EXPECT_TRUE(options.record_launches);
  EXPECT_TRUE(options.launch_apart);
  EXPECT_EQ(store_options(options).directory, "/store");
  EXPECT_EQ(store_options(options).system_directories, options.system_cache_directories);
}

TEST(FromEnvironment, DefaultsToAutoAndRecordsNothing) {
  for (const char* name : {"QUERN_DEVICE", "QUERN_SYSTEM_CACHE_DIRS", "QUERN_NVRTC", "QUERN_RECORD_LAUNCHES", "QUERN_LAUNCH_APART"})
    unsetenv(name);
  const ContextOptions options = from_environment();
  EXPECT_EQ(options.device, "auto");
  EXPECT_TRUE(options.system_cache_directories.empty());
  EXPECT_TRUE(options.nvrtc_library.empty());
  EXPECT_FALSE(options.record_launches);
  EXPECT_FALSE(options.launch_apart);
}

// Field case 30: a driver that is not there is named; nothing else of the context is needed to say so.
TEST(OpenContext, WithoutADriverNamesWhatIsMissing) {
  const auto context = Context::open({.device = "cuda:0", .driver_library = "/nowhere/libcuda.so.1"});
  ASSERT_FALSE(context);
  EXPECT_EQ(context.error().code, ErrorCode::kEnvironment);
  EXPECT_NE(context.error().message.find("/nowhere/libcuda.so.1"), std::string::npos);
}

}  // namespace
}  // namespace quern

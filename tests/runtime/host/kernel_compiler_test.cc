// clang in process: errors with their place, objects that outlive the process, and what happens where there is no plugin.
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <thread>

#include "tests/runtime/host/host_kernel.h"

namespace quern::test {
namespace {

TEST(HostCompiler, NamesItselfItsVersionAndItsBaseline) {
  auto compiler = open_host_compiler(plugin_paths());
  ASSERT_TRUE(compiler) << compiler.error().message;
  EXPECT_TRUE(std::regex_search((*compiler)->identity(), std::regex("^clang [0-9]+\\.[0-9]+\\.[0-9]+ (x86-64-v[23]|generic)")))
      << (*compiler)->identity();
  EXPECT_TRUE(std::filesystem::equivalent((*compiler)->location(), QUERN_HOST_PLUGIN_PATH));
  EXPECT_TRUE((*compiler)->supports(Target{}));
  const Status other = (*compiler)->supports(Target{Target::Kind::cuda, 90, true});
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(other.error().message.find("sm_90a"), std::string::npos);
}

TEST(HostCompiler, AnErrorNamesFileAndLine) {
  auto source = kernel_source("static_cast<f32*>(args.y)[0] = undeclared_name;");
  auto binary = compile_source(source);
  ASSERT_FALSE(binary);
  EXPECT_EQ(binary.error().code, ErrorCode::kCompileFailed);
  EXPECT_NE(binary.error().message.find("test kernel"), std::string::npos);
  EXPECT_NE(binary.error().log.find("test_kernel.cu:6:32: error: use of undeclared identifier 'undeclared_name'"), std::string::npos)
      << binary.error().log;

  source = kernel_source("");
  source.headers.push_back({"broken.cuh", "\n\nint f( { return 0; }\n"});
  source.text = "#include \"broken.cuh\"\n" + source.text;
  binary = compile_source(source);
  ASSERT_FALSE(binary);
  EXPECT_NE(binary.error().log.find("broken.cuh:3:"), std::string::npos) << binary.error().log;
}

TEST(HostCompiler, NoFileOfTheSystemCanBeIncluded) {
  for (const char* header : {"stdio.h", "/usr/include/stdio.h", "stddef.h"}) {
    auto source = kernel_source("");
    source.text = "#include \"" + std::string(header) + "\"\n" + source.text;
    auto binary = compile_source(source);
    ASSERT_FALSE(binary) << header;
    EXPECT_NE(binary.error().log.find("file not found"), std::string::npos) << binary.error().log;
  }
}

TEST(HostCompiler, HeadersIncludeOneAnotherFromTheRoot) {
  auto source = kernel_source("static_cast<int*>(args.y)[ptx::thread_x()] = kAnswer;", 32, "#include \"deep/er/inner.cuh\"");
  source.headers.push_back({"deep/er/inner.cuh", "#include \"deep/outer.cuh\"\nconstexpr int kAnswer = kHalf * 2;\n"});
  source.headers.push_back({"deep/outer.cuh", "constexpr int kHalf = VALUE;\n"});
  source.options = {"-DVALUE=21", "--fmad=false"};
  EXPECT_EQ((HostKernel::from(compile_source(source)).run<int, int>({1, 32}, {}, 32))[31], 42);
}

TEST(HostCompiler, TheSameSourceGivesTheSameBytes) {
  const auto source = kernel_source("static_cast<f32*>(args.y)[ptx::thread_x()] = ptx::shuffle_xor(1.0f, 1);");
  auto a = compile_source(source), b = compile_source(source);
  ASSERT_TRUE(a && b);
  EXPECT_EQ(a->bytes, b->bytes);
  EXPECT_EQ(a->format, Binary::Format::host_object);
  EXPECT_GT(a->compile_ms, 0);
}

TEST(HostCompiler, CompilesRunAtOnce) {
  auto compiler = open_host_compiler(plugin_paths());
  ASSERT_TRUE(compiler);
  std::vector<std::thread> threads;
  std::vector<std::vector<std::byte>> objects(4);
  for (std::size_t i = 0; i < objects.size(); ++i)
    threads.emplace_back([&, i] {
      auto binary =
          (*compiler)->compile(kernel_source("static_cast<int*>(args.y)[ptx::thread_x()] = " + std::to_string(i) + ";"), Target{});
      if (binary) objects[i] = binary->bytes;
    });
  for (auto& thread : threads) thread.join();
  for (std::size_t i = 0; i < objects.size(); ++i) {
    Binary binary;
    binary.format = Binary::Format::host_object;
    binary.bytes = objects[i];
    EXPECT_EQ((HostKernel::from(std::move(binary)).run<int, int>({1, 32}, {}, 32))[0], static_cast<int>(i));
  }
}

constexpr const char* kObjectVariable = "QUERN_TEST_OBJECT";

// Run by the test below in a process of its own.
TEST(HostObject, DISABLED_RunsInThisProcess) {
  const char* path = std::getenv(kObjectVariable);
  ASSERT_NE(path, nullptr);
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> text((std::istreambuf_iterator<char>(file)), {});
  Binary binary;
  binary.format = Binary::Format::host_object;
  for (char c : text) binary.bytes.push_back(static_cast<std::byte>(c));
  const auto y = HostKernel::from(std::move(binary)).run<float>({1, 64}, std::vector<float>{2.5f}, 64);
  for (int i = 0; i < 64; ++i) ASSERT_EQ(y[static_cast<std::size_t>(i)], 2.5f * static_cast<float>(i ^ 3));
}

TEST(HostObject, RunsInAnotherProcess) {
  auto binary = compile_source(kernel_source(R"(
    f32 scale = ptx::load_cached(static_cast<const f32*>(args.x));
    f32 v = ptx::shuffle_xor(static_cast<f32>(ptx::thread_x()), 3);
    ptx::barrier();
    static_cast<f32*>(args.y)[ptx::thread_x()] = ptx::mul(v, scale);
  )"));
  ASSERT_TRUE(binary);
  const auto path = std::filesystem::temp_directory_path() / ("quern_object_" + std::to_string(getpid()));
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(binary->bytes.data()), static_cast<std::streamsize>(binary->bytes.size()));
  const pid_t child = fork();
  if (child == 0) {
    setenv(kObjectVariable, path.c_str(), 1);
    execl("/proc/self/exe", "host_kernel_compiler_test", "--gtest_also_run_disabled_tests",
          "--gtest_filter=HostObject.DISABLED_RunsInThisProcess", nullptr);
    _exit(127);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  std::filesystem::remove(path);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(HostObject, WhatIsNoObjectIsRefused) {
  auto device = open_host_device(plugin_paths());
  ASSERT_TRUE(device);
  Binary binary;
  binary.format = Binary::Format::host_object;
  for (const std::string text : {"", "not an object",
                                 "\x7f"
                                 "ELF"}) {
    binary.bytes.clear();
    for (char c : text) binary.bytes.push_back(static_cast<std::byte>(c));
    auto module = (*device)->load(binary);
    ASSERT_FALSE(module) << text;
    EXPECT_EQ(module.error().code, ErrorCode::kCorrupt);
  }
  binary.format = Binary::Format::cubin;
  auto module = (*device)->load(binary);
  ASSERT_FALSE(module);
  EXPECT_EQ(module.error().code, ErrorCode::kInvalidArgument);
}

// A kernel that calls what the host does not offer is named at load time, not at a jump to zero.
TEST(HostObject, ACallToNothingIsNamed) {
  auto binary = compile_source(kernel_source("missing_function();", 32, "extern \"C\" void missing_function();"));
  ASSERT_TRUE(binary);
  auto device = open_host_device(plugin_paths());
  ASSERT_TRUE(device);
  auto module = (*device)->load(*binary);
  ASSERT_FALSE(module);
  EXPECT_NE(module.error().message.find("missing_function"), std::string::npos) << module.error().message;
}

TEST(HostPlugin, AMissingPluginNamesWhatWasSearched) {
  LibraryPaths paths;
  paths.host_plugin = "/nowhere/libquern_host.so";
  auto compiler = open_host_compiler(paths);
  ASSERT_FALSE(compiler);
  EXPECT_EQ(compiler.error().code, ErrorCode::kEnvironment);
  EXPECT_NE(compiler.error().message.find("/nowhere/libquern_host.so"), std::string::npos) << compiler.error().message;
  auto device = open_host_device(paths);
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().code, ErrorCode::kEnvironment);
  // A library that is no plugin.
  paths.host_plugin = "libm.so.6";
  compiler = open_host_compiler(paths);
  ASSERT_FALSE(compiler);
  EXPECT_NE(compiler.error().message.find("plugin interface"), std::string::npos) << compiler.error().message;
}

// Both bodies of the hardware header offer the same names.
TEST(HardwareHeader, TheHostBodyHasEveryFunctionOfTheDeviceBody) {
  std::string device_text, host_text;
  for (const auto& file : embedded_files()) {
    if (file.name == "ptx/device.cuh") device_text = file.text;
    if (file.name == "ptx/host.cuh") host_text = file.text;
  }
  const auto functions = [](const std::string& text) {
    std::set<std::string> names;
    const std::regex pattern("QUERN_FN [a-z0-9_:A-Z*]+\\*? ?\\*?([a-z0-9_]+)(<[a-z0-9]+>)?\\(");
    for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) names.insert((*it)[1]);
    return names;
  };
  const auto device = functions(device_text), host = functions(host_text);
  EXPECT_GT(device.size(), 35u);
  for (const auto& name : device) {
    if (name == "shared_address") continue;  // a PTX address, of use to device.cuh alone
    EXPECT_TRUE(host.contains(name)) << name;
  }
}

}  // namespace
}  // namespace quern::test

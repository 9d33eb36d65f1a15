// Kernel text to a launch on the host, for tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/compiler.h"
#include "runtime/host_device.h"
#include "templates/embedded.h"

namespace quern::test {

inline LibraryPaths plugin_paths() {
  LibraryPaths paths;
  paths.host_plugin = QUERN_HOST_PLUGIN_PATH;
  return paths;
}

// `body` is the kernel's statements; args.w, args.x and args.y are what the launch passes.
inline KernelSource kernel_source(const std::string& body, int max_threads = 1024, const std::string& declarations = "") {
  KernelSource source;
  source.name = "test kernel";
  source.text = "#include \"args.h\"\n#include \"ptx/ptx.cuh\"\nusing namespace quern;\n" + declarations + "\nQUERN_KERNEL(quern_main, " +
                std::to_string(max_threads) + ", 1)(QUERN_GRID_CONSTANT quern::KernelArgs args) {\n" + body + "\n}\n";
  for (const auto& file : embedded_files()) source.headers.push_back({std::string(file.name), std::string(file.text)});
  return source;
}

inline Result<Binary> compile_source(const KernelSource& source) {
  auto compiler = open_host_compiler(plugin_paths());
  if (!compiler) return compiler.error();
  return (*compiler)->compile(source, Target{});
}

struct Geometry {
  std::uint32_t grid = 1;
  std::uint32_t block = 32;
  std::uint32_t shared_bytes = 0;
};

// A compiled and loaded kernel on a device of its own.
class HostKernel {
 public:
  static HostKernel make(const std::string& body, const HostExecution& execution = {}, int max_threads = 1024) {
    return from(compile_source(kernel_source(body, max_threads)), execution);
  }
  static HostKernel from(Result<Binary> binary, const HostExecution& execution = {}) {
    HostKernel kernel;
    if (!binary) {
      ADD_FAILURE() << binary.error().message << "\n" << binary.error().log;
      return kernel;
    }
    auto device = open_host_device(plugin_paths(), execution);
    if (!device) {
      ADD_FAILURE() << device.error().message;
      return kernel;
    }
    kernel.device_ = std::move(*device);
    auto module = kernel.device_->load(*binary);
    if (!module) {
      ADD_FAILURE() << module.error().message;
      return kernel;
    }
    kernel.module_ = std::move(*module);
    auto function = kernel.module_->function("quern_main", 0);
    if (!function) ADD_FAILURE() << function.error().message;
    if (function) kernel.function_ = *function;
    return kernel;
  }

  Status launch(const Geometry& geometry, const KernelArgs& args) const {
    if (function_.handle == nullptr) return Error{ErrorCode::kInvalidArgument, "no kernel", {}};
    LaunchStep step;
    step.entry = "quern_main";
    step.grid.x = geometry.grid;
    step.block.x = geometry.block;
    step.shared_bytes = geometry.shared_bytes;
    return device_->launch(function_, step, args, nullptr);
  }
  // y = kernel(x); fails the test when the launch does.
  template <class Y, class X>
  std::vector<Y> run(const Geometry& geometry, const std::vector<X>& x, std::size_t y_size) const {
    std::vector<Y> y(y_size);
    KernelArgs args{};
    args.x = x.data();
    args.y = y.data();
    args.m = static_cast<long long>(x.size());
    args.n = static_cast<long long>(y_size);
    const Status status = launch(geometry, args);
    if (!status) ADD_FAILURE() << status.error().message;
    return y;
  }

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<Module> module_;
  Module::Function function_;
};

}  // namespace quern::test

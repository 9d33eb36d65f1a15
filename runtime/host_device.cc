#include "runtime/host_device.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "runtime/host_plugin.h"

namespace quern {
namespace {

// What an H100 offers a block: a kernel that asks for more would run on no device.
constexpr std::int64_t kMaxSharedBytes = 227 * 1024;
constexpr std::size_t kBufferAlignment = 256;

std::string take_text(const QuernHostPlugin* plugin, QuernHostBytes& bytes) {
  std::string text(bytes.data == nullptr ? "" : bytes.data, bytes.size);
  plugin->release(&bytes);
  return text;
}

// "AMD EPYC", or the machine's architecture where the system does not tell.
std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
#if defined(__aarch64__)
  return "aarch64";
#else
  return "x86-64";
#endif
}

DeviceInfo describe(const QuernHostPlugin* plugin) {
  DeviceInfo info;
  info.spec = "host";
  info.target.kind = Target::Kind::host;
  info.memory_bytes = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  info.max_shared_bytes = kMaxSharedBytes;
  const long l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
  info.l2_bytes = l2 > 0 ? l2 : std::int64_t{1} << 20;
  info.identity.name = cpu_model() + " (" + plugin->identity + ")";
  info.identity.sm_count = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  info.identity.memory_mib = (info.memory_bytes >> 30) * 1024;
  info.identity.architecture = to_string(info.target);
  return info;
}

class HostBuffer : public Buffer {
 public:
  HostBuffer(void* data, std::size_t size) : data_(data), size_(size) {}
  ~HostBuffer() override { std::free(data_); }
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;
  void* data() const override { return data_; }
  std::size_t size() const override { return size_; }

 private:
  void* data_;
  std::size_t size_;
};

class HostModule : public Module {
 public:
  HostModule(const QuernHostPlugin* plugin, QuernHostModule* module) : plugin_(plugin), module_(module) {}
  ~HostModule() override { plugin_->unload(module_); }
  HostModule(const HostModule&) = delete;
  HostModule& operator=(const HostModule&) = delete;

  Result<Function> function(const std::string& entry, std::uint32_t shared_bytes) override {
    if (shared_bytes > kMaxSharedBytes)
      return Error{
          ErrorCode::kLaunchFailed,
          "kernel " + entry + ": " + std::to_string(shared_bytes) + " bytes of shared memory, limit " + std::to_string(kMaxSharedBytes),
          {}};
    const QuernHostFunction* function = plugin_->function(module_, entry.c_str());
    if (function == nullptr) return Error{ErrorCode::kInvalidArgument, "the binary has no kernel '" + entry + "'", {}};
    return Function{const_cast<QuernHostFunction*>(function)};
  }
  std::string loaded_name(Function function) const override {
    QuernHostBytes name{};
    plugin_->symbol_of(module_, static_cast<const QuernHostFunction*>(function.handle), &name);
    return take_text(plugin_, name);
  }

 private:
  const QuernHostPlugin* plugin_;
  QuernHostModule* module_;
};

class HostDevice : public Device {
 public:
  HostDevice(const QuernHostPlugin* plugin, const HostExecution& execution)
      : plugin_(plugin), execution_(execution), info_(describe(plugin)) {
    executor_ = plugin->create_executor(execution.threads > 0 ? execution.threads : info_.identity.sm_count);
  }
  ~HostDevice() override { plugin_->destroy_executor(executor_); }
  HostDevice(const HostDevice&) = delete;
  HostDevice& operator=(const HostDevice&) = delete;

  const DeviceInfo& info() const override { return info_; }

  Result<std::unique_ptr<Buffer>> allocate(std::size_t bytes) override {
    void* data = nullptr;
    if (posix_memalign(&data, kBufferAlignment, bytes) != 0)
      return Error{ErrorCode::kEnvironment, "host: out of memory for a buffer of " + std::to_string(bytes) + " bytes", {}};
    return std::unique_ptr<Buffer>(std::make_unique<HostBuffer>(data, bytes));
  }
  Status copy_to_device(void* destination, const void* source, std::size_t bytes) override { return copy(destination, source, bytes); }
  Status copy_to_host(void* destination, const void* source, std::size_t bytes) override { return copy(destination, source, bytes); }
  Status copy_on_device(void* destination, const void* source, std::size_t bytes) override { return copy(destination, source, bytes); }
  Status fill(void* destination, unsigned char value, std::size_t bytes) override {
    if (bytes != 0) std::memset(destination, value, bytes);
    return {};
  }

  Result<std::unique_ptr<Module>> load(const Binary& binary) override {
    if (binary.format != Binary::Format::host_object)
      return Error{ErrorCode::kInvalidArgument, "host: a binary for CUDA, needed a host object", {}};
    QuernHostBytes error{};
    QuernHostModule* module = plugin_->load(binary.bytes.data(), binary.bytes.size(), &error);
    if (module == nullptr) return Error{ErrorCode::kCorrupt, "host object does not load: " + take_text(plugin_, error), {}};
    return std::unique_ptr<Module>(std::make_unique<HostModule>(plugin_, module));
  }

  Status launch(Module::Function function, const LaunchStep& step, const KernelArgs& args, Stream) override {
    if (step.grid.z != 1 || step.block.y != 1 || step.block.z != 1)
      return Error{
          ErrorCode::kInvalidArgument, "kernel " + step.entry + ": a grid has two dimensions and a block one, on every target", {}};
    QuernHostLaunch request{};
    request.function = static_cast<const QuernHostFunction*>(function.handle);
    request.grid_x = step.grid.x;
    request.grid_y = step.grid.y;
    request.block_x = step.block.x;
    request.shared_bytes = step.shared_bytes;
    request.args = &args;
    request.order = static_cast<std::int32_t>(execution_.order);
    request.copies = static_cast<std::int32_t>(execution_.copies);
    request.seed = execution_.seed;
    QuernHostBytes error{};
    if (plugin_->launch(executor_, &request, &error) == 0) return {};
    return Error{ErrorCode::kLaunchFailed, take_text(plugin_, error), {}};
  }
  Status synchronize(Stream) override { return {}; }

  Result<Timing> time(std::span<const std::vector<Launch>> ops, int max_samples, double max_seconds) override;

  Result<Stream> create_stream() override { return Stream{nullptr}; }
  Status destroy_stream(Stream) override { return {}; }

 private:
  static Status copy(void* destination, const void* source, std::size_t bytes) {
    if (bytes != 0) std::memcpy(destination, source, bytes);
    return {};
  }
  Status launch_all(std::span<const std::vector<Launch>> ops) {
    for (const auto& op : ops)
      for (const auto& one : op) QUERN_TRY(launch(one.function, one.step, one.args, nullptr));
    return {};
  }

  const QuernHostPlugin* plugin_;
  HostExecution execution_;
  DeviceInfo info_;
  QuernHostExecutor* executor_ = nullptr;
};

Result<Timing> HostDevice::time(std::span<const std::vector<Launch>> ops, int max_samples, double max_seconds) {
  using Clock = std::chrono::steady_clock;
  constexpr int kMinSamples = 3;
  if (ops.empty()) return Error{ErrorCode::kInvalidArgument, "host: nothing to time", {}};
  QUERN_TRY(launch_all(ops));  // warm-up
  std::vector<double> us;
  const auto begin = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  while (static_cast<int>(us.size()) < kMinSamples || (static_cast<int>(us.size()) < max_samples && seconds() < max_seconds)) {
    const auto start = Clock::now();
    QUERN_TRY(launch_all(ops));
    us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count() / static_cast<double>(ops.size()));
  }
  std::sort(us.begin(), us.end());
  const auto quantile = [&](double q) { return us[static_cast<std::size_t>(q * static_cast<double>(us.size() - 1) + 0.5)]; };
  return Timing{quantile(0.5), quantile(0.1), quantile(0.9), static_cast<int>(us.size())};
}

}  // namespace

Result<std::unique_ptr<Device>> open_host_device(const LibraryPaths& paths, const HostExecution& execution) {
  QUERN_ASSIGN(const HostPlugin plugin, open_host_plugin(paths));
  return std::unique_ptr<Device>(std::make_unique<HostDevice>(plugin.table, execution));
}

Result<std::unique_ptr<Device>> open_host_device(const LibraryPaths& paths) { return open_host_device(paths, HostExecution{}); }

}  // namespace quern

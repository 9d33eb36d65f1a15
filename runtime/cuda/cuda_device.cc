#include "runtime/cuda/cuda_device.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "runtime/cuda/context_scope.h"
#include "runtime/cuda/driver_api.h"
#include "runtime/cuda/graph_timer.h"

namespace quern::cuda {
namespace {

CUdeviceptr device_pointer(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

struct Limits {
  int threads_per_block = 0;
  std::array<int, 3> block{};
  std::array<int, 3> grid{};
  int shared_default = 0;  // dynamic shared memory that needs no opt-in
  int shared_optin = 0;
};

class CudaBuffer final : public Buffer {
 public:
  CudaBuffer(std::shared_ptr<PrimaryContext> context, CUdeviceptr data, std::size_t size)
      : context_(std::move(context)), data_(data), size_(size) {}
  ~CudaBuffer() override {
    const ContextScope scope(*context_);
    context_->api().memory_free(data_);
  }
  void* data() const override { return reinterpret_cast<void*>(data_); }
  std::size_t size() const override { return size_; }

 private:
  std::shared_ptr<PrimaryContext> context_;
  CUdeviceptr data_ = 0;
  std::size_t size_ = 0;
};

class CudaModule final : public Module {
 public:
  CudaModule(std::shared_ptr<PrimaryContext> context, CUmodule module, Limits limits)
      : context_(std::move(context)), module_(module), limits_(limits) {}
  ~CudaModule() override {
    const ContextScope scope(*context_);
    context_->api().module_unload(module_);
  }
  Result<Function> function(const std::string& entry, std::uint32_t shared_bytes) override;
  std::string loaded_name(Function function) const override;

 private:
  Status reserve_shared(CUfunction function, const std::string& entry, std::uint32_t shared_bytes);

  std::shared_ptr<PrimaryContext> context_;
  CUmodule module_ = nullptr;
  Limits limits_;
};

Result<Module::Function> CudaModule::function(const std::string& entry, std::uint32_t shared_bytes) {
  if (context_->lost()) return context_->lost_error();
  const ContextScope scope(*context_);
  CUfunction found = nullptr;
  const CUresult result = context_->api().module_get_function(&found, module_, entry.c_str());
  if (result == kNotFound) return Error{ErrorCode::kInvalidArgument, "the binary has no kernel named '" + entry + "'", {}};
  QUERN_TRY(context_->check(result, "looking up a kernel", ErrorCode::kLaunchFailed));
  QUERN_TRY(reserve_shared(found, entry, shared_bytes));
  return Function{found};
}

std::string CudaModule::loaded_name(Function function) const {
  const auto get_name = context_->api().function_get_name;
  if (get_name == nullptr || context_->lost()) return {};
  const ContextScope scope(*context_);
  const char* name = nullptr;
  const bool named = get_name(&name, static_cast<CUfunction>(function.handle)) == kSuccess && name != nullptr;
  return named ? name : std::string();
}

// The limit is a property of the function, not of a launch: it only ever grows, so that two steps may share an entry.
Status CudaModule::reserve_shared(CUfunction function, const std::string& entry, std::uint32_t shared_bytes) {
  const DriverApi& api = context_->api();
  int static_bytes = 0, current = 0;
  QUERN_TRY(context_->check(api.function_get_attribute(&static_bytes, kFunctionSharedBytes, function), "reading a kernel's attributes",
                            ErrorCode::kLaunchFailed));
  if (static_cast<std::int64_t>(shared_bytes) + static_bytes > limits_.shared_optin)
    return Error{ErrorCode::kUnsupported,
                 "kernel '" + entry + "' needs " + std::to_string(std::int64_t{shared_bytes} + static_bytes) +
                     " bytes of shared memory per block, this GPU has " + std::to_string(limits_.shared_optin),
                 {}};
  if (static_cast<int>(shared_bytes) + static_bytes <= limits_.shared_default) return {};
  QUERN_TRY(context_->check(api.function_get_attribute(&current, kFunctionMaxDynamicSharedBytes, function), "reading a kernel's attributes",
                            ErrorCode::kLaunchFailed));
  if (current >= static_cast<int>(shared_bytes)) return {};
  return context_->check(api.function_set_attribute(function, kFunctionMaxDynamicSharedBytes, static_cast<int>(shared_bytes)),
                         "raising a kernel's shared memory limit", ErrorCode::kLaunchFailed);
}

class CudaDevice final : public Device {
 public:
  CudaDevice(std::shared_ptr<PrimaryContext> context, DeviceInfo info, Limits limits)
      : context_(std::move(context)), info_(std::move(info)), limits_(limits) {}

  const DeviceInfo& info() const override { return info_; }
  Result<std::unique_ptr<Buffer>> allocate(std::size_t bytes) override;
  Status copy_to_device(void* destination, const void* source, std::size_t bytes) override;
  Status copy_to_host(void* destination, const void* source, std::size_t bytes) override;
  Status copy_on_device(void* destination, const void* source, std::size_t bytes) override;
  Status fill(void* destination, unsigned char value, std::size_t bytes) override;
  Result<std::unique_ptr<Module>> load(const Binary& binary) override;
  Status launch(Module::Function function, const LaunchStep& step, const KernelArgs& args, Stream stream) override;
  Status synchronize(Stream stream) override;
  Result<Timing> time(std::span<const std::vector<Launch>> ops, int max_samples, double max_seconds) override;
  Result<Timing> time_work(const std::function<Status(Stream)>& enqueue, int ops, int max_samples, double max_seconds) override;
  Result<Stream> create_stream() override;
  Status destroy_stream(Stream stream) override;
  bool is_lost() const override { return context_->lost(); }
  bool is_capturing(Stream stream) override;

 private:
  // Runs `call` with the context current; `doing` names it in errors.
  template <class Call>
  Status in_context(const char* doing, ErrorCode code, Call call) {
    if (context_->lost()) return context_->lost_error();
    const ContextScope scope(*context_);
    return context_->check(call(context_->api()), doing, code);
  }
  Status check_geometry(const LaunchStep& step) const;

  std::shared_ptr<PrimaryContext> context_;
  DeviceInfo info_;
  Limits limits_;
};

Result<std::unique_ptr<Buffer>> CudaDevice::allocate(std::size_t bytes) {
  if (context_->lost()) return context_->lost_error();
  const ContextScope scope(*context_);
  CUdeviceptr data = 0;
  const CUresult result = context_->api().memory_allocate(&data, bytes == 0 ? 1 : bytes);  // the driver refuses 0 bytes
  if (result == kOutOfMemory)
    return Error{ErrorCode::kEnvironment, "out of GPU memory: " + info_.spec + " cannot allocate " + std::to_string(bytes) + " bytes", {}};
  QUERN_TRY(context_->check(result, "allocating GPU memory", ErrorCode::kEnvironment));
  return std::unique_ptr<Buffer>(std::make_unique<CudaBuffer>(context_, data, bytes));
}

Status CudaDevice::copy_to_device(void* destination, const void* source, std::size_t bytes) {
  if (bytes == 0) return {};
  return in_context("copying to the GPU", ErrorCode::kLaunchFailed, [&](const DriverApi& api) {
    const CUresult result = api.copy_host_to_device(device_pointer(destination), source, bytes);
    return result != kSuccess ? result : api.stream_synchronize(nullptr);
  });
}

Status CudaDevice::copy_to_host(void* destination, const void* source, std::size_t bytes) {
  if (bytes == 0) return {};
  return in_context("copying from the GPU", ErrorCode::kLaunchFailed,
                    [&](const DriverApi& api) { return api.copy_device_to_host(destination, device_pointer(source), bytes); });
}

// The driver returns early from copies within the device and from fills; both are finished here, as the contract says.
Status CudaDevice::copy_on_device(void* destination, const void* source, std::size_t bytes) {
  if (bytes == 0) return {};
  return in_context("copying on the GPU", ErrorCode::kLaunchFailed, [&](const DriverApi& api) {
    const CUresult result = api.copy_device_to_device(device_pointer(destination), device_pointer(source), bytes);
    return result != kSuccess ? result : api.stream_synchronize(nullptr);
  });
}

Status CudaDevice::fill(void* destination, unsigned char value, std::size_t bytes) {
  if (bytes == 0) return {};
  return in_context("filling GPU memory", ErrorCode::kLaunchFailed, [&](const DriverApi& api) {
    const CUresult result = api.set_bytes(device_pointer(destination), value, bytes);
    return result != kSuccess ? result : api.stream_synchronize(nullptr);
  });
}

Result<std::unique_ptr<Module>> CudaDevice::load(const Binary& binary) {
  if (context_->lost()) return context_->lost_error();
  if (binary.format == Binary::Format::host_object)
    return Error{ErrorCode::kInvalidArgument, "a host object cannot be loaded on " + info_.spec + ": a cubin or PTX is needed", {}};
  std::vector<std::byte> image = binary.bytes;
  image.push_back(std::byte{0});  // PTX is read up to a terminator
  std::string errors(8192, '\0');
  std::array<int, 2> options = {kJitErrorLogBuffer, kJitErrorLogBufferBytes};
  std::array<void*, 2> values = {errors.data(), reinterpret_cast<void*>(errors.size())};

  const ContextScope scope(*context_);
  CUmodule module = nullptr;
  const CUresult result = context_->api().module_load_data(&module, image.data(), options.size(), options.data(), values.data());
  const bool bad_image = result == kInvalidImage || result == kNoBinaryForGpu;
  if (auto status = context_->check(result, "loading a kernel binary", bad_image ? ErrorCode::kCorrupt : ErrorCode::kLaunchFailed);
      !status) {
    status.error().log = errors.c_str();
    return std::move(status.error());
  }
  return std::unique_ptr<Module>(std::make_unique<CudaModule>(context_, module, limits_));
}

Status CudaDevice::check_geometry(const LaunchStep& step) const {
  const std::array<std::uint32_t, 3> grid = {step.grid.x, step.grid.y, step.grid.z}, block = {step.block.x, step.block.y, step.block.z};
  const auto refuse = [&](const std::string& what, std::uint64_t found, int limit) {
    return Error{ErrorCode::kLaunchFailed,
                 "kernel '" + step.entry + "': " + what + " is " + std::to_string(found) + ", " + info_.spec + " allows 1 to " +
                     std::to_string(limit),
                 {}};
  };
  for (std::size_t i = 0; i < 3; ++i) {
    const std::string axis(1, "xyz"[i]);
    if (grid[i] == 0 || grid[i] > static_cast<std::uint32_t>(limits_.grid[i])) return refuse("grid." + axis, grid[i], limits_.grid[i]);
    if (block[i] == 0 || block[i] > static_cast<std::uint32_t>(limits_.block[i]))
      return refuse("block." + axis, block[i], limits_.block[i]);
  }
  const std::uint64_t threads = std::uint64_t{block[0]} * block[1] * block[2];
  if (threads > static_cast<std::uint64_t>(limits_.threads_per_block))
    return refuse("threads per block", threads, limits_.threads_per_block);
  return {};
}

Status CudaDevice::launch(Module::Function function, const LaunchStep& step, const KernelArgs& args, Stream stream) {
  if (context_->lost()) return context_->lost_error();
  const auto above = [](std::uint32_t value, int limit) { return value - 1 >= static_cast<std::uint32_t>(limit); };  // 0 wraps around
  const bool legal = !above(step.grid.x, limits_.grid[0]) && !above(step.grid.y, limits_.grid[1]) && !above(step.grid.z, limits_.grid[2]) &&
                     !above(step.block.x, limits_.block[0]) && !above(step.block.y, limits_.block[1]) &&
                     !above(step.block.z, limits_.block[2]) &&
                     std::uint64_t{step.block.x} * step.block.y * step.block.z <= static_cast<std::uint64_t>(limits_.threads_per_block);
  if (!legal) return check_geometry(step);
  void* parameters[] = {const_cast<KernelArgs*>(&args)};
  const ContextScope scope(*context_);
  const auto entry = static_cast<CUfunction>(function.handle);
  CUresult result = kSuccess;
  if (step.overlaps_previous && info_.target.sm >= 90) {
    CUlaunchAttribute overlap;
    overlap.id = kProgrammaticStreamSerialization;
    overlap.value.programmatic_stream_serialization_allowed = 1;
    const CUlaunchConfig config{step.grid.x,       step.grid.y,
                                step.grid.z,       step.block.x,
                                step.block.y,      step.block.z,
                                step.shared_bytes, static_cast<CUstream>(stream),
                                &overlap,          1};
    result = context_->api().launch_kernel_ex(&config, entry, parameters, nullptr);
  } else {
    result = context_->api().launch_kernel(entry, step.grid.x, step.grid.y, step.grid.z, step.block.x, step.block.y, step.block.z,
                                           step.shared_bytes, static_cast<CUstream>(stream), parameters, nullptr);
  }
  if (result == kSuccess) return {};
  return context_->check(result, ("launching kernel '" + step.entry + "'").c_str(), ErrorCode::kLaunchFailed);
}

Status CudaDevice::synchronize(Stream stream) {
  return in_context("waiting for a stream", ErrorCode::kLaunchFailed,
                    [&](const DriverApi& api) { return api.stream_synchronize(static_cast<CUstream>(stream)); });
}

Result<Timing> CudaDevice::time(std::span<const std::vector<Launch>> ops, int max_samples, double max_seconds) {
  if (context_->lost()) return context_->lost_error();
  const ContextScope scope(*context_);
  return time_graph(*context_, *this, ops, max_samples, max_seconds);
}

Result<Timing> CudaDevice::time_work(const std::function<Status(Stream)>& enqueue, int ops, int max_samples, double max_seconds) {
  if (context_->lost()) return context_->lost_error();
  const ContextScope scope(*context_);
  return time_captured(*context_, enqueue, static_cast<std::size_t>(std::max(ops, 0)), max_samples, max_seconds);
}

Result<Stream> CudaDevice::create_stream() {
  CUstream stream = nullptr;
  QUERN_TRY(in_context("creating a stream", ErrorCode::kEnvironment,
                       [&](const DriverApi& api) { return api.stream_create(&stream, kStreamNonBlocking); }));
  return Stream{stream};
}

Status CudaDevice::destroy_stream(Stream stream) {
  return in_context("destroying a stream", ErrorCode::kInvalidArgument,
                    [&](const DriverApi& api) { return api.stream_destroy(static_cast<CUstream>(stream)); });
}

bool CudaDevice::is_capturing(Stream stream) {
  const ContextScope scope(*context_);
  int status = kCaptureStatusNone;
  const CUresult result = context_->api().stream_is_capturing(static_cast<CUstream>(stream), &status);
  // The legacy default stream answers "implicit" while a blocking stream of this thread is being captured: it cannot be used either.
  return result == kStreamCaptureImplicit || (result == kSuccess && status != kCaptureStatusNone);
}

Result<CUdevice> find_device(const DriverApi& api, int ordinal) {
  int count = 0;
  CUdevice device = 0;
  if (const CUresult result = api.device_get_count(&count); result != kSuccess)
    return Error{ErrorCode::kEnvironment, "the CUDA driver does not count its devices: " + api.describe(result), {}};
  if (ordinal < 0 || ordinal >= count)
    return Error{ErrorCode::kEnvironment,
                 "no device cuda:" + std::to_string(ordinal) + ": this machine shows " + std::to_string(count) + " CUDA device(s)",
                 {}};
  if (const CUresult result = api.device_get(&device, ordinal); result != kSuccess)
    return Error{ErrorCode::kEnvironment, "no device cuda:" + std::to_string(ordinal) + ": " + api.describe(result), {}};
  return device;
}

int attribute(const DriverApi& api, CUdevice device, int which) {
  int value = 0;
  return api.device_get_attribute(&value, which, device) == kSuccess ? value : 0;
}

Limits read_limits(const DriverApi& api, CUdevice device) {
  const auto get = [&](int which) { return attribute(api, device, which); };
  return {.threads_per_block = get(kMaxThreadsPerBlock),
          .block = {get(kMaxBlockDimX), get(kMaxBlockDimY), get(kMaxBlockDimZ)},
          .grid = {get(kMaxGridDimX), get(kMaxGridDimY), get(kMaxGridDimZ)},
          .shared_default = get(kMaxSharedMemoryPerBlock),
          .shared_optin = std::max(get(kMaxSharedMemoryPerBlockOptin), get(kMaxSharedMemoryPerBlock))};
}

DeviceInfo read_info(const DriverApi& api, CUdevice device, int ordinal, const Limits& limits) {
  constexpr std::int64_t kGib = std::int64_t{1} << 30;
  std::array<char, 256> name{};
  std::size_t memory = 0;
  api.device_get_name(name.data(), static_cast<int>(name.size()) - 1, device);
  api.device_total_memory(&memory, device);
  DeviceInfo info;
  info.spec = "cuda:" + std::to_string(ordinal);
  const int sm = attribute(api, device, kComputeCapabilityMajor) * 10 + attribute(api, device, kComputeCapabilityMinor);
  info.target = {.kind = Target::Kind::cuda, .sm = sm, .exact_arch = sm >= 90};
  info.identity = {.name = name.data(),
                   .sm_count = attribute(api, device, kMultiprocessorCount),
                   .memory_mib = static_cast<std::int64_t>(memory) / kGib * 1024,
                   .clock_mhz_class = (attribute(api, device, kClockRateKhz) / 1000 + 25) / 50 * 50,
                   .architecture = to_string(info.target)};
  info.l2_bytes = attribute(api, device, kL2CacheBytes);
  info.memory_bytes = static_cast<std::int64_t>(memory);
  info.max_shared_bytes = limits.shared_optin;
  info.driver_version = api.version;
  return info;
}

}  // namespace

Result<std::unique_ptr<Device>> open_cuda_device(int ordinal, const std::string& driver_path) {
  QUERN_ASSIGN(auto api, open_driver(driver_path));
  QUERN_ASSIGN(const CUdevice device, find_device(*api, ordinal));
  const Limits limits = read_limits(*api, device);
  DeviceInfo info = read_info(*api, device, ordinal, limits);
  QUERN_ASSIGN(auto context, PrimaryContext::retain(std::move(api), device));
  return std::unique_ptr<Device>(std::make_unique<CudaDevice>(std::move(context), std::move(info), limits));
}

}  // namespace quern::cuda

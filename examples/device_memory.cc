#include "examples/device_memory.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

namespace quern::examples {
namespace {

constexpr std::size_t kAlignment = 256;

class HostMemory final : public DeviceMemory {
 public:
  Result<void*> allocate(std::size_t bytes) override {
    return ::operator new (std::max<std::size_t>(bytes, 1), std::align_val_t{kAlignment});
  }
  void release(void* data) override { ::operator delete (data, std::align_val_t{kAlignment}); }
  Status copy_in(void* device, const void* host, std::size_t bytes) override { return std::memcpy(device, host, bytes), Status(); }
  Status copy_out(void* host, const void* device, std::size_t bytes) override { return std::memcpy(host, device, bytes), Status(); }
};

// The few driver functions that memory needs, by their exported names.
struct Driver {
  using Address = unsigned long long;
  int (*cuInit)(unsigned) = nullptr;
  int (*cuDeviceGet)(int*, int) = nullptr;
  int (*cuDevicePrimaryCtxRetain)(void**, int) = nullptr;
  int (*cuDevicePrimaryCtxRelease)(int) = nullptr;
  int (*cuCtxPushCurrent)(void*) = nullptr;
  int (*cuMemAlloc)(Address*, std::size_t) = nullptr;
  int (*cuMemFree)(Address) = nullptr;
  int (*cuMemcpyHtoD)(Address, const void*, std::size_t) = nullptr;
  int (*cuMemcpyDtoH)(void*, Address, std::size_t) = nullptr;
};

Error environment(const std::string& what) { return {ErrorCode::kEnvironment, what, {}}; }

template <class Function>
Status find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  if (function == nullptr) return environment(std::string("the CUDA driver has no ") + name);
  return {};
}

Result<Driver> load_driver(const std::string& path) {
  const std::string name = path.empty() ? "libcuda.so.1" : path;
  void* library = dlopen(name.c_str(), RTLD_NOW);
  if (library == nullptr) return environment("CUDA driver: " + std::string(dlerror()));
  Driver driver;
  QUERN_TRY(find(library, "cuInit", driver.cuInit));
  QUERN_TRY(find(library, "cuDeviceGet", driver.cuDeviceGet));
  QUERN_TRY(find(library, "cuDevicePrimaryCtxRetain", driver.cuDevicePrimaryCtxRetain));
  QUERN_TRY(find(library, "cuDevicePrimaryCtxRelease_v2", driver.cuDevicePrimaryCtxRelease));
  QUERN_TRY(find(library, "cuCtxPushCurrent_v2", driver.cuCtxPushCurrent));
  QUERN_TRY(find(library, "cuMemAlloc_v2", driver.cuMemAlloc));
  QUERN_TRY(find(library, "cuMemFree_v2", driver.cuMemFree));
  QUERN_TRY(find(library, "cuMemcpyHtoD_v2", driver.cuMemcpyHtoD));
  QUERN_TRY(find(library, "cuMemcpyDtoH_v2", driver.cuMemcpyDtoH));
  return driver;
}

Status check(int result, const char* doing) {
  if (result == 0) return {};
  return environment(std::string(doing) + ": the CUDA driver answers " + std::to_string(result));
}

class CudaMemory final : public DeviceMemory {
 public:
  static Result<std::unique_ptr<DeviceMemory>> open(const Driver& driver, int ordinal) {
    int device = 0;
    void* context = nullptr;
    QUERN_TRY(check(driver.cuInit(0), "starting the driver"));
    QUERN_TRY(check(driver.cuDeviceGet(&device, ordinal), "opening the GPU"));
    QUERN_TRY(check(driver.cuDevicePrimaryCtxRetain(&context, device), "retaining the GPU's context"));
    auto memory = std::unique_ptr<CudaMemory>(new CudaMemory(driver, device));
    QUERN_TRY(check(driver.cuCtxPushCurrent(context), "making the GPU's context current"));
    return std::unique_ptr<DeviceMemory>(std::move(memory));
  }
  ~CudaMemory() override { driver_.cuDevicePrimaryCtxRelease(device_); }
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;

  Result<void*> allocate(std::size_t bytes) override {
    Driver::Address address = 0;
    QUERN_TRY(check(driver_.cuMemAlloc(&address, std::max<std::size_t>(bytes, 1)), "allocating device memory"));
    return reinterpret_cast<void*>(address);
  }
  void release(void* data) override { driver_.cuMemFree(reinterpret_cast<Driver::Address>(data)); }
  Status copy_in(void* device, const void* host, std::size_t bytes) override {
    return check(driver_.cuMemcpyHtoD(reinterpret_cast<Driver::Address>(device), host, bytes), "copying to the device");
  }
  Status copy_out(void* host, const void* device, std::size_t bytes) override {
    return check(driver_.cuMemcpyDtoH(host, reinterpret_cast<Driver::Address>(device), bytes), "copying to the host");
  }

 private:
  CudaMemory(const Driver& driver, int device) : driver_(driver), device_(device) {}

  Driver driver_;
  int device_;
};

}  // namespace

Result<std::unique_ptr<DeviceMemory>> DeviceMemory::open(const Context& context, const ContextOptions& options) {
  if (context.target().kind == Target::Kind::host) return std::unique_ptr<DeviceMemory>(std::make_unique<HostMemory>());
  QUERN_ASSIGN(const Driver driver, load_driver(options.driver_library));
  return CudaMemory::open(driver, std::atoi(context.device_spec().c_str() + std::string("cuda:").size()));
}

}  // namespace quern::examples

#include "runtime/cuda/driver_api.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

namespace quern::cuda {
namespace {

std::vector<std::string> driver_candidates(const std::string& path) {
  if (!path.empty()) return {path};
  return {"libcuda.so.1", "libcuda.so", "/usr/lib/wsl/lib/libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1"};
}

// CUDA_ERROR_*: STUB_LIBRARY is what the toolkit's link-time stub answers, NO_DEVICE what a driver without a GPU answers.
constexpr CUresult kStubLibrary = 34;

}  // namespace

std::string DriverApi::describe(CUresult result) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (get_error_name(result, &name) != kSuccess || name == nullptr) return "CUDA driver error " + std::to_string(result);
  if (get_error_string(result, &text) != kSuccess || text == nullptr) return name;
  return std::string(name) + ": " + text;
}

Result<std::shared_ptr<const DriverApi>> open_driver(const std::string& path) {
  QUERN_ASSIGN(Library library, Library::open("the CUDA driver library", driver_candidates(path)));
  auto api = std::make_shared<DriverApi>();
  api->library_path = library.path();
#define QUERN_CUDA_LOAD(name, symbol_name, parameters)                                                                                \
  api->name = reinterpret_cast<decltype(api->name)>(library.symbol(symbol_name));                                                     \
  if (api->name == nullptr)                                                                                                           \
    return Error{ErrorCode::kEnvironment,                                                                                             \
                 "the CUDA driver library " + library.path() + " lacks " symbol_name + ": a driver for CUDA 12.0 or newer is needed", \
                 {}};
  QUERN_CUDA_DRIVER_FUNCTIONS(QUERN_CUDA_LOAD)
#undef QUERN_CUDA_LOAD
#define QUERN_CUDA_LOAD_OPTIONAL(name, symbol_name, parameters) \
  api->name = reinterpret_cast<decltype(api->name)>(library.symbol(symbol_name));
  QUERN_CUDA_OPTIONAL_DRIVER_FUNCTIONS(QUERN_CUDA_LOAD_OPTIONAL)
#undef QUERN_CUDA_LOAD_OPTIONAL
  const CUresult result = api->init(0);
  if (result == kNoDevice || result == kStubLibrary)
    return Error{ErrorCode::kEnvironment, "no CUDA device: " + library.path() + " answers " + api->describe(result), {}};
  if (result != kSuccess)
    return Error{ErrorCode::kEnvironment, "the CUDA driver " + library.path() + " does not start: " + api->describe(result), {}};
  api->driver_get_version(&api->version);
  return std::shared_ptr<const DriverApi>(std::move(api));
}

bool is_sticky(CUresult result) {
  // CUDA_ERROR_: DEINITIALIZED 4, ECC_UNCORRECTABLE 214, NVLINK_UNCORRECTABLE 220, CONTAINED 226, ILLEGAL_ADDRESS 700, LAUNCH_TIMEOUT 702,
  // CONTEXT_IS_DESTROYED 709, ASSERT 710, HARDWARE_STACK_ERROR 714, ILLEGAL_INSTRUCTION 715, MISALIGNED_ADDRESS 716, INVALID_ADDRESS_SPACE
  // 717, INVALID_PC 718, LAUNCH_FAILED 719, TENSOR_MEMORY_LEAK 721, MPS_CLIENT_TERMINATED 810, UNKNOWN 999.
  constexpr std::array<CUresult, 17> kSticky = {4, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 810, 999};
  return std::find(kSticky.begin(), kSticky.end(), result) != kSticky.end();
}

}  // namespace quern::cuda

// The CUDA Driver API, opened at run time: own prototypes of its stable C ABI and the constants used here, so that neither building nor
// starting needs CUDA. Covers drivers from CUDA 12.0 on; every symbol below exists in the 12.x and 13.x drivers alike,
// but for those that say from when on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "quern/result.h"
#include "runtime/library.h"

namespace quern::cuda {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct CUctx_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphExec = struct CUgraphExec_st*;

inline constexpr CUresult kSuccess = 0;
inline constexpr CUresult kOutOfMemory = 2;
inline constexpr CUresult kNoDevice = 100;
inline constexpr CUresult kInvalidImage = 200;
inline constexpr CUresult kNoBinaryForGpu = 209;
inline constexpr CUresult kNotFound = 500;
inline constexpr CUresult kStreamCaptureImplicit = 906;

enum DeviceAttribute : int {
  kMaxThreadsPerBlock = 1,
  kMaxBlockDimX = 2,
  kMaxBlockDimY = 3,
  kMaxBlockDimZ = 4,
  kMaxGridDimX = 5,
  kMaxGridDimY = 6,
  kMaxGridDimZ = 7,
  kMaxSharedMemoryPerBlock = 8,
  kClockRateKhz = 13,
  kMultiprocessorCount = 16,
  kL2CacheBytes = 38,
  kComputeCapabilityMajor = 75,
  kComputeCapabilityMinor = 76,
  kMaxSharedMemoryPerBlockOptin = 97,
};

enum FunctionAttribute : int { kFunctionSharedBytes = 1, kFunctionMaxDynamicSharedBytes = 8 };

enum JitOption : int { kJitInfoLogBuffer = 3, kJitInfoLogBufferBytes = 4, kJitErrorLogBuffer = 5, kJitErrorLogBufferBytes = 6 };

// The launch attribute under which a kernel may start before the one ahead of it on the stream has finished (sm_90 and later).
inline constexpr int kProgrammaticStreamSerialization = 6;
struct CUlaunchAttribute {
  int id = 0;
  char padding[4] = {};
  union {
    char bytes[64] = {};
    int programmatic_stream_serialization_allowed;
  } value;
};
struct CUlaunchConfig {
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned shared_bytes;
  CUstream stream;
  CUlaunchAttribute* attributes;
  unsigned attribute_count;
};

inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr int kCaptureThreadLocal = 1;
inline constexpr int kCaptureStatusNone = 0;

// name of the member, exported symbol, parameters
#define QUERN_CUDA_DRIVER_FUNCTIONS(F)                                                                            \
  F(init, "cuInit", (unsigned))                                                                                   \
  F(driver_get_version, "cuDriverGetVersion", (int*))                                                             \
  F(get_error_name, "cuGetErrorName", (CUresult, const char**))                                                   \
  F(get_error_string, "cuGetErrorString", (CUresult, const char**))                                               \
  F(device_get_count, "cuDeviceGetCount", (int*))                                                                 \
  F(device_get, "cuDeviceGet", (CUdevice*, int))                                                                  \
  F(device_get_name, "cuDeviceGetName", (char*, int, CUdevice))                                                   \
  F(device_total_memory, "cuDeviceTotalMem_v2", (std::size_t*, CUdevice))                                         \
  F(device_get_attribute, "cuDeviceGetAttribute", (int*, int, CUdevice))                                          \
  F(primary_context_retain, "cuDevicePrimaryCtxRetain", (CUcontext*, CUdevice))                                   \
  F(primary_context_release, "cuDevicePrimaryCtxRelease_v2", (CUdevice))                                          \
  F(context_get_current, "cuCtxGetCurrent", (CUcontext*))                                                         \
  F(context_push, "cuCtxPushCurrent_v2", (CUcontext))                                                             \
  F(context_pop, "cuCtxPopCurrent_v2", (CUcontext*))                                                              \
  F(context_synchronize, "cuCtxSynchronize", ())                                                                  \
  F(module_load_data, "cuModuleLoadDataEx", (CUmodule*, const void*, unsigned, int*, void**))                     \
  F(module_unload, "cuModuleUnload", (CUmodule))                                                                  \
  F(module_get_function, "cuModuleGetFunction", (CUfunction*, CUmodule, const char*))                             \
  F(function_get_attribute, "cuFuncGetAttribute", (int*, int, CUfunction))                                        \
  F(function_set_attribute, "cuFuncSetAttribute", (CUfunction, int, int))                                         \
  F(memory_allocate, "cuMemAlloc_v2", (CUdeviceptr*, std::size_t))                                                \
  F(memory_free, "cuMemFree_v2", (CUdeviceptr))                                                                   \
  F(copy_host_to_device, "cuMemcpyHtoD_v2", (CUdeviceptr, const void*, std::size_t))                              \
  F(copy_device_to_host, "cuMemcpyDtoH_v2", (void*, CUdeviceptr, std::size_t))                                    \
  F(copy_device_to_device, "cuMemcpyDtoD_v2", (CUdeviceptr, CUdeviceptr, std::size_t))                            \
  F(set_bytes, "cuMemsetD8_v2", (CUdeviceptr, unsigned char, std::size_t))                                        \
  F(launch_kernel, "cuLaunchKernel",                                                                              \
    (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void**, void**)) \
  F(launch_kernel_ex, "cuLaunchKernelEx", (const CUlaunchConfig*, CUfunction, void**, void**))                    \
  F(stream_create, "cuStreamCreate", (CUstream*, unsigned))                                                       \
  F(stream_destroy, "cuStreamDestroy_v2", (CUstream))                                                             \
  F(stream_synchronize, "cuStreamSynchronize", (CUstream))                                                        \
  F(stream_begin_capture, "cuStreamBeginCapture_v2", (CUstream, int))                                             \
  F(stream_end_capture, "cuStreamEndCapture", (CUstream, CUgraph*))                                               \
  F(stream_is_capturing, "cuStreamIsCapturing", (CUstream, int*))                                                 \
  F(graph_instantiate, "cuGraphInstantiateWithFlags", (CUgraphExec*, CUgraph, unsigned long long))                \
  F(graph_launch, "cuGraphLaunch", (CUgraphExec, CUstream))                                                       \
  F(graph_exec_destroy, "cuGraphExecDestroy", (CUgraphExec))                                                      \
  F(graph_destroy, "cuGraphDestroy", (CUgraph))                                                                   \
  F(event_create, "cuEventCreate", (CUevent*, unsigned))                                                          \
  F(event_record, "cuEventRecord", (CUevent, CUstream))                                                           \
  F(event_synchronize, "cuEventSynchronize", (CUevent))                                                           \
  F(event_elapsed_ms, "cuEventElapsedTime", (float*, CUevent, CUevent))                                           \
  F(event_destroy, "cuEventDestroy_v2", (CUevent))

// The same for what drivers gained after CUDA 12.0: null where the driver is older.
#define QUERN_CUDA_OPTIONAL_DRIVER_FUNCTIONS(F) F(function_get_name, "cuFuncGetName", (const char**, CUfunction))  // 12.3

// The function table. Immutable once loaded, so any thread may use it.
struct DriverApi {
#define QUERN_CUDA_MEMBER(name, symbol, parameters) CUresult(*name) parameters = nullptr;
  QUERN_CUDA_DRIVER_FUNCTIONS(QUERN_CUDA_MEMBER)
  QUERN_CUDA_OPTIONAL_DRIVER_FUNCTIONS(QUERN_CUDA_MEMBER)
#undef QUERN_CUDA_MEMBER

  int version = 0;           // 13000 for CUDA 13.0
  std::string library_path;  // the file that was loaded

  // "CUDA_ERROR_OUT_OF_MEMORY: out of memory"; the number alone when the driver does not know it.
  std::string describe(CUresult result) const;
};

// Opens the driver and initializes it. `path` names one library, or is empty to search for libcuda.so.1 the usual ways.
// Errors: kEnvironment naming what was looked for, the symbol that is missing, or why initialization failed.
Result<std::shared_ptr<const DriverApi>> open_driver(const std::string& path);

// Whether the context can run nothing more after this error: faults, traps, timeouts and hardware errors are sticky.
bool is_sticky(CUresult result);

}  // namespace quern::cuda

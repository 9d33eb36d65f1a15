// A CUDA driver without a GPU: the exported symbols that quern opens, with just enough behaviour to test what is done around them. Device
// memory is host memory. A test reads and steers it through fake_driver().
#include "fake_driver.h"

#include <cstdlib>
#include <cstring>
#include <string>

#include "runtime/cuda/driver_api.h"

namespace {

quern::test::FakeDriver state;

// The result that a test planted for this call, else success.
int answer(const char* symbol) {
  ++state.calls[symbol];
  const auto found = state.answers.find(symbol);
  return found == state.answers.end() ? 0 : found->second;
}

int current_context = 0;
bool capturing = false;
char device_context, module_handle, stream_handle, graph_handle, exec_handle, event_handle;

}  // namespace

#define API extern "C" __attribute__((visibility("default")))

API quern::test::FakeDriver* fake_driver() { return &state; }

API int cuInit(unsigned) { return answer("cuInit"); }
API int cuDriverGetVersion(int* version) { return *version = 13000, 0; }
API int cuGetErrorName(int result, const char** name) {
  *name = result == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : result == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : nullptr;
  return *name == nullptr ? 1 : 0;
}
API int cuGetErrorString(int, const char** text) { return *text = "as the driver says", 0; }
API int cuDeviceGetCount(int* count) { return *count = 2, answer("cuDeviceGetCount"); }
API int cuDeviceGet(int* device, int ordinal) { return *device = ordinal, 0; }
API int cuDeviceGetName(char* name, int size, int) { return std::strncpy(name, "Fake GPU", size), 0; }
API int cuDeviceTotalMem_v2(size_t* bytes, int) { return *bytes = (size_t{140} << 30) - 12345, 0; }
API int cuDeviceGetAttribute(int* value, int attribute, int) {
  const auto found = state.attributes.find(attribute);
  *value = found == state.attributes.end() ? 0 : found->second;
  return found == state.attributes.end() ? 1 : 0;
}
API int cuDevicePrimaryCtxRetain(void** context, int) { return *context = &device_context, answer("cuDevicePrimaryCtxRetain"); }
API int cuDevicePrimaryCtxRelease_v2(int) { return answer("cuDevicePrimaryCtxRelease_v2"); }
API int cuCtxGetCurrent(void** context) { return *context = current_context > 0 ? &device_context : nullptr, 0; }
API int cuCtxPushCurrent_v2(void*) { return ++current_context, answer("cuCtxPushCurrent_v2"); }
API int cuCtxPopCurrent_v2(void** context) { return --current_context, *context = &device_context, answer("cuCtxPopCurrent_v2"); }
API int cuCtxSynchronize() { return answer("cuCtxSynchronize"); }
API int cuModuleLoadDataEx(void** module, const void* image, unsigned options, int* names, void** values) {
  state.loaded = static_cast<const char*>(image);
  *module = &module_handle;
  const int result = answer("cuModuleLoadDataEx");
  for (unsigned i = 0; i < options; ++i)
    if (names[i] == 5 && result != 0) std::strcpy(static_cast<char*>(values[i]), "what the loader says");
  return result;
}
API int cuModuleUnload(void*) { return answer("cuModuleUnload"); }
API int cuModuleGetFunction(void** function, void*, const char* entry) {
  *function = &state.functions[entry];
  return std::string(entry) == "absent" ? 500 : answer("cuModuleGetFunction");
}
#ifndef QUERN_FAKE_OLD_DRIVER  // a driver of CUDA 12.0 has no such function
API int cuFuncGetName(const char** name, void* function) {
  for (const auto& [entry, known] : state.functions)
    if (&known == function) *name = state.names.contains(entry) ? state.names[entry].c_str() : entry.c_str();
  return answer("cuFuncGetName");
}
#endif
API int cuFuncGetAttribute(int* value, int attribute, void* function) {
  const auto* f = static_cast<quern::test::FakeDriver::Function*>(function);
  return *value = attribute == 1 ? f->static_shared : f->max_dynamic_shared, 0;
}
API int cuFuncSetAttribute(void* function, int, int value) {
  static_cast<quern::test::FakeDriver::Function*>(function)->max_dynamic_shared = value;
  return answer("cuFuncSetAttribute");
}
API int cuMemAlloc_v2(unsigned long long* pointer, size_t bytes) {
  const int result = bytes == 0 ? 1 : answer("cuMemAlloc_v2");
  if (result == 0) *pointer = reinterpret_cast<unsigned long long>(std::malloc(bytes));
  return result;
}
API int cuMemFree_v2(unsigned long long pointer) { return std::free(reinterpret_cast<void*>(pointer)), answer("cuMemFree_v2"); }
API int cuMemcpyHtoD_v2(unsigned long long to, const void* from, size_t bytes) {
  return std::memcpy(reinterpret_cast<void*>(to), from, bytes), answer("cuMemcpyHtoD_v2");
}
API int cuMemcpyDtoH_v2(void* to, unsigned long long from, size_t bytes) {
  return std::memcpy(to, reinterpret_cast<void*>(from), bytes), answer("cuMemcpyDtoH_v2");
}
API int cuMemcpyDtoD_v2(unsigned long long to, unsigned long long from, size_t bytes) {
  return std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes), answer("cuMemcpyDtoD_v2");
}
API int cuMemsetD8_v2(unsigned long long to, unsigned char value, size_t bytes) {
  return std::memset(reinterpret_cast<void*>(to), value, bytes), answer("cuMemsetD8_v2");
}
API int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                       void* stream, void** parameters, void**) {
  state.launches.push_back({static_cast<quern::test::FakeDriver::Function*>(function),
                            {gx, gy, gz},
                            {bx, by, bz},
                            shared,
                            stream,
                            capturing,
                            current_context > 0,
                            *static_cast<quern::KernelArgs*>(parameters[0])});
  return answer("cuLaunchKernel");
}
API int cuLaunchKernelEx(const quern::cuda::CUlaunchConfig* c, void* function, void** parameters, void** extra) {
  return cuLaunchKernel(function, c->grid_x, c->grid_y, c->grid_z, c->block_x, c->block_y, c->block_z, c->shared_bytes, c->stream,
                        parameters, extra);
}
API int cuStreamCreate(void** stream, unsigned) { return *stream = &stream_handle, answer("cuStreamCreate"); }
API int cuStreamDestroy_v2(void*) { return answer("cuStreamDestroy_v2"); }
API int cuStreamSynchronize(void*) { return answer("cuStreamSynchronize"); }
API int cuStreamBeginCapture_v2(void*, int) { return capturing = true, answer("cuStreamBeginCapture_v2"); }
API int cuStreamEndCapture(void*, void** graph) { return capturing = false, *graph = &graph_handle, answer("cuStreamEndCapture"); }
API int cuStreamIsCapturing(void*, int* status) { return *status = capturing || state.capturing ? 1 : 0, answer("cuStreamIsCapturing"); }
API int cuGraphInstantiateWithFlags(void** exec, void*, unsigned long long) {
  return *exec = &exec_handle, answer("cuGraphInstantiateWithFlags");
}
API int cuGraphLaunch(void*, void*) { return answer("cuGraphLaunch"); }
API int cuGraphExecDestroy(void*) { return answer("cuGraphExecDestroy"); }
API int cuGraphDestroy(void*) { return answer("cuGraphDestroy"); }
API int cuEventCreate(void** event, unsigned) { return *event = &event_handle, answer("cuEventCreate"); }
API int cuEventRecord(void*, void*) { return answer("cuEventRecord"); }
API int cuEventSynchronize(void*) { return answer("cuEventSynchronize"); }
API int cuEventElapsedTime(float* ms, void*, void*) { return *ms = 0.006F, answer("cuEventElapsedTime"); }
API int cuEventDestroy_v2(void*) { return answer("cuEventDestroy_v2"); }

// The border between quern and its host plugin (libquern_host.so): plain C structs and one exported symbol, so that quern builds without
// LLVM and a plugin of another LLVM drops in. Every pointer passed in is borrowed for the call; every QuernHostBytes filled in is the
// caller's, to be given to `release`.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { QUERN_HOST_ABI_VERSION = 3 };

// Bytes made by the plugin; text is not terminated.
typedef struct QuernHostBytes {
  char* data;
  size_t size;
} QuernHostBytes;

// A file that the kernel can include, under the name it is included by ("ptx/ptx.cuh").
typedef struct QuernHostHeader {
  const char* name;
  const char* text;
  size_t size;
} QuernHostHeader;

typedef struct QuernHostSource {
  const char* name;  // for messages
  const char* text;
  size_t size;
  const QuernHostHeader* headers;
  size_t header_count;
  const char* const* options;  // clang -cc1 options, added after the plugin's own
  size_t option_count;
} QuernHostSource;

typedef struct QuernHostModule QuernHostModule;
typedef struct QuernHostFunction QuernHostFunction;
typedef struct QuernHostExecutor QuernHostExecutor;

// In which order ready lanes run. A kernel without races computes the same in every order.
enum { QUERN_HOST_ORDER_FORWARD = 0, QUERN_HOST_ORDER_REVERSE = 1, QUERN_HOST_ORDER_RANDOM = 2 };
// When a cp.async lands: at the wait that covers it (shows a missing wait), at once (shows a buffer refilled too early), or by lot.
enum { QUERN_HOST_COPIES_DEFERRED = 0, QUERN_HOST_COPIES_EAGER = 1, QUERN_HOST_COPIES_RANDOM = 2 };

typedef struct QuernHostLaunch {
  const QuernHostFunction* function;
  int64_t grid_x, grid_y;
  uint32_t block_x;  // a multiple of 32, at most 1024
  uint32_t shared_bytes;
  const void* args;  // a quern::KernelArgs
  int32_t order;
  int32_t copies;
  uint64_t seed;  // of the random choices; each block derives its own
} QuernHostLaunch;

// Functions that return int return 0 for success. All are thread-safe.
typedef struct QuernHostPlugin {
  uint32_t abi_version;
  const char* identity;    // compiler, version and CPU baseline: everything that decides an object's bytes besides its source
  const char* sanitizers;  // what kernels are instrumented with; empty for none
  int (*compile)(const QuernHostSource* source, QuernHostBytes* object, QuernHostBytes* log);
  QuernHostModule* (*load)(const void* object, size_t size, QuernHostBytes* error);  // null on failure
  void (*unload)(QuernHostModule* module);
  const QuernHostFunction* (*function)(QuernHostModule* module, const char* name);  // null when the module has no such kernel; owned by it
  // The symbol of the loaded object at which the function starts; empty when the object has none there.
  void (*symbol_of)(QuernHostModule* module, const QuernHostFunction* function, QuernHostBytes* symbol);
  QuernHostExecutor* (*create_executor)(int threads);  // at least 1; threads start with the first launch that needs them
  void (*destroy_executor)(QuernHostExecutor* executor);
  // Runs to completion. 1: the kernel broke a rule, `error` names kernel, block and rule. A fault of the CPU is a fault of the process.
  int (*launch)(QuernHostExecutor* executor, const QuernHostLaunch* launch, QuernHostBytes* error);
  void (*release)(QuernHostBytes* bytes);
} QuernHostPlugin;

// The one exported symbol. Null when the plugin speaks another version.
typedef const QuernHostPlugin* (*QuernHostPluginEntry)(uint32_t abi_version);
#define QUERN_HOST_PLUGIN_ENTRY "quern_host_plugin"

#ifdef __cplusplus
}
#endif

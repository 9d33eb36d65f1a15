// The plugin's function table: C at the border, the modules of this folder behind it.
#include <cstdlib>
#include <cstring>
#include <string>

#include "runtime/host/executor.h"
#include "runtime/host/kernel_compiler.h"
#include "runtime/host/kernel_module.h"
#include "runtime/host/plugin_abi.h"

namespace quern::host {
namespace {

void fill(QuernHostBytes* bytes, const std::string& text) {
  if (bytes == nullptr) return;
  bytes->data = static_cast<char*>(std::malloc(text.size() + 1));
  bytes->size = bytes->data == nullptr ? 0 : text.size();
  if (bytes->data != nullptr) std::memcpy(bytes->data, text.c_str(), text.size() + 1);
}

void release(QuernHostBytes* bytes) {
  std::free(bytes->data);
  *bytes = {};
}

int compile(const QuernHostSource* source, QuernHostBytes* object, QuernHostBytes* log) {
  CompileInput input;
  input.name = source->name;
  input.text.assign(source->text, source->size);
  for (std::size_t i = 0; i < source->header_count; ++i)
    input.headers.push_back({source->headers[i].name, std::string(source->headers[i].text, source->headers[i].size)});
  for (std::size_t i = 0; i < source->option_count; ++i) input.options.emplace_back(source->options[i]);
  const CompileOutput output = compile_kernel(input);
  fill(log, output.log);
  if (output.ok) fill(object, output.object);
  return output.ok ? 0 : 1;
}

QuernHostModule* load(const void* object, std::size_t size, QuernHostBytes* error) {
  std::string reason;
  auto module = KernelModule::load(object, size, reason);
  if (module == nullptr) fill(error, reason);
  return reinterpret_cast<QuernHostModule*>(module.release());
}

void unload(QuernHostModule* module) { delete reinterpret_cast<KernelModule*>(module); }

const QuernHostFunction* function(QuernHostModule* module, const char* name) {
  return reinterpret_cast<const QuernHostFunction*>(reinterpret_cast<KernelModule*>(module)->function(name));
}

void symbol_of(QuernHostModule* module, const QuernHostFunction* function, QuernHostBytes* symbol) {
  fill(symbol, reinterpret_cast<KernelModule*>(module)->symbol_of(*reinterpret_cast<const KernelFunction*>(function)));
}

QuernHostExecutor* create_executor(int threads) { return reinterpret_cast<QuernHostExecutor*>(new Executor(threads)); }
void destroy_executor(QuernHostExecutor* executor) { delete reinterpret_cast<Executor*>(executor); }

// Empty when the launch may run.
std::string refusal(const BlockLaunch& launch, std::int64_t grid_y) {
  const std::string kernel = "kernel " + launch.function->name + ": ";
  if (launch.threads == 0 || launch.threads % kWarp != 0 || launch.threads > kMaxThreads)
    return kernel + "block of " + std::to_string(launch.threads) + " threads, needed a multiple of 32 up to 1024";
  if (launch.threads > launch.function->max_threads)
    return kernel + "block of " + std::to_string(launch.threads) + " threads, launch bound " + std::to_string(launch.function->max_threads);
  if (launch.grid_x < 1 || grid_y < 1)
    return kernel + "grid of " + std::to_string(launch.grid_x) + " x " + std::to_string(grid_y) + " blocks, needed at least 1";
  return {};
}

int launch(QuernHostExecutor* executor, const QuernHostLaunch* request, QuernHostBytes* error) {
  BlockLaunch block;
  block.function = reinterpret_cast<const KernelFunction*>(request->function);
  block.args = static_cast<const KernelArgs*>(request->args);
  block.threads = request->block_x;
  block.shared_bytes = request->shared_bytes;
  block.order = static_cast<Order>(request->order);
  block.copies = static_cast<CopyTiming>(request->copies);
  block.seed = request->seed;
  block.grid_x = request->grid_x;
  std::string reason = refusal(block, request->grid_y);
  if (reason.empty()) reason = reinterpret_cast<Executor*>(executor)->launch(block, request->grid_x * request->grid_y);
  if (reason.empty()) return 0;
  fill(error, reason);
  return 1;
}

const char* sanitizers() {
#ifdef QUERN_SANITIZE
  return QUERN_SANITIZE;
#else
  return "";
#endif
}

}  // namespace
}  // namespace quern::host

extern "C" __attribute__((visibility("default"))) const QuernHostPlugin* quern_host_plugin(std::uint32_t abi_version) {
  namespace host = quern::host;
  if (abi_version != QUERN_HOST_ABI_VERSION) return nullptr;
  static const QuernHostPlugin plugin = {QUERN_HOST_ABI_VERSION,
                                         host::compiler_identity().c_str(),
                                         host::sanitizers(),
                                         &host::compile,
                                         &host::load,
                                         &host::unload,
                                         &host::function,
                                         &host::symbol_of,
                                         &host::create_executor,
                                         &host::destroy_executor,
                                         &host::launch,
                                         &host::release};
  return &plugin;
}

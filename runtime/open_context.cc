// From options to a context with real parts, and from the environment to options.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "generator/family.h"
#include "runtime/context_parts.h"

namespace quern {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

// Anything but "0" turns a flag on: who writes "true" means it.
bool flag(const char* name) {
  const std::string value = variable(name);
  return !value.empty() && value != "0";
}

std::vector<std::string> split_path(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find(':', begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace

ContextOptions from_environment() {
  ContextOptions options;
  if (auto device = variable("QUERN_DEVICE"); !device.empty()) options.device = std::move(device);
  options.cache_directory = cache::default_directory(std::getenv("QUERN_CACHE_DIR"), std::getenv("XDG_CACHE_HOME"), std::getenv("HOME"));
  options.system_cache_directories = split_path(variable("QUERN_SYSTEM_CACHE_DIRS"));
  options.nvrtc_library = variable("QUERN_NVRTC");
  options.driver_library = variable("QUERN_CUDA_DRIVER");
  options.host_plugin = variable("QUERN_HOST_PLUGIN");
  options.record_launches = flag("QUERN_RECORD_LAUNCHES");
  options.launch_apart = flag("QUERN_LAUNCH_APART");
  options.warn = [](const std::string& line) { std::fprintf(stderr, "quern: %s\n", line.c_str()); };
  return options;
}

KernelProvider generator_kernels() {
  return {.default_config = [](const Problem& problem, const Target& target) { return default_config(problem, target); },
          .render = [](const Problem& problem, const Target& target, const Config& config) { return render(problem, target, config); }};
}

LibraryPaths library_paths(const ContextOptions& options) {
  return {.nvrtc = options.nvrtc_library, .driver = options.driver_library, .host_plugin = options.host_plugin};
}

cache::StoreOptions store_options(const ContextOptions& options) {
  cache::StoreOptions store;
  store.directory = options.cache_directory;
  store.system_directories = options.system_cache_directories;
  store.max_bytes = options.cache_max_bytes;
  store.compile_wait = options.compile_wait;
  store.warn = options.warn;
  return store;
}

Result<Context> Context::open(const ContextOptions& options) {
  const LibraryPaths paths = library_paths(options);
  ContextParts parts;
  QUERN_ASSIGN(parts.device, open_device(options.device, paths));
  auto compiler = parts.device->info().target.kind == Target::Kind::host ? open_host_compiler(paths) : open_nvrtc(paths);
  if (compiler)
    parts.compiler = std::move(*compiler);
  else
    parts.compiler_missing = std::move(compiler.error());
  parts.store = cache::Store::open(store_options(options));
  parts.kernels = generator_kernels();
  parts.record_launches = options.record_launches;
  parts.launch_apart = options.launch_apart;
  parts.warn = options.warn;
  return make_context(std::move(parts));
}

}  // namespace quern

#include "runtime/host_plugin.h"

#include <dlfcn.h>

#include <string>
#include <vector>

#include "runtime/library.h"

namespace quern {
namespace {

constexpr const char* kFile = "libquern_host.so";

// Folder of the library (or executable) that this code was linked into.
std::string own_directory() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&own_directory), &info) == 0 || info.dli_fname == nullptr) return {};
  const std::string path = info.dli_fname;
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash);
}

std::vector<std::string> candidates(const LibraryPaths& paths) {
  if (!paths.host_plugin.empty()) return {paths.host_plugin};
  std::vector<std::string> all;
  for (const auto& folder : {executable_directory(), own_directory()}) {
    if (folder.empty()) continue;
    all.push_back(folder + "/" + kFile);
    all.push_back(folder + "/../" + kFile);  // tests and examples live one folder below the command
    all.push_back(folder + "/../lib/" + kFile);
  }
  all.emplace_back(kFile);
  return all;
}

}  // namespace

Result<HostPlugin> open_host_plugin(const LibraryPaths& paths) {
  QUERN_ASSIGN(const Library library, Library::open("host plugin", candidates(paths)));
  const auto entry = reinterpret_cast<QuernHostPluginEntry>(library.symbol(QUERN_HOST_PLUGIN_ENTRY));
  const QuernHostPlugin* plugin = entry == nullptr ? nullptr : entry(QUERN_HOST_ABI_VERSION);
  if (plugin == nullptr)
    return Error{
        ErrorCode::kEnvironment,
        "host plugin " + library.path() + " does not speak version " + std::to_string(QUERN_HOST_ABI_VERSION) + " of the plugin interface",
        {}};
  return HostPlugin{plugin, library.path()};
}

}  // namespace quern

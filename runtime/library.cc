#include "runtime/library.h"

#include <dlfcn.h>
#include <link.h>

#include <filesystem>
#include <system_error>

namespace quern {
namespace {

std::string resolved_path(void* handle, const std::string& requested) {
  link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr && map->l_name != nullptr && map->l_name[0] != '\0') return map->l_name;
  return requested;
}

bool is_file(const std::string& path) {
  std::error_code ignored;
  return path.find('/') != std::string::npos && std::filesystem::exists(path, ignored);
}

}  // namespace

Result<Library> Library::open(const std::string& what, const std::vector<std::string>& candidates) {
  std::string tried, reason;
  for (const auto& candidate : candidates) {
    if (void* handle = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL)) return Library(handle, resolved_path(handle, candidate));
    const char* why = dlerror();
    if (is_file(candidate) && why != nullptr) reason = why;
    tried += (tried.empty() ? "" : ", ") + candidate;
  }
  std::string message = what + " not found: looked for " + tried;
  if (!reason.empty()) message += " (" + reason + ")";
  return Error{ErrorCode::kEnvironment, std::move(message), {}};
}

void* Library::symbol(const char* name) const { return dlsym(handle_, name); }

std::string executable_directory() {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? std::string() : path.parent_path().string();
}

}  // namespace quern

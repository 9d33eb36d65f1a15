// The host target's compiler: a KernelSource through the plugin's clang into a host object.
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "runtime/compiler.h"
#include "runtime/host_plugin.h"

namespace quern {
namespace {

// Macros mean the same on every target. Every other option directs PTX generation, and has nothing to direct here.
bool applies_to_host(const std::string& option) { return option.starts_with("-D") || option.starts_with("-U"); }

class HostCompiler : public Compiler {
 public:
  explicit HostCompiler(HostPlugin plugin) : plugin_(plugin.table), path_(std::move(plugin.path)) {}

  std::string identity() const override { return plugin_->identity; }

  std::string location() const override { return path_; }

  Status supports(const Target& target) const override {
    if (target.kind == Target::Kind::host) return {};
    return Error{ErrorCode::kUnsupported, std::string(plugin_->identity) + " compiles for the host, not for " + to_string(target), {}};
  }

  Result<Binary> compile(const KernelSource& source, const Target& target) const override {
    QUERN_TRY(supports(target));
    std::vector<QuernHostHeader> headers;
    for (const auto& header : source.headers) headers.push_back({header.name.c_str(), header.text.data(), header.text.size()});
    std::vector<const char*> options;
    for (const auto& option : source.options)
      if (applies_to_host(option)) options.push_back(option.c_str());
    const QuernHostSource request{source.name.c_str(), source.text.data(), source.text.size(), headers.data(),
                                  headers.size(),      options.data(),     options.size()};

    QuernHostBytes object{}, log{};
    const auto start = std::chrono::steady_clock::now();
    const int failed = plugin_->compile(&request, &object, &log);
    Binary binary;
    binary.format = Binary::Format::host_object;
    binary.compile_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    binary.log.assign(log.data == nullptr ? "" : log.data, log.size);
    if (failed == 0) {
      binary.bytes.resize(object.size);
      std::memcpy(binary.bytes.data(), object.data, object.size);
    }
    plugin_->release(&object);
    plugin_->release(&log);
    if (failed != 0)
      return Error{ErrorCode::kCompileFailed, source.name + ": " + plugin_->identity + " refused the kernel", std::move(binary.log)};
    return binary;
  }

 private:
  const QuernHostPlugin* plugin_;
  std::string path_;
};

}  // namespace

Result<std::unique_ptr<Compiler>> open_host_compiler(const LibraryPaths& paths) {
  QUERN_ASSIGN(HostPlugin plugin, open_host_plugin(paths));
  return std::unique_ptr<Compiler>(std::make_unique<HostCompiler>(std::move(plugin)));
}

}  // namespace quern

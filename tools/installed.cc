#include "tools/installed.h"

#include <utility>

namespace quern::tools {
namespace {

constexpr int kMostGpus = 64;

void find_gpus(const LibraryPaths& paths, Installed& found) {
  for (int ordinal = 0; ordinal < kMostGpus; ++ordinal) {
    auto device = open_device("cuda:" + std::to_string(ordinal), paths);
    if (!device) {
      if (ordinal == 0) found.no_gpu = device.error().message;
      return;
    }
    found.gpus.push_back((*device)->info());
  }
}

}  // namespace

std::vector<std::string> Installed::compilers() const {
  std::vector<std::string> identities;
  if (nvrtc) identities.push_back(nvrtc->identity());
  if (host_compiler) identities.push_back(host_compiler->identity());
  return identities;
}

std::vector<std::string> Installed::working_targets() const {
  std::vector<std::string> targets;
  if (nvrtc) {
    for (const auto& gpu : gpus) targets.push_back(gpu.spec);
    targets.emplace_back("compile-only");
  }
  if (host && host_compiler) targets.emplace_back("host");
  return targets;
}

Installed look_around(const LibraryPaths& paths) {
  Installed found;
  find_gpus(paths, found);
  if (auto compiler = open_nvrtc(paths))
    found.nvrtc = std::move(*compiler);
  else
    found.no_nvrtc = compiler.error().message;
  auto host_compiler = open_host_compiler(paths);
  auto host = open_device("host", paths);
  if (host_compiler)
    found.host_compiler = std::move(*host_compiler);
  else
    found.no_host = host_compiler.error().message;
  if (host)
    found.host = (*host)->info();
  else
    found.no_host = host.error().message;
  return found;
}

cache::Running running_here(const Installed& installed) {
  cache::Running running;
  running.compilers = installed.compilers();
  for (const auto& gpu : installed.gpus) running.devices.push_back(to_string(gpu.identity));
  if (installed.host) running.devices.push_back(to_string(installed.host->identity));
  // Compiled for other machines is what `quern compile` is for: targets are not held against a row.
  return running;
}

}  // namespace quern::tools

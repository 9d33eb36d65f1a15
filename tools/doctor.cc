// quern doctor: what works on this machine, and what is missing for the rest.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "cache/admin.h"
#include "quern/version.h"
#include "runtime/context_parts.h"
#include "tools/command.h"
#include "tools/installed.h"
#include "tools/json_output.h"
#include "tools/table.h"

namespace quern::tools {
namespace {

struct StoreState {
  std::string directory;
  std::string state;  // "ok", "empty", "off", or what is wrong with it
  std::int64_t artifacts = 0;
  std::int64_t artifact_bytes = 0;
  std::int64_t tunings = 0;
};

StoreState look_at_store(const std::string& directory, const cache::Running& running) {
  StoreState store{.directory = directory, .state = "off"};
  if (directory.empty()) return store;
  const auto artifacts = cache::list_artifacts(directory, running);
  const auto tunings = cache::list_tunings(directory, running);
  if (!artifacts || !tunings) {
    store.state = (artifacts ? tunings.error() : artifacts.error()).message;
    return store;
  }
  store.artifacts = static_cast<std::int64_t>(artifacts->size());
  for (const auto& artifact : *artifacts) store.artifact_bytes += artifact.bytes;
  store.tunings = static_cast<std::int64_t>(tunings->size());
  store.state = store.artifacts + store.tunings == 0 ? "empty" : "ok";
  return store;
}

std::string driver_version(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

Json device_json(const DeviceInfo& info) {
  return {{"device", info.spec},
          {"name", info.identity.name},
          {"target", to_string(info.target)},
          {"identity", to_string(info.identity)},
          {"memory_bytes", info.memory_bytes},
          {"l2_bytes", info.l2_bytes},
          {"driver", info.driver_version > 0 ? Json(driver_version(info.driver_version)) : Json(nullptr)}};
}

Json compiler_json(const Compiler* compiler, const std::string& missing) {
  if (compiler == nullptr) return {{"found", false}, {"reason", missing}};
  return {
      {"found", true}, {"identity", compiler->identity()}, {"path", compiler->location()}, {"architectures", compiler->architectures()}};
}

void print_report_json(const Installed& here, const StoreState& store) {
  Json gpus = Json::array();
  for (const auto& gpu : here.gpus) gpus.push_back(device_json(gpu));
  print_json({{"quern", kVersion},
              {"generator", kGeneratorVersion},
              {"devices", gpus},
              {"no_device", here.gpus.empty() ? Json(here.no_gpu) : Json(nullptr)},
              {"nvrtc", compiler_json(here.nvrtc.get(), here.no_nvrtc)},
              {"host", compiler_json(here.host ? here.host_compiler.get() : nullptr, here.no_host)},
              {"store",
               {{"directory", store.directory},
                {"state", store.state},
                {"artifacts", store.artifacts},
                {"artifact_bytes", store.artifact_bytes},
                {"tunings", store.tunings}}},
              {"works", here.working_targets()}});
}

std::string architectures_text(const std::vector<int>& architectures) {
  if (architectures.empty()) return "none";
  return fmt::format("sm_{} to sm_{}", architectures.front(), architectures.back());
}

void line(const char* what, const std::string& text) { fmt::print("{:<10} {}\n", what, text); }

void print_report(const Installed& here, const StoreState& store) {
  line("quern", fmt::format("{}, generator {}", kVersion, kGeneratorVersion));
  for (const auto& gpu : here.gpus)
    line(gpu.spec.c_str(), fmt::format("{}, driver for CUDA {}", to_string(gpu.identity), driver_version(gpu.driver_version)));
  if (here.gpus.empty()) line("cuda", "none: " + here.no_gpu);
  if (here.nvrtc)
    line("nvrtc",
         fmt::format("{}, {}, {}", here.nvrtc->identity(), architectures_text(here.nvrtc->architectures()), here.nvrtc->location()));
  else
    line("nvrtc", "none: " + here.no_nvrtc);
  if (here.host && here.host_compiler)
    line("host", fmt::format("{}, {}", here.host_compiler->identity(), here.host_compiler->location()));
  else
    line("host", "none: " + here.no_host);
  if (store.directory.empty())
    line("store", "off: none of QUERN_CACHE_DIR, XDG_CACHE_HOME and HOME names a directory");
  else
    line("store", fmt::format("{}: {}, {} kernels ({}), {} tuned problems", store.directory, store.state, store.artifacts,
                              human_bytes(static_cast<double>(store.artifact_bytes)), store.tunings));
  std::string works;
  for (const auto& target : here.working_targets()) works += (works.empty() ? "" : ", ") + target;
  line("works", works.empty() ? "nothing" : works);
}

int run_doctor(const Environment& environment, bool json) {
  const Installed here = look_around(library_paths(environment.context));
  const StoreState store = look_at_store(environment.context.cache_directory, running_here(here));
  if (json)
    print_report_json(here, store);
  else
    print_report(here, store);
  if (!here.working_targets().empty()) return kDone;
  return fail(kNoEnvironment, "nothing works here: neither NVRTC nor the host target's plugin was found");
}

}  // namespace

void add_doctor(CLI::App& app, Session& session) {
  auto* sub = app.add_subcommand("doctor", "What works on this machine: driver, devices, NVRTC, LLVM, store");
  auto json = std::make_shared<bool>(false);
  sub->add_flag("--json", *json, "One JSON object on stdout");
  sub->callback([&session, json] { session.exit_code = run_doctor(session.environment, *json); });
}

}  // namespace quern::tools

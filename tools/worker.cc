// The hidden sub-command that the tuner starts as a child process.
#include "tuner/worker.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "runtime/context_parts.h"
#include "tools/command.h"

namespace quern::tools {

void add_worker(CLI::App& app, Session& session) {
  auto* sub = app.add_subcommand(kWorkerCommand, "")->group("");
  auto device = std::make_shared<std::string>();
  sub->add_option("--device", *device)->required();
  sub->callback([&session, device] {
    const ContextOptions& context = session.environment.context;
    session.exit_code = run_worker({.device = *device, .paths = library_paths(context), .store = store_options(context)});
  });
}

}  // namespace quern::tools

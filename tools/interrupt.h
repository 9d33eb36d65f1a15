// Ctrl-C as a flag: the work under way ends at the next safe point, and all that was measured is kept. A second Ctrl-C ends the process.
#pragma once

#include <atomic>

namespace quern::tools {

// Installs the handlers for SIGINT and SIGTERM at the first call. Signals are a property of the process, so this flag is one too.
const std::atomic<bool>& interrupted();

}  // namespace quern::tools

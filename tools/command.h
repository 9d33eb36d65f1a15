// The sub-commands. Each is one file: it declares its options, calls the library, prints. Results go to stdout, everything else to stderr.
#pragma once

#include <string>

#include "quern/result.h"
#include "tools/environment.h"

namespace CLI {
class App;
}

namespace quern::tools {

enum ExitCode : int { kDone = 0, kFailedCheck = 1, kUsage = 2, kNoEnvironment = 3 };

// The exit code that docs/command.md gives to an error.
int exit_code(ErrorCode code);
// Prints "quern: message" on one line to stderr and, for a failed compile, the first lines of its log. Returns the exit code.
int fail(const Error& error);
int fail(ExitCode code, const std::string& message);
// Prints a remark on one line to stderr.
void remark(const std::string& text);

// A check for options whose text may not be empty, as that of an unset shell variable is. Returns what is wrong, or "".
std::string not_empty(const std::string& value);

// What main.cc hands to the sub-command that runs, and what it gets back.
struct Session {
  Environment environment;
  int exit_code = kDone;
};

void add_tune(CLI::App& app, Session& session);
void add_sweep(CLI::App& app, Session& session);
void add_bench(CLI::App& app, Session& session);
void add_compile(CLI::App& app, Session& session);
void add_cache(CLI::App& app, Session& session);
void add_explain(CLI::App& app, Session& session);
void add_doctor(CLI::App& app, Session& session);
void add_worker(CLI::App& app, Session& session);

}  // namespace quern::tools

// The command `quern`. The environment is read here and nowhere else in tools/.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <system_error>

#include "quern/version.h"
#include "tools/command.h"

namespace quern::tools {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// What the terminal behind `stream` has room for, within reason, or `without` where there is none.
int terminal_columns(int stream, int without) {
  winsize size{};
  const bool known = ioctl(stream, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? std::clamp<int>(size.ws_col, 80, 200) : without;
}

// A closed descriptor of the three would be given to the next file or socket that is opened, and what is printed would go there: a worker
// of the tuner got progress lines for answers. Writing to stdout goes on failing, as it should.
void occupy_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(stream, F_GETFD) == -1) open("/dev/null", stream == STDERR_FILENO ? O_WRONLY : O_RDONLY);  // takes the lowest number
}

std::string own_path() {
  std::string path(4096, '\0');
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size());
  path.resize(length > 0 ? static_cast<std::size_t>(length) : 0);
  return path;
}

Environment read_environment() {
  Environment environment;
  environment.context = from_environment();
  environment.cublas = variable("QUERN_CUBLAS");
  environment.progress_bar =
      isatty(STDERR_FILENO) != 0 && variable("TERM") != "dumb" && variable("TERM") != "" && variable("NO_COLOR").empty();
  constexpr int kUncut = 10000;
  environment.columns = terminal_columns(STDOUT_FILENO, kUncut);
  environment.progress_columns = terminal_columns(STDERR_FILENO, 100);
  environment.executable = own_path();
  return environment;
}

// The exit code, unless what was printed did not arrive: a long output fails in the middle, and what is left to flush may be nothing.
int finish(int exit_code) {
  const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  return written ? exit_code : fail(kFailedCheck, "cannot write to stdout");
}

int run(int argc, char** argv) {
  Session session{.environment = read_environment()};
  CLI::App app("JIT kernel generator and autotuner for GPU kernels that multiply by quantized weights", "quern");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("quern ") + kVersion + ", generator " + kGeneratorVersion);
  app.footer("Exit codes: 0 done, 1 something failed its check, 2 usage, 3 environment");
  add_tune(app, session);
  add_sweep(app, session);
  add_bench(app, session);
  add_compile(app, session);
  add_cache(app, session);
  add_explain(app, session);
  add_doctor(app, session);
  add_worker(app, session);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help, --version
      app.exit(error);
      return finish(kDone);
    }
    const bool unknown = app.get_subcommands().empty() && argc > 1 && argv[1][0] != '-';
    if (unknown) return fail(kUsage, "unknown sub-command '" + std::string(argv[1]) + "' (see quern --help)");
    return fail(kUsage, std::string(error.what()) + " (see quern --help)");
  } catch (const std::bad_alloc&) {
    return fail(kNoEnvironment, "out of memory: this machine has too little for what was asked");
  } catch (const std::system_error& error) {  // fmt throws where a long output fails in the middle
    return std::ferror(stdout) != 0 ? finish(kFailedCheck) : fail(kNoEnvironment, error.what());
  }
  return finish(session.exit_code);
}

}  // namespace
}  // namespace quern::tools

int main(int argc, char** argv) {
  quern::tools::occupy_standard_streams();
  return quern::tools::run(argc, argv);
}

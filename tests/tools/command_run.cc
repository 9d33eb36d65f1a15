#include "command_run.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace quern::tools {
namespace {

std::string contents_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string program(const char* variable) {
  const char* path = std::getenv(variable);
  return path == nullptr ? std::string("/nonexistent/") + variable : path;
}

}  // namespace

CommandTest::CommandTest() {
  std::string pattern = testing::TempDir() + "quern_command_XXXXXX";
  directory_ = mkdtemp(pattern.data());
  store_ = directory_ + "/store";
}

CommandTest::~CommandTest() { std::filesystem::remove_all(directory_); }

Outcome CommandTest::shell(const std::string& command) {
  const std::string out = directory_ + "/stdout", err = directory_ + "/stderr";
  const int status = std::system(("cd '" + directory_ + "' && " + command + " >'" + out + "' 2>'" + err + "' </dev/null").c_str());
  return {.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), .out = contents_of(out), .err = contents_of(err)};
}

Outcome CommandTest::quern(const std::string& arguments, const std::string& environment) {
  return shell("env QUERN_CACHE_DIR='" + store_ + "' " + environment + " '" + program("QUERN_COMMAND") + "' " + arguments);
}

std::string CommandTest::file(const std::string& name, const std::string& text) const {
  const std::string path = directory_ + "/" + name;
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

std::string CommandTest::model() {
  const std::string path = directory_ + "/model.gguf";
  if (!std::filesystem::exists(path)) EXPECT_EQ(shell("'" + program("QUERN_MAKE_MODEL") + "' '" + path + "'").exit_code, 0);
  return path;
}

std::map<std::string, std::string> CommandTest::store_contents() const {
  std::map<std::string, std::string> files;
  if (!std::filesystem::exists(store_)) return files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(store_))
    if (entry.is_regular_file()) files[entry.path().string()] = contents_of(entry.path().string());
  return files;
}

bool CommandTest::works(const std::string& target) { return quern("doctor --json").out.find("\"" + target + "\"") != std::string::npos; }

}  // namespace quern::tools

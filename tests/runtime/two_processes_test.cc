// Field case 33: what one process compiled, another one loads.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <string>

namespace quern {
namespace {

struct Outcome {
  int exit_code = -1;
  std::string output;
};

Outcome run_probe(const std::string& directory) {
  Outcome outcome;
  FILE* pipe = popen((std::string(QUERN_STORE_PROBE) + " '" + directory + "'").c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 256> buffer{};
  while (fgets(buffer.data(), buffer.size(), pipe) != nullptr) outcome.output += buffer.data();
  outcome.exit_code = WEXITSTATUS(pclose(pipe));
  return outcome;
}

TEST(TwoProcesses, TheSecondCompilesNothing) {
  std::string directory = (std::filesystem::temp_directory_path() / "quern-two-processes-XXXXXX").string();
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  const auto first = run_probe(directory), second = run_probe(directory);
  std::filesystem::remove_all(directory);
  if (first.exit_code == 3) GTEST_SKIP() << first.output;
  EXPECT_EQ(first.exit_code, 0) << first.output;
  EXPECT_EQ(first.output.substr(0, 10), "compiled 1") << first.output;
  EXPECT_EQ(second.exit_code, 0) << second.output;
  EXPECT_EQ(second.output.substr(0, 10), "compiled 0") << second.output;
  EXPECT_EQ(second.output.substr(10), first.output.substr(10));
}

}  // namespace
}  // namespace quern

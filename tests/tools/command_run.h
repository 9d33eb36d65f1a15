// Runs the built command as a user would, in a directory and with a store of its own.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace quern::tools {

struct Outcome {
  int exit_code = -1;  // 128 + signal when it was killed
  std::string out;
  std::string err;
};

class CommandTest : public testing::Test {
 protected:
  CommandTest();
  ~CommandTest() override;

  // `arguments` as typed into a shell; `environment` as NAME=value words before the command, also `-u NAME`.
  Outcome quern(const std::string& arguments, const std::string& environment = "");
  Outcome shell(const std::string& command);
  std::string file(const std::string& name, const std::string& text) const;  // its path
  std::string model();                                                       // path of a small model
  // Every file of the store with its bytes.
  std::map<std::string, std::string> store_contents() const;
  bool works(const std::string& target);  // "host", "compile-only": as the doctor says

  std::string directory_;
  std::string store_;
};

}  // namespace quern::tools

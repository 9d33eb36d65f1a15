// What a test may see and steer in the fake CUDA driver (fake_driver.cc).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "quern/kernel.h"
#include "templates/args.h"

namespace quern::test {

struct FakeDriver {
  struct Function {
    int static_shared = 0;
    int max_dynamic_shared = 0;
  };
  struct Launched {
    Function* function;
    Dim3 grid, block;
    unsigned shared;
    void* stream;
    bool captured;
    bool context_current;
    KernelArgs args;
  };
  std::map<std::string, int> answers;  // symbol -> CUresult
  std::map<std::string, int> calls;
  std::map<int, int> attributes;  // device attribute -> value
  std::map<std::string, Function> functions;
  std::map<std::string, std::string> names;  // entry -> what the driver calls it, where that differs
  std::vector<Launched> launches;
  std::string loaded;  // the last image, up to its first zero
  bool capturing = false;
};

}  // namespace quern::test

// What the command takes from the environment: read once, in main.cc, and passed from there.
#pragma once

#include <string>

#include "quern/context.h"

namespace quern::tools {

struct Environment {
  ContextOptions context;     // device, store, libraries: what the library itself reads
  std::string cublas;         // QUERN_CUBLAS: path of libcublas.so, or empty to search
  bool progress_bar = false;  // stderr is a terminal that can move its cursor
  int columns = 80;           // of stdout's terminal, 80 to 200; where it is none, more than any table has
  int progress_columns = 80;  // of stderr's
  std::string executable;     // path of this program, to start workers from
};

}  // namespace quern::tools

// --arch: CUDA architectures by name.
#pragma once

#include <string>
#include <vector>

#include "quern/result.h"
#include "quern/target.h"
#include "runtime/compiler.h"

namespace quern::tools {

// "sm_90a" or "90a", "sm_80" or "80". Errors: kInvalidArgument naming what was found and what is needed.
Result<Target> parse_architecture(const std::string& text);

// Whether the compiler knows the architecture by name; the library makes PTX for a GPU that is newer than its NVRTC, but on the command
// line such a name is a mistake. Errors: kEnvironment naming what it knows.
Status check_known(const Compiler& compiler, const Target& target);

}  // namespace quern::tools

// --arch: CUDA architectures by name.
#pragma once

#include <string>
#include <vector>

#include "quern/result.h"
#include "quern/target.h"

namespace quern::tools {

// "sm_90a" or "90a", "sm_80" or "80". Errors: kInvalidArgument naming what was found and what is needed.
Result<Target> parse_architecture(const std::string& text);

}  // namespace quern::tools

// --budget: how much a run may spend, as seconds or as a number of candidates.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "quern/result.h"

namespace quern::tools {

struct Budget {
  std::optional<double> seconds;
  std::optional<std::int64_t> candidates;
  bool operator==(const Budget&) const = default;
};

// "90s", "10m", "1.5h": time. "200": candidates. Errors: kInvalidArgument for anything else, zero, negative and not-a-number included.
Result<Budget> parse_budget(const std::string& text);

}  // namespace quern::tools

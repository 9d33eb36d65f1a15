#include "tools/budget.h"

#include <charconv>
#include <cmath>

namespace quern::tools {
namespace {

constexpr double kLongest = 366.0 * 24 * 3600;

Error refused(const std::string& text) {
  return {ErrorCode::kInvalidArgument,
          "--budget '" + text + "': needs a time above zero such as 90s, 10m or 1.5h, or a number of candidates from 1 up",
          {}};
}

}  // namespace

Result<Budget> parse_budget(const std::string& text) {
  const char* end = text.data() + text.size();
  std::int64_t candidates = 0;
  if (auto [at, error] = std::from_chars(text.data(), end, candidates); error == std::errc() && at == end) {
    if (candidates < 1) return refused(text);
    return Budget{.seconds = std::nullopt, .candidates = candidates};
  }
  double amount = 0;
  const auto [at, error] = std::from_chars(text.data(), end, amount);
  if (error != std::errc() || at + 1 != end || !std::isfinite(amount) || amount <= 0) return refused(text);
  const double unit = *at == 's' ? 1 : *at == 'm' ? 60 : *at == 'h' ? 3600 : 0;
  if (unit == 0 || amount * unit > kLongest) return refused(text);
  return Budget{.seconds = amount * unit, .candidates = std::nullopt};
}

}  // namespace quern::tools

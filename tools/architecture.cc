#include "tools/architecture.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace quern::tools {

Result<Target> parse_architecture(const std::string& text) {
  const Error refused{
      ErrorCode::kInvalidArgument, "--arch '" + text + "': needs a CUDA architecture from sm_75 on, such as sm_80 or sm_90a", {}};
  const char* begin = text.data() + (text.starts_with("sm_") ? 3 : 0);
  const char* end = text.data() + text.size();
  Target target{.kind = Target::Kind::cuda};
  const auto [at, error] = std::from_chars(begin, end, target.sm);
  if (error != std::errc() || target.sm < 75 || target.sm > 999) return refused;
  if (at != end && (*at != 'a' || at + 1 != end)) return refused;
  target.exact_arch = at != end;
  return target;
}

Status check_known(const Compiler& compiler, const Target& target) {
  if (const auto supported = compiler.supports(target); !supported) return Error{ErrorCode::kEnvironment, supported.error().message, {}};
  const auto known = compiler.architectures();
  if (std::find(known.begin(), known.end(), target.sm) != known.end()) return {};
  return Error{
      ErrorCode::kEnvironment,
      fmt::format("{} does not know {}: it knows sm_{} to sm_{}", compiler.identity(), to_string(target), known.front(), known.back()),
      {}};
}

}  // namespace quern::tools

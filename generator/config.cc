#include "quern/config.h"

#include <algorithm>
#include <charconv>

namespace quern {

Result<Config> parse_config(std::string_view text) {
  Config config;
  std::size_t colon = text.find(':');
  config.family = std::string(text.substr(0, colon));
  if (config.family.empty())
    return Error{ErrorCode::kInvalidArgument, "config: found '" + std::string(text) + "', needed 'family:name=value,...'", {}};
  if (colon == std::string_view::npos) return config;
  std::string_view rest = text.substr(colon + 1);
  while (true) {
    std::size_t comma = rest.find(',');
    std::string_view piece = rest.substr(0, comma);
    std::size_t equals = piece.find('=');
    std::int64_t value = 0;
    std::string_view digits = equals == std::string_view::npos ? std::string_view{} : piece.substr(equals + 1);
    auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (equals == 0 || digits.empty() || error != std::errc{} || end != digits.data() + digits.size())
      return Error{ErrorCode::kInvalidArgument, "config: found '" + std::string(piece) + "', needed 'name=integer'", {}};
    std::string name(piece.substr(0, equals));
    if (std::any_of(config.values.begin(), config.values.end(), [&](const auto& v) { return v.name == name; }))
      return Error{ErrorCode::kInvalidArgument, "config: found '" + std::string(piece) + "', " + name + " is given already", {}};
    config.values.push_back({std::move(name), value});
    if (comma == std::string_view::npos) return config;
    rest = rest.substr(comma + 1);
  }
}

}  // namespace quern

// Config: one answer to a problem: a kernel family and one value per named parameter.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quern/result.h"

namespace quern {

struct Config {
  struct Value {
    std::string name;
    std::int64_t value = 0;
    auto operator<=>(const Value&) const = default;
  };
  std::string family;
  std::vector<Value> values;  // in the order of the family's search space

  auto operator<=>(const Config&) const = default;

  std::optional<std::int64_t> find(std::string_view name) const {
    for (const auto& v : values)
      if (v.name == name) return v.value;
    return std::nullopt;
  }
};

// "gemv_q8:warps=4,rows=2"; a family without parameters prints as its name alone.
inline std::string to_string(const Config& c) {
  std::string s = c.family;
  char separator = ':';
  for (const auto& v : c.values) {
    s += separator + v.name + "=" + std::to_string(v.value);
    separator = ',';
  }
  return s;
}

// Inverse of to_string. Errors: kInvalidArgument naming the piece that does not parse.
Result<Config> parse_config(std::string_view text);

}  // namespace quern

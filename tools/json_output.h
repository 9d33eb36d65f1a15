// The one object that --json puts on stdout. Its fields are documented in docs/json.md and only ever grow.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

namespace quern::tools {

using Json = nlohmann::ordered_json;

// One line. Not-a-number and infinity become null, bytes that are no UTF-8 become U+FFFD.
void print_json(const Json& object);

// The value, or null.
template <class T>
Json json_or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

}  // namespace quern::tools

// Key: SHA-256 of tagged fields. What goes into a key decides what may be confused with what, so every field is hashed with its name
// and its length, and what was hashed can be printed.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quern::cache {

struct Key {
  std::array<std::uint8_t, 32> bytes{};
  auto operator<=>(const Key&) const = default;
  std::string hex() const;  // 64 lower-case digits
  static std::optional<Key> from_hex(std::string_view text);
};

// Hashes (tag, length, bytes) triples:
//   message := field*        field := length(tag) tag length(value) value        length := 8 bytes, little endian
// Lengths come first, so that no two sequences of fields have the same message; joining values with a separator was rejected because
// rendered source may hold any byte.
class KeyBuilder {
 public:
  KeyBuilder& field(std::string_view tag, std::string_view value);
  Key finish() const;
  const std::string& dump() const { return dump_; }  // "tag: length sha256-prefix" per field, one a line, for `quern cache show`

 private:
  std::string hashed_;
  std::string dump_;
};

}  // namespace quern::cache

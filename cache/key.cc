#include "cache/key.h"

#include "cache/digest.h"

namespace quern::cache {
namespace {

void append_length(std::string& out, std::size_t length) {
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<char>(static_cast<std::uint64_t>(length) >> (8 * i)));
}

Key sha256(std::string_view message) {
  Key key;
  crypto_hash_sha256(key.bytes.data(), reinterpret_cast<const unsigned char*>(message.data()), message.size());
  return key;
}

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string Key::hex() const {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (auto byte : bytes) text.append({kDigits[byte >> 4], kDigits[byte & 15]});
  return text;
}

std::optional<Key> Key::from_hex(std::string_view text) {
  Key key;
  if (text.size() != 2 * key.bytes.size()) return std::nullopt;
  for (std::size_t i = 0; i < key.bytes.size(); ++i) {
    const int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    key.bytes[i] = static_cast<std::uint8_t>(high * 16 + low);
  }
  return key;
}

KeyBuilder& KeyBuilder::field(std::string_view tag, std::string_view value) {
  append_length(hashed_, tag.size());
  hashed_.append(tag);
  append_length(hashed_, value.size());
  hashed_.append(value);
  dump_.append(tag).append(": ").append(std::to_string(value.size())).append(" ").append(sha256(value).hex().substr(0, 16)).append("\n");
  return *this;
}

Key KeyBuilder::finish() const { return sha256(hashed_); }

}  // namespace quern::cache

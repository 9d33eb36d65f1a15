// Digest: the same tagged hash as KeyBuilder, fed piece by piece, so that a row's bytes are not copied to be hashed. Internal to cache/.
#pragma once

#include <sodium/crypto_hash_sha256.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "cache/key.h"

namespace quern::cache {

class Digest {
 public:
  Digest() { crypto_hash_sha256_init(&state_); }  // plain C without set-up: sodium_init() is not needed for it

  Digest& text(std::string_view tag, std::string_view value) {
    prefixed(tag.data(), tag.size());
    prefixed(value.data(), value.size());
    return *this;
  }
  Digest& bytes(std::string_view tag, std::span<const std::byte> value) {
    return text(tag, {reinterpret_cast<const char*>(value.data()), value.size()});
  }
  Digest& integer(std::string_view tag, std::int64_t value) {
    char raw[8];
    for (int i = 0; i < 8; ++i) raw[i] = static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i));
    return text(tag, {raw, sizeof raw});
  }
  // One NaN and one zero: SQLite keeps neither a NaN's payload (it stores NULL) nor the sign of zero.
  Digest& real(std::string_view tag, double value) {
    if (std::isnan(value)) value = std::numeric_limits<double>::quiet_NaN();
    if (value == 0) value = 0;
    return integer(tag, std::bit_cast<std::int64_t>(value));
  }
  Key finish() {
    Key key;
    crypto_hash_sha256_final(&state_, key.bytes.data());
    return key;
  }

 private:
  void prefixed(const char* data, std::size_t size) {
    unsigned char length[8];
    for (int i = 0; i < 8; ++i) length[i] = static_cast<unsigned char>(static_cast<std::uint64_t>(size) >> (8 * i));
    crypto_hash_sha256_update(&state_, length, sizeof length);
    crypto_hash_sha256_update(&state_, reinterpret_cast<const unsigned char*>(data), size);
  }
  crypto_hash_sha256_state state_;
};

}  // namespace quern::cache

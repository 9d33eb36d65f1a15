// Structs that cross the border begin with `uint32_t struct_size`, the size that the caller was compiled with; a field that is 0 is unset.
// The first release's size is the least that is accepted.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "runtime/c/border.h"

namespace quern::c {

inline bool all_zero(const unsigned char* bytes, std::size_t count) {
  return std::all_of(bytes, bytes + count, [](unsigned char byte) { return byte == 0; });
}

// A caller that forgot struct_size hands over 0 or stack garbage: nothing of this interface is ever this long.
inline constexpr std::uint32_t kLongestStruct = 4096;

inline Status check_size(std::uint32_t found, std::size_t first, const char* name) {
  if (found >= first && found <= kLongestStruct) return {};
  const std::string needed = found < first ? "at least " + std::to_string(first) : "at most " + std::to_string(kLongestStruct);
  return invalid(std::string(name) + "'s struct_size is " + std::to_string(found) + ", needed " + needed +
                 ": set it with the init function");
}

// Copies what the caller's struct has; the rest is 0. Refuses a tail that this version does not know but the caller uses.
template <class T>
Status read_struct(const T* in, std::size_t first_size, const char* name, T* out) {
  static_assert(std::is_trivially_copyable_v<T>);
  QUERN_TRY(need(in, name));
  std::uint32_t size = 0;
  std::memcpy(&size, in, sizeof size);
  QUERN_TRY(check_size(size, first_size, name));
  *out = {};
  std::memcpy(out, in, std::min<std::size_t>(size, sizeof(T)));
  const auto* bytes = reinterpret_cast<const unsigned char*>(in);
  if (size <= sizeof(T) || all_zero(bytes + sizeof(T), size - sizeof(T))) return {};
  return Error{ErrorCode::kUnsupported,
               std::string(name) + " uses fields of a newer version: struct_size is " + std::to_string(size) + ", this library knows " +
                   std::to_string(sizeof(T)) + " bytes",
               {}};
}

// Fills as much as the caller's struct holds; what it has beyond this version becomes 0. struct_size stays the caller's.
template <class T>
Status write_struct(const T& value, std::size_t first_size, const char* name, T* out) {
  static_assert(std::is_trivially_copyable_v<T>);
  QUERN_TRY(need(out, name));
  std::uint32_t size = 0;
  std::memcpy(&size, out, sizeof size);
  QUERN_TRY(check_size(size, first_size, name));
  auto* bytes = reinterpret_cast<unsigned char*>(out);
  const std::size_t known = std::min<std::size_t>(size, sizeof(T));
  std::memcpy(bytes + sizeof size, reinterpret_cast<const unsigned char*>(&value) + sizeof size, known - sizeof size);
  std::memset(bytes + known, 0, size - known);
  return {};
}

// Whether everything of `value` that a struct of `size` bytes lacks is unset.
template <class T>
bool fits(const T& value, std::uint32_t size) {
  return size >= sizeof(T) || all_zero(reinterpret_cast<const unsigned char*>(&value) + size, sizeof(T) - size);
}

}  // namespace quern::c

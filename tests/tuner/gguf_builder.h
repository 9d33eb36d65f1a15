// Builds GGUF files in memory, valid or with a fault, for the tests of everything that reads them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace quern::testing {

class Bytes {
 public:
  template <class T>
  Bytes& value(T v) {
    return raw({reinterpret_cast<const char*>(&v), sizeof(v)});
  }
  Bytes& u32(std::uint32_t v) { return value(v); }
  Bytes& u64(std::uint64_t v) { return value(v); }
  Bytes& string(std::string_view s) { return u64(s.size()).raw(s); }
  Bytes& raw(std::string_view s) {
    text_ += s;
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Value types of metadata.
enum GgufValue : std::uint32_t { kU8 = 0, kU16 = 2, kU32 = 4, kString = 8, kArray = 9, kU64 = 10 };

class GgufBuilder {
 public:
  std::uint32_t version = 3;
  std::uint64_t tensor_count = 0, entry_count = 0;  // may be overwritten to lie
  std::uint32_t alignment = 32;                     // of the padding written here; the metadata entry is the caller's

  GgufBuilder& entry(std::string_view key, std::uint32_t type, std::string_view value) {
    entries_ += Bytes().string(key).u32(type).raw(value).text();
    ++entry_count;
    return *this;
  }
  GgufBuilder& text(std::string_view key, std::string_view value) { return entry(key, kString, Bytes().string(value).text()); }
  GgufBuilder& tensor(std::string_view name, const std::vector<std::uint64_t>& ne, std::uint32_t type, std::uint64_t offset) {
    Bytes info;
    info.string(name).u32(static_cast<std::uint32_t>(ne.size()));
    for (const auto dim : ne) info.u64(dim);
    tensors_ += info.u32(type).u64(offset).text();
    ++tensor_count;
    return *this;
  }
  GgufBuilder& data(std::size_t bytes, char fill = 1) {
    data_.append(bytes, fill);
    return *this;
  }
  // Everything before the data section, padded.
  std::string head() const {
    std::string file = Bytes().raw("GGUF").u32(version).u64(tensor_count).u64(entry_count).text() + entries_ + tensors_;
    file.append((alignment - file.size() % alignment) % alignment, '\0');
    return file;
  }
  std::string file() const { return head() + data_; }

 private:
  std::string entries_, tensors_, data_;
};

}  // namespace quern::testing

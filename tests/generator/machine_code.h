// Instructions of a cubin of Hopper's, as far as tests ask about them: an ELF file with a section .text.ENTRY per kernel, 16 bytes an
// instruction, its operation in the low 12 bits. The numbers are those that nvdisasm -hex shows beside the names (CUDA 13.0).
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>

namespace quern::test {

// The section of that name, or nothing.
inline std::optional<std::span<const std::byte>> elf_section(std::span<const std::byte> file, const std::string& name) {
  const auto read = [&]<class T>(std::size_t at, T value) {
    if (at + sizeof(T) <= file.size()) std::memcpy(&value, file.data() + at, sizeof(T));
    return value;
  };
  const std::size_t headers = read(0x28, std::uint64_t{}), size = read(0x3A, std::uint16_t{}), count = read(0x3C, std::uint16_t{});
  const std::size_t names = read(headers + size * read(0x3E, std::uint16_t{}) + 0x18, std::uint64_t{});
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t header = headers + i * size, at = names + read(header, std::uint32_t{});
    const std::size_t offset = read(header + 0x18, std::uint64_t{}), bytes = read(header + 0x20, std::uint64_t{});
    if (at + name.size() >= file.size() || offset + bytes > file.size()) continue;
    if (std::memcmp(file.data() + at, name.c_str(), name.size() + 1) == 0) return file.subspan(offset, bytes);
  }
  return std::nullopt;
}

// What `entry` does to global memory ahead of its wait for the launch before it; empty where that is nothing. With `may_read`, loads are
// nothing.
inline std::string before_wait(std::span<const std::byte> cubin, const std::string& entry, bool may_read) {
  struct Operation {
    unsigned code;
    const char* name;
    bool reads;
  };
  constexpr unsigned kWait = 0x82e;  // ACQBULK
  constexpr Operation kMemory[] = {{0x981, "LDG", true},        {0x980, "LD", true},    {0xfae, "LDGSTS", true},
                                   {0x986, "STG", false},       {0x985, "ST", false},   {0x9a8, "ATOMG", false},
                                   {0x3a9, "ATOMG.CAS", false}, {0x98a, "ATOM", false}, {0x98e, "REDG", false}};
  const auto code = elf_section(cubin, ".text." + entry);
  if (!code) return "has no code";
  for (std::size_t at = 0; at + 16 <= code->size(); at += 16) {
    std::uint64_t word = 0;
    std::memcpy(&word, code->data() + at, sizeof(word));
    const unsigned operation = word & 0xfff;
    if (operation == kWait) return {};
    for (const auto& m : kMemory)
      if (operation == m.code && !(m.reads && may_read)) return std::string(m.name) + " at " + std::to_string(at) + " is ahead of the wait";
  }
  return "never waits";
}

}  // namespace quern::test

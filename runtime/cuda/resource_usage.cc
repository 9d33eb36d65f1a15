#include "runtime/cuda/resource_usage.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <string>

namespace quern::cuda {
namespace {

// The number that stands directly before `unit`, as in "12 bytes spill stores"; -1 when the line lacks the unit.
int number_before(std::string_view line, std::string_view unit) {
  const auto at = line.find(unit);
  if (at == std::string_view::npos || at == 0) return -1;
  auto end = at;
  while (end > 0 && line[end - 1] == ' ') --end;
  auto begin = end;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
  int value = -1;
  std::from_chars(line.data() + begin, line.data() + end, value);
  return value;
}

struct Section {
  std::string_view name;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
};

// Bounds-checked little-endian reads from a file image.
class Image {
 public:
  explicit Image(std::span<const std::byte> bytes) : bytes_(bytes) {}

  bool holds(std::uint64_t offset, std::uint64_t size) const { return offset <= bytes_.size() && size <= bytes_.size() - offset; }

  template <class T>
  T read(std::uint64_t offset) const {
    T value{};
    if (holds(offset, sizeof(T))) std::memcpy(&value, bytes_.data() + offset, sizeof(T));
    return value;
  }

  std::string_view text(std::uint64_t offset) const {
    if (!holds(offset, 1)) return {};
    const char* begin = reinterpret_cast<const char*>(bytes_.data() + offset);
    return {begin, strnlen(begin, bytes_.size() - offset)};
  }

 private:
  std::span<const std::byte> bytes_;
};

// ELF64: header fields at 0x28 (section table offset), 0x3a (entry size), 0x3c (count), 0x3e (index of the name table); a section header
// has its name at +0, type at +4, file offset at +0x18 and size at +0x20.
constexpr std::uint32_t kNoBits = 8;

// From sm_90 on the system keeps the first 1 KiB of each block's shared memory; the section sizes count it, the assembler's log does not.
constexpr int kReservedSharedBytes = 1024;

Section section_at(const Image& image, std::uint64_t header, std::uint64_t names) {
  return {image.text(names + image.read<std::uint32_t>(header)), image.read<std::uint64_t>(header + 0x18),
          image.read<std::uint64_t>(header + 0x20)};
}

void read_info(const Image& image, const Section& section, ResourceUsage& usage, bool& found) {
  constexpr std::uint8_t kSizedValue = 4, kFrameSize = 0x11, kRegisterCount = 0x2f;
  if (!image.holds(section.offset, section.size)) return;
  const std::uint64_t end = section.offset + section.size;
  for (std::uint64_t at = section.offset; at + 4 <= end;) {
    const auto format = image.read<std::uint8_t>(at);
    const auto attribute = image.read<std::uint8_t>(at + 1);
    const auto size = image.read<std::uint16_t>(at + 2);
    const int value = static_cast<int>(image.read<std::uint32_t>(at + 8));
    if (format == kSizedValue && size == 8 && at + 12 <= end) {
      if (attribute == kRegisterCount) usage.registers = std::max(usage.registers, value), found = true;
      if (attribute == kFrameSize) usage.local_bytes = std::max(usage.local_bytes, value);
    }
    at += 4 + (format == kSizedValue ? size : 0);
  }
}

}  // namespace

std::optional<ResourceUsage> usage_from_log(std::string_view log) {
  ResourceUsage usage;
  bool found = false;
  while (!log.empty()) {
    const auto end = std::min(log.find('\n'), log.size());
    const std::string_view line = log.substr(0, end);
    log.remove_prefix(std::min(end + 1, log.size()));
    if (const int n = number_before(line, "bytes stack frame"); n >= 0) usage.local_bytes = std::max(usage.local_bytes, n);
    const int stores = number_before(line, "bytes spill stores"), loads = number_before(line, "bytes spill loads");
    if (stores >= 0 && loads >= 0) usage.spill_bytes = std::max(usage.spill_bytes, stores + loads);
    if (const int n = number_before(line, "registers"); n >= 0) {
      usage.registers = std::max(usage.registers, n);
      found = true;
      if (const int shared = number_before(line, "bytes smem"); shared >= 0)
        usage.static_shared_bytes = std::max(usage.static_shared_bytes, shared);
    }
  }
  if (!found) return std::nullopt;
  return usage;
}

std::optional<ResourceUsage> usage_from_cubin(std::span<const std::byte> cubin) {
  constexpr std::string_view kMagic(
      "\x7f"
      "ELF\x02",
      5);
  const Image image(cubin);
  if (!image.holds(0, 64) || image.text(0).substr(0, 5) != kMagic) return std::nullopt;
  const auto table = image.read<std::uint64_t>(0x28);
  const auto entry_bytes = image.read<std::uint16_t>(0x3a);
  const auto count = image.read<std::uint16_t>(0x3c);
  if (!image.holds(table, std::uint64_t{entry_bytes} * count)) return std::nullopt;
  const auto names = image.read<std::uint64_t>(table + std::uint64_t{entry_bytes} * image.read<std::uint16_t>(0x3e) + 0x18);

  ResourceUsage usage;
  bool found = false, reserves = false;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t header = table + i * entry_bytes;
    const Section section = section_at(image, header, names);
    if (section.name == ".nv.info") read_info(image, section, usage, found);
    if (section.name.starts_with(".nv.shared.") && !section.name.starts_with(".nv.shared.reserved.") &&
        image.read<std::uint32_t>(header + 4) == kNoBits)
      usage.static_shared_bytes = std::max(usage.static_shared_bytes, static_cast<int>(section.size));
    reserves = reserves || section.name.starts_with(".nv.shared.reserved.");
  }
  if (!found) return std::nullopt;
  if (reserves) usage.static_shared_bytes = std::max(0, usage.static_shared_bytes - kReservedSharedBytes);
  return usage;
}

}  // namespace quern::cuda

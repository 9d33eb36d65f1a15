// Weight types (GGUF block formats) and element types, as plain facts.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace quern {

// Values are the GGUF type ids. i8 and code4 are no weight formats but bare codes, whose scales are operands of their own: the integer ops
// take them and no others, and no decoder knows them. i8 is GGUF's id, code4 (indices into a codebook of 16, two per byte, the first in the
// low nibble) has none there, and lies behind all of them.
enum class WeightType : std::uint32_t {
#define QUERN_WEIGHT_TYPE(name, id, elements, bytes, ...) name = id,
#include "quern/weight_types.def"
#undef QUERN_WEIGHT_TYPE
  i8 = 24,
  code4 = 256,
};

struct WeightTypeInfo {
  WeightType type;
  std::string_view name;
  int block_elements;  // weights per block; K is a multiple of it
  int block_bytes;

  bool operator==(const WeightTypeInfo&) const = default;
};

inline constexpr auto kWeightTypes = std::to_array<WeightTypeInfo>({
#define QUERN_WEIGHT_TYPE(name, id, elements, bytes, ...) {WeightType::name, #name, elements, bytes},
#include "quern/weight_types.def"
#undef QUERN_WEIGHT_TYPE
});

// Types of bare integer codes.
inline constexpr auto kCodeTypes = std::to_array<WeightTypeInfo>({{WeightType::i8, "i8", 1, 1}, {WeightType::code4, "code4", 2, 1}});

constexpr const WeightTypeInfo& info(WeightType type) {
  for (const auto& entry : kCodeTypes)
    if (entry.type == type) return entry;
  for (const auto& entry : kWeightTypes)
    if (entry.type == type) return entry;
  return kWeightTypes[0];  // unreachable for a valid enumerator
}

// A weight format of GGUF files.
constexpr std::optional<WeightType> weight_type_from_id(std::uint32_t id) {
  for (const auto& entry : kWeightTypes)
    if (static_cast<std::uint32_t>(entry.type) == id) return entry.type;
  return std::nullopt;
}

constexpr std::optional<WeightType> weight_type_from_name(std::string_view name) {
  for (const auto& entry : kWeightTypes)
    if (entry.name == name) return entry.type;
  for (const auto& entry : kCodeTypes)
    if (entry.name == name) return entry.type;
  return std::nullopt;
}

constexpr std::string_view to_string(WeightType type) { return info(type).name; }

// Bytes of one row of K weights. K must be a multiple of block_elements.
constexpr std::int64_t row_bytes(WeightType type, std::int64_t k) { return k / info(type).block_elements * info(type).block_bytes; }

// Types of activations, outputs and bias.
enum class DType : std::uint8_t { f32, f16, bf16 };

constexpr std::string_view to_string(DType type) {
  switch (type) {
    case DType::f32:
      return "f32";
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
  }
  return "?";
}
constexpr int size_of(DType type) { return type == DType::f32 ? 4 : 2; }
constexpr std::optional<DType> dtype_from_name(std::string_view name) {
  for (auto t : {DType::f32, DType::f16, DType::bf16})
    if (to_string(t) == name) return t;
  return std::nullopt;
}

}  // namespace quern

#include "tuner/planar.h"

#include <algorithm>

#include "templates/geometry/planar.h"

namespace quern {
namespace {

// Calls visit(gguf byte index, planar byte index) once for every byte of the matrix.
template <class Visit>
void for_each_byte(WeightType type, std::int64_t n, std::int64_t k, Visit visit) {
  const planar::Fields fields = planar::fields(static_cast<unsigned>(type));
  const std::int64_t blocks = k / info(type).block_elements;
  const std::int64_t block_bytes = info(type).block_bytes;
  std::int64_t destination = 0;  // planar bytes are produced in order
  for (std::int64_t first = 0; first < n; first += planar::kTileRows) {
    const std::int64_t rows = std::min<std::int64_t>(planar::kTileRows, n - first);
    for (int f = 0; f < fields.count; ++f)
      for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t block = 0; block < blocks; ++block)
          for (int byte = 0; byte < fields.field[f].bytes; ++byte)
            visit(((first + row) * blocks + block) * block_bytes + fields.field[f].gguf_offset + byte, destination++);
  }
}

}  // namespace

std::vector<std::byte> gguf_to_planar(WeightType type, std::int64_t n, std::int64_t k, std::span<const std::byte> rows) {
  std::vector<std::byte> out(rows.size());
  for_each_byte(type, n, k, [&](std::int64_t gguf, std::int64_t planar_byte) {
    out[static_cast<std::size_t>(planar_byte)] = rows[static_cast<std::size_t>(gguf)];
  });
  return out;
}

std::vector<std::byte> planar_to_gguf(WeightType type, std::int64_t n, std::int64_t k, std::span<const std::byte> planar) {
  std::vector<std::byte> out(planar.size());
  for_each_byte(type, n, k, [&](std::int64_t gguf, std::int64_t planar_byte) {
    out[static_cast<std::size_t>(gguf)] = planar[static_cast<std::size_t>(planar_byte)];
  });
  return out;
}

}  // namespace quern

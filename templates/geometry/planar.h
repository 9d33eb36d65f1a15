// The planar weight layout, shared by host code and kernels.
//
//   matrix := tile*                    a tile holds R = min(16, N - 16*t) consecutive rows and starts at byte 16*t*row_bytes
//   tile   := plane(field 0) plane(field 1) ...      fields in the order below, widest first
//   plane  := R * blocks_per_row fields, row-major   (row in tile, block in row)
//
// A tile has exactly the bytes of its rows in the gguf layout, so one buffer serves both and repacking is local to a tile. Sixteen rows
// make every full tile a multiple of 16 bytes for every K, and "widest first" aligns each plane to its field's natural width even in a
// short tile.
#pragma once

namespace quern::planar {

inline constexpr int kTileRows = 16;
inline constexpr int kMaxFields = 8;

// One field of a block: where it sits in the gguf block, and how wide it is.
struct Field {
  int gguf_offset = 0;
  int bytes = 0;
};

struct Fields {
  int count = 0;
  int block_bytes = 0;
  Field field[kMaxFields] = {};

  // Bytes of the fields before `index`: the plane starts at this many bytes times the tile's block count.
  constexpr int before(int index) const {
    int sum = 0;
    for (int i = 0; i < index; ++i) sum += field[i].bytes;
    return sum;
  }
};

// Builds the table from (gguf_offset, bytes) pairs in plane order.
template <class... F>
constexpr Fields make(F... f) {
  Fields r;
  ((r.field[r.count++] = f), ...);
  for (int i = 0; i < r.count; ++i) r.block_bytes += r.field[i].bytes;
  return r;
}

// Field tables, from the registry's lines: quern::planar::q4_0_fields, ... A dense type is one field: planar equals gguf.
#define QUERN_WEIGHT_TYPE(name, id, elements, bytes, ...) inline constexpr Fields name##_fields = make(__VA_ARGS__);
#include "quern/weight_types.def"
#undef QUERN_WEIGHT_TYPE

#define QUERN_WEIGHT_TYPE(name, id, elements, bytes, ...) \
  static_assert(name##_fields.block_bytes == (bytes), "the fields of " #name " must cover its block");
#include "quern/weight_types.def"
#undef QUERN_WEIGHT_TYPE

// The table of a GGUF type id; count is 0 for an unknown one.
constexpr Fields fields(unsigned type_id) {
#define QUERN_WEIGHT_TYPE(name, id, elements, bytes, ...) \
  if (type_id == (id)) return name##_fields;
#include "quern/weight_types.def"
#undef QUERN_WEIGHT_TYPE
  return {};
}

}  // namespace quern::planar

// The planar weight layout, shared by host code and kernels.
//
//   matrix := tile*                    a tile holds R = min(16, N - 16*t) consecutive rows and starts at byte 16*t*row_bytes
//   tile   := plane(field 0) plane(field 1) ...      fields in the order below, widest first
//   plane  := R * blocks_per_row fields, row-major   (row in tile, block in row)
//
// A tile has exactly the bytes of its rows in the gguf layout, so one buffer serves both and repacking is local to a tile. Sixteen rows make
// every full tile a multiple of 16 bytes for every K, and "widest first" aligns each plane to its field's natural width even in a short tile.
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

// Field tables by GGUF type name. A dense type is one field: planar equals gguf.
inline constexpr Fields f32_fields = make(Field{0, 4});
inline constexpr Fields f16_fields = make(Field{0, 2});
inline constexpr Fields bf16_fields = make(Field{0, 2});
inline constexpr Fields q4_0_fields = make(Field{2, 16}, Field{0, 2});
inline constexpr Fields q5_0_fields = make(Field{6, 16}, Field{2, 4}, Field{0, 2});
inline constexpr Fields q8_0_fields = make(Field{2, 32}, Field{0, 2});
inline constexpr Fields q4_k_fields = make(Field{16, 128}, Field{4, 12}, Field{0, 4});
inline constexpr Fields q6_k_fields = make(Field{0, 128}, Field{128, 64}, Field{192, 16}, Field{208, 2});

}  // namespace quern::planar

// Weights from one layout to the other, bit for bit, in place too: a block takes a whole tile of 16 rows into scratch, then writes it back
// in the other order. Tiles are disjoint and have the same place in both layouts, so scratch is one tile per resident block.
#pragma once

#include "args.h"
#include "geometry/limits.h"
#include "geometry/planar.h"
#include "ptx/ptx.cuh"

namespace quern {

// Bytes are moved in units of two where every field is even, else singly.
template <class D>
constexpr int repack_unit() {
  for (int f = 0; f < D::kFields.count; ++f)
    if (D::kFields.field[f].bytes % 2 != 0) return 1;
  return 2;
}

template <int kBytes>
struct UnitOf {
  using type = u8;
};
template <>
struct UnitOf<2> {
  using type = u16;
};

// Byte offset within the tile, in the gguf layout, of the byte at `offset` in the planar layout.
template <class D>
QUERN_FN i64 gguf_offset_of(i64 offset, i64 tile_blocks) {
  i64 result = 0;
  QUERN_UNROLL
  for (int f = 0; f < D::kFields.count; ++f) {
    i64 start = tile_blocks * D::kFields.before(f);
    i64 inside = offset - start;
    if (inside >= 0 && inside < tile_blocks * D::kFields.field[f].bytes)
      result = inside / D::kFields.field[f].bytes * D::kFields.block_bytes + D::kFields.field[f].gguf_offset +
               inside % D::kFields.field[f].bytes;
  }
  return result;
}

// kToPlanar: gguf to planar, else planar to gguf. kShared: the tile fits shared memory, else each block has its slot of the workspace.
template <class D, bool kToPlanar, bool kShared, int kThreads>
QUERN_FN void repack(const KernelArgs& args, i64 blocks) {
  using Unit = typename UnitOf<repack_unit<D>()>::type;
  i64 blocks_per_row = args.k / D::kBlock, row = blocks_per_row * D::kFields.block_bytes;
  i64 tile_stride = round_up(planar::kTileRows * row, 16);
  u8* scratch = kShared ? ptx::shared_memory() : static_cast<u8*>(args.workspace) + ptx::block_x() * tile_stride;
  for (i64 tile = ptx::block_x(); tile < ceil_div(args.n, planar::kTileRows); tile += blocks) {
    i64 first = tile * planar::kTileRows;
    i64 rows = args.n - first < planar::kTileRows ? args.n - first : planar::kTileRows;
    i64 tile_blocks = rows * blocks_per_row;
    const u8* from = static_cast<const u8*>(args.w) + first * row;
    u8* to = static_cast<u8*>(args.y) + first * row;
    i64 units = rows * row / static_cast<i64>(sizeof(Unit));
    for (i64 i = ptx::thread_x(); i < units; i += kThreads) reinterpret_cast<Unit*>(scratch)[i] = reinterpret_cast<const Unit*>(from)[i];
    ptx::barrier();
    for (i64 i = ptx::thread_x(); i < units; i += kThreads) {
      i64 planar_at = i * static_cast<i64>(sizeof(Unit)), gguf_at = gguf_offset_of<D>(planar_at, tile_blocks);
      *reinterpret_cast<Unit*>(to + (kToPlanar ? planar_at : gguf_at)) =
          *reinterpret_cast<const Unit*>(scratch + (kToPlanar ? gguf_at : planar_at));
    }
    ptx::barrier();
  }
}

}  // namespace quern

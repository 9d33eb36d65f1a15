// Where a block's fields are: one row of W in either layout, addressed by field, so that a decoder is written once for both.
#pragma once

#include "args.h"
#include "geometry/planar.h"
#include "ptx/ptx.cuh"

namespace quern {

struct GgufLayout {};
struct PlanarLayout {};

constexpr int power_of_two_in(int x) {
  int p = 1;
  while (p < 16 && x % (2 * p) == 0) p *= 2;
  return p;
}

// Row n of W. D::kFields describes the block.
template <class D, class Layout>
struct RowView;

template <class D>
struct RowView<D, GgufLayout> {
  const u8* row;

  static QUERN_FN RowView of(const KernelArgs& args, i64 n) { return {static_cast<const u8*>(args.w) + n * args.w_row_bytes}; }
  static QUERN_FN RowView of(const KernelArgs& args, i64 n, u32) { return of(args, n); }
  // The row `rows` below, a multiple of a planar tile's rows.
  QUERN_FN RowView below(const KernelArgs& args, int rows) const { return {row + rows * args.w_row_bytes}; }

  // What every address of field f is a multiple of, given W aligned to its block's natural alignment.
  template <int f>
  static constexpr int alignment() {
    constexpr int block = power_of_two_in(D::kFields.block_bytes);
    constexpr int offset = D::kFields.field[f].gguf_offset == 0 ? 16 : power_of_two_in(D::kFields.field[f].gguf_offset);
    return block < offset ? block : offset;
  }
  // Brings the row into L2, shared out among `lanes` lanes of which this is number `lane`.
  QUERN_FN void prefetch(int blocks, int lane, int lanes) const {
    for (int at = lane * 128; at < blocks * D::kFields.block_bytes; at += lanes * 128) ptx::prefetch_l2(row + at);
  }
  template <int f>
  QUERN_FN const u8* field(int block) const {
    return row + static_cast<i64>(block) * D::kFields.block_bytes + D::kFields.field[f].gguf_offset;
  }
};

template <class D>
struct RowView<D, PlanarLayout> {
  // A tile is below 4 GiB (validate() bounds K), so that offsets inside it are 32-bit.
  const u8* tile;
  u32 tile_blocks;  // blocks in the tile: the length of each plane
  u32 first;        // the row's first block within a plane

  static QUERN_FN RowView of(const KernelArgs& args, i64 n) { return of(args, n, static_cast<u32>(args.k) / D::kBlock); }
  static QUERN_FN RowView of(const KernelArgs& args, i64 n, u32 blocks_per_row) {
    u32 row_in_tile = static_cast<u32>(n) % planar::kTileRows;
    i64 first_row = n - row_in_tile;
    u32 rows = args.n - first_row < planar::kTileRows ? static_cast<u32>(args.n - first_row) : planar::kTileRows;
    return {static_cast<const u8*>(args.w) + first_row * blocks_per_row * D::kFields.block_bytes, rows * blocks_per_row,
            row_in_tile * blocks_per_row};
  }

  // The row `rows` below, a multiple of a tile's rows; both in full tiles.
  QUERN_FN RowView below(const KernelArgs& args, int rows) const { return {tile + rows * args.w_row_bytes, tile_blocks, first}; }

  template <int f>
  static constexpr int alignment() {
    return power_of_two_in(D::kFields.field[f].bytes);
  }
  QUERN_FN void prefetch(int blocks, int lane, int lanes) const {
    QUERN_UNROLL
    for (int f = 0; f < D::kFields.count; ++f) {
      const u8* plane = tile + (tile_blocks * D::kFields.before(f) + first * D::kFields.field[f].bytes);
      for (int at = lane * 128; at < blocks * D::kFields.field[f].bytes; at += lanes * 128) ptx::prefetch_l2(plane + at);
    }
  }
  template <int f>
  QUERN_FN const u8* field(int block) const {
    return tile + (tile_blocks * D::kFields.before(f) + (first + static_cast<u32>(block)) * D::kFields.field[f].bytes);
  }
};

// Loads kWords 32-bit words from an address that is a multiple of kAlign, with the widest legal loads and not one byte outside.
template <int kAlign, int kWords>
QUERN_FN void load_words(u32 (&out)[kWords], const u8* p) {
  if constexpr (kAlign >= 16 && kWords % 4 == 0) {
    QUERN_UNROLL
    for (int i = 0; i < kWords / 4; ++i) {
      u32x4 v = ptx::load_stream(reinterpret_cast<const u32x4*>(p) + i);
      out[4 * i] = v.x, out[4 * i + 1] = v.y, out[4 * i + 2] = v.z, out[4 * i + 3] = v.w;
    }
  } else if constexpr (kAlign >= 8 && kWords % 2 == 0) {
    QUERN_UNROLL
    for (int i = 0; i < kWords / 2; ++i) {
      u32x2 v = ptx::load_stream(reinterpret_cast<const u32x2*>(p) + i);
      out[2 * i] = v.x, out[2 * i + 1] = v.y;
    }
  } else if constexpr (kAlign >= 4) {
    QUERN_UNROLL
    for (int i = 0; i < kWords; ++i) out[i] = ptx::load_stream(reinterpret_cast<const u32*>(p) + i);
  } else if constexpr (kAlign == 2) {
    // The address is 0 or 2 modulo 4. kWords-1 aligned words and two halves cover the range either way; a byte permute puts them in place:
    // kWords+1 loads in place of 2*kWords.
    u32 odd = static_cast<u32>(reinterpret_cast<u64>(p)) & 2u;
    u32 aligned[kWords];
    QUERN_UNROLL
    for (int i = 0; i < kWords - 1; ++i) aligned[i] = ptx::load_stream(reinterpret_cast<const u32*>(p + odd) + i);
    u32 end0 = ptx::load_stream(reinterpret_cast<const u16*>(p + (odd ? 0 : 4 * kWords - 4)));  // the first half, or the last but one
    u32 end1 = ptx::load_stream(reinterpret_cast<const u16*>(p + 4 * kWords - 2));              // the last half
    aligned[kWords - 1] = odd ? end1 : ptx::prmt(end0, end1, 0x5410u);
    u32 selector = odd ? 0x5432u : 0x7654u;
    u32 previous = end0 << 16;
    QUERN_UNROLL
    for (int i = 0; i < kWords; ++i) {
      out[i] = ptx::prmt(previous, aligned[i], selector);
      previous = aligned[i];
    }
  } else {
    // kWords-1 aligned words, from the first place that is one, and four bytes around them: `front` bytes before, the others behind. 3 +
    // kWords loads in place of 4*kWords.
    u32 front = (0u - static_cast<u32>(reinterpret_cast<u64>(p))) & 3u;
    u32 ends = 0;
    QUERN_UNROLL
    for (u32 i = 0; i < 4; ++i) ends |= static_cast<u32>(ptx::load_stream(p + (i < front ? i : 4 * kWords - 4 + i))) << (8 * i);
    u32 selector = 0x7654u - 0x1111u * front;
    u32 previous = ends << ((32u - 8u * front) & 31u);
    QUERN_UNROLL
    for (int i = 0; i < kWords - 1; ++i) {
      u32 word = ptx::load_stream(reinterpret_cast<const u32*>(p + front) + i);
      out[i] = ptx::prmt(previous, word, selector);
      previous = word;
    }
    out[kWords - 1] = ptx::prmt(previous, ends >> (8 * front), selector);
  }
}

QUERN_FN f32 f16_bits_to_f32(u32 bits) { return ptx::to_f32(f16{static_cast<u16>(bits)}); }

// Small integers to f32 without the integer converter, which runs at a quarter of the rate of everything else: the integer goes into the
// low mantissa bits of 2^23 (or 1.5 * 2^23 for signed ones) and the constant comes off, exactly. On an H200, Q4_K at M=1 was bound by it.
QUERN_FN f32 byte_to_f32(u32 word, int index) {
  return ptx::sub(ptx::float_from_bits(ptx::prmt(word, 0x4b000000u, 0x7440u | static_cast<u32>(index))), 8388608.0f);
}
QUERN_FN f32 signed_byte_to_f32(u32 word, int index) {
  u32 biased = word ^ 0x80808080u;
  return ptx::sub(ptx::float_from_bits(ptx::prmt(biased, 0x4b000000u, 0x7440u | static_cast<u32>(index))), 8388608.0f + 128.0f);
}
// A sum that started at kIntegerZero, |sum| < 2^22.
inline constexpr i32 kIntegerZero = 0x4b400000;
QUERN_FN f32 sum_to_f32(i32 sum) { return ptx::sub(ptx::float_from_bits(static_cast<u32>(sum)), 12582912.0f); }

}  // namespace quern

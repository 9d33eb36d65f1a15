// Bit fields to packed bytes, four at a time.
#pragma once

#include "ptx/ptx.cuh"

namespace quern::decode {

// The low four bits to bit 0 of four bytes: the multiply places bit i at 8*i, one copy every 7 bits.
QUERN_FN u32 spread_bits(u32 bits) { return (bits & 15u) * 0x00204081u & 0x01010101u; }

// The low four pairs of bits to bits 0-1 of four bytes.
QUERN_FN u32 spread_pairs(u32 pairs) {
  u32 x = (pairs & 0x0fu) | (pairs << 12 & 0x000f0000u);
  return (x | x << 6) & 0x03030303u;
}

// Sixteen bytes, looked up by nibbles.
struct NibbleTable {
  u32 word[4];
};
// Bytes for q's eight nibbles in order, the low one of a byte first. A permute takes its indices from the nibbles of 16 bits; both halves
// of a table are asked, and bit 3 chooses: 11 instructions for eight bytes. With kMultiply the upper halves come by multiplications, on a
// pipe that permutes and shifts leave idle: 9 instructions on theirs.
template <bool kMultiply = false>
QUERN_FN void look_up_all(u32 (&bytes)[2], const NibbleTable& table, u32 q) {
  u32 index = q & 0x77777777u, choice = ptx::and_or(q >> 1, 0x44444444u, 0x32103210u);
  bytes[0] = ptx::prmt(ptx::prmt(table.word[0], table.word[1], index), ptx::prmt(table.word[2], table.word[3], index), choice);
  index = kMultiply ? ptx::mul_high(index, 0x10000u) : index >> 16;
  choice = kMultiply ? ptx::mul_high(choice, 0x10000u) : choice >> 16;
  bytes[1] = ptx::prmt(ptx::prmt(table.word[0], table.word[1], index), ptx::prmt(table.word[2], table.word[3], index), choice);
}

// The same bytes as two planes of magnitudes, where entries 0-7 have one sign and entries 8-15 have one, as in a sorted table: a permute
// gives eight copies of a byte's sign bit for indices with bit 3 set, which are zeros of a magnitude. What is looked up in the other half
// is zero of itself, and nothing chooses: 7 instructions for eight bytes instead of 11, for twice as many products.
struct HalvesTable {
  u32 word[4];  // magnitudes, 0..127
  i32 sign[2];  // +1 or -1: what the products of each plane's magnitudes count
};
// False, and nothing of use in `halves`, where a half has both signs or a -128.
QUERN_FN bool split_halves(HalvesTable& halves, const NibbleTable& table) {
  constexpr u32 kSigns = 0x80808080u;
  bool fits = true;
  QUERN_UNROLL
  for (int h = 0; h < 2; ++h) {
    u32 a = table.word[2 * h], b = table.word[2 * h + 1];
    bool negative = ((a | b) & kSigns) != 0;
    // Bytes -127..0, negated: no byte borrows from the next.
    u32 minus_a = (kSigns - (a & ~kSigns)) & ~kSigns, minus_b = (kSigns - (b & ~kSigns)) & ~kSigns;
    fits = fits && (!negative || (((kSigns - minus_a) ^ kSigns) == a && ((kSigns - minus_b) ^ kSigns) == b));
    halves.word[2 * h] = negative ? minus_a : a;
    halves.word[2 * h + 1] = negative ? minus_b : b;
    halves.sign[h] = negative ? -1 : 1;
  }
  return fits;
}
template <bool kMultiply>
QUERN_FN void look_up_halves(u32 (&low)[2], u32 (&high)[2], const HalvesTable& table, u32 q) {
  u32 other = q ^ 0x88888888u;
  low[0] = ptx::prmt(table.word[0], table.word[1], q);
  high[0] = ptx::prmt(table.word[2], table.word[3], other);
  low[1] = ptx::prmt(table.word[0], table.word[1], kMultiply ? ptx::mul_high(q, 0x10000u) : q >> 16);
  high[1] = ptx::prmt(table.word[2], table.word[3], kMultiply ? ptx::mul_high(other, 0x10000u) : other >> 16);
}

// Bytes for the low nibbles of q's four bytes, or for the high ones.
QUERN_FN u32 look_up_nibbles(const NibbleTable& table, u32 q, bool high) {
  u32 bytes[2];
  look_up_all(bytes, table, q);
  return ptx::prmt(bytes[0], bytes[1], high ? 0x7531u : 0x6420u);
}

}  // namespace quern::decode

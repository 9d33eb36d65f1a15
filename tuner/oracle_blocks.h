// Decoders of one block each, internal to the oracle. Every function reads one block of its type at any alignment and writes the block's
// elements; products are f32 and in the order of the format's own definition.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "tuner/half.h"

namespace quern::oracle {

inline unsigned byte_at(const std::byte* block, int i) { return std::to_integer<unsigned>(block[i]); }
inline int signed_byte_at(const std::byte* block, int i) { return static_cast<std::int8_t>(byte_at(block, i)); }
inline unsigned u16_at(const std::byte* block, int i) { return byte_at(block, i) | byte_at(block, i + 1) << 8; }
inline std::uint32_t u32_at(const std::byte* block, int i) { return u16_at(block, i) | u16_at(block, i + 2) << 16; }
inline float half_at(const std::byte* block, int i) { return half_to_float(static_cast<std::uint16_t>(u16_at(block, i))); }
// Nibble i of an array of bytes, low nibble first.
inline unsigned nibble_at(const std::byte* block, int i) { return (byte_at(block, i / 2) >> (4 * (i % 2))) & 15u; }

// oracle_blocks.cc: one scale per block.
void decode_f32(const std::byte* block, float* out);
void decode_f16(const std::byte* block, float* out);
void decode_bf16(const std::byte* block, float* out);
void decode_q4_0(const std::byte* block, float* out);
void decode_q4_1(const std::byte* block, float* out);
void decode_q5_0(const std::byte* block, float* out);
void decode_q5_1(const std::byte* block, float* out);
void decode_q8_0(const std::byte* block, float* out);
void decode_tq1_0(const std::byte* block, float* out);
void decode_tq2_0(const std::byte* block, float* out);
void decode_mxfp4(const std::byte* block, float* out);
void decode_nvfp4(const std::byte* block, float* out);
void decode_q1_0(const std::byte* block, float* out);
void decode_q2_0(const std::byte* block, float* out);

// oracle_k.cc: super-blocks of 256 with packed sub-scales.
void decode_q2_k(const std::byte* block, float* out);
void decode_q3_k(const std::byte* block, float* out);
void decode_q4_k(const std::byte* block, float* out);
void decode_q5_k(const std::byte* block, float* out);
void decode_q6_k(const std::byte* block, float* out);

// oracle_iq.cc: codebooks.
void decode_iq2_xxs(const std::byte* block, float* out);
void decode_iq2_xs(const std::byte* block, float* out);
void decode_iq2_s(const std::byte* block, float* out);
void decode_iq3_xxs(const std::byte* block, float* out);
void decode_iq3_s(const std::byte* block, float* out);
void decode_iq1_s(const std::byte* block, float* out);
void decode_iq1_m(const std::byte* block, float* out);
void decode_iq4_nl(const std::byte* block, float* out);
void decode_iq4_xs(const std::byte* block, float* out);

}  // namespace quern::oracle

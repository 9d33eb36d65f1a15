// The value of every weight of a slice in f32, as the format's reference computes it, for any decoder.
#pragma once

#include "decode/view.cuh"
#include "geometry/limits.h"

namespace quern {

// Weights per block as slices see it: a dense type's virtual block.
template <class D>
constexpr int slice_block() {
  if constexpr (D::kDense)
    return D::kVirtualBlock;
  else
    return D::kBlock;
}

// Position along K of quad `quad` of the row's slice `s`.
template <class D>
QUERN_FN int quad_position(int s, int quad) {
  u32 block = static_cast<u32>(s) / D::kSlices, slice = static_cast<u32>(s) % D::kSlices;  // unsigned: a shift and a mask
  return static_cast<int>(block) * slice_block<D>() + D::quad_k(static_cast<int>(slice), quad);
}

template <class D, class View>
QUERN_FN typename D::Slice load_slice(const View& view, int s) {
  return D::load(view, static_cast<int>(static_cast<u32>(s) / D::kSlices), static_cast<int>(static_cast<u32>(s) % D::kSlices));
}

template <int kCount>
struct Words {
  u32 word[kCount];
};

// Keeps what is made of the slices behind the barrier that returned `zero` (ptx::barrier_zero): the compiler would hoist the first
// instructions above it, and what they wait for would hold up the barrier.
template <class Slice, int kCount>
QUERN_FN void hold_until(u32 zero, Slice (&slices)[kCount]) {
  constexpr int kWords = sizeof(Slice) / 4;
  static_assert(sizeof(Slice) == 4 * kWords);
  QUERN_UNROLL
  for (int u = 0; u < kCount; ++u) {
    auto words = __builtin_bit_cast(Words<kWords>, slices[u]);
    QUERN_UNROLL
    for (int i = 0; i < kWords; ++i) words.word[i] ^= zero;
    slices[u] = __builtin_bit_cast(Slice, words);
  }
}

// Byte `e` of a packed quad as an exact f32, bias removed.
template <class D>
QUERN_FN f32 byte_value(u32 quad, int e) {
  if constexpr (D::kSigned)
    return signed_byte_to_f32(quad, e);
  else
    return ptx::sub(ptx::float_from_bits(ptx::prmt(quad, 0x4b000000u, 0x7440u | static_cast<u32>(e))),
                    8388608.0f + static_cast<f32>(D::kBias));
}

// values[4*q+e] is the weight at quad_k(slice, q) + e of its block.
template <class D>
QUERN_FN void slice_values(const typename D::Slice& slice, f32 (&values)[32]) {
  if constexpr (D::kDense) {
    QUERN_UNROLL
    for (int i = 0; i < 32; ++i) values[i] = D::value(slice, i / 4, i % 4);
  } else {
    QUERN_UNROLL
    for (int i = 0; i < 32; ++i) {
      int group = D::kScales == 2 ? i / 16 : 0;
      f32 v = ptx::mul(D::scale(slice, group), byte_value<D>(D::quad(slice, i / 4), i % 4));
      values[i] = D::kOffset ? ptx::add(v, D::offset(slice, group)) : v;
    }
  }
}

}  // namespace quern

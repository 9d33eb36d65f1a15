// Preparing activations: 8-bit groups for the integer GEMV, fragment order for the tensor cores (geometry/activations.h has both layouts).
#pragma once

#include "decode/slice.cuh"
#include "families/element.cuh"
#include "geometry/activations.h"

namespace quern {

// Lanes that quantize one group together, one quad each: loads stay coalesced, and a block prepares K = 4096 in a few round trips.
inline constexpr int kGroupLanes = 8;

// Quantizes the group of (m, s) into `store`, laid out as QuantizedActivations; lane q of eight neighbours handles quad q. All 32 lanes of
// the warp take part; `active` is the same for the eight of a group. Scale = absmax / 127, however small: an f32 denormal is not zero. A
// NaN or infinity among the activations makes the group's scale NaN, and so the outputs that use it.
template <class D, class X>
QUERN_FN void quantize_group(u8* store, const QuantizedActivations& layout, const X* row, i64 m, int s, bool wide, bool active) {
  int q = ptx::lane() % kGroupLanes;
  f32 x[4] = {0, 0, 0, 0};
  if (active) load_quad(x, row + quad_position<D>(s, q), wide);
  f32 absmax = 0;
  u32 nonfinite = 0;
  QUERN_UNROLL
  for (int e = 0; e < 4; ++e) {
    f32 a = x[e] < 0 ? -x[e] : x[e];
    nonfinite |= a <= 3.4028234e38f ? 0u : 1u;
    absmax = a > absmax ? a : absmax;
  }
  QUERN_UNROLL
  for (int mask = kGroupLanes / 2; mask > 0; mask /= 2) {
    f32 other = ptx::shuffle_xor(absmax, mask);
    absmax = other > absmax ? other : absmax;
    nonfinite |= ptx::shuffle_xor(nonfinite, mask);
  }
  bool zero = absmax == 0 || nonfinite != 0;
  // 127 / absmax would pass the end of f32 from 2^-121 down.
  f32 lift = absmax < 0x1p-100f ? 0x1p60f : 1.0f;
  f32 inverse = zero ? 0.0f : ptx::div(127.0f, ptx::mul(absmax, lift));
  f32 scale = zero ? 0.0f : ptx::mul(absmax, 1.0f / 127.0f);

  u32 word = 0;
  QUERN_UNROLL
  for (int e = 0; e < 4; ++e) word |= (static_cast<u32>(ptx::round_even(ptx::mul(ptx::mul(x[e], lift), inverse))) & 0xffu) << (8 * e);
  if (nonfinite != 0) {  // keep one nonzero quant, so that the NaN survives weights that are all zero
    scale = ptx::float_from_bits(0x7fc00000u);
    word = 1u;
  }
  i32 sum = ptx::dp4a_us(0x01010101u, word, 0);
  sum += ptx::shuffle_xor(sum, 1);
  sum += ptx::shuffle_xor(sum, 2);
  i32 other = ptx::shuffle_xor(sum, 4);
  if (!active) return;
  int group = static_cast<int>(m) * static_cast<int>(layout.slices) + s;
  reinterpret_cast<u32*>(store + layout.half(q / 4))[group * 4 + q % 4] = word;
  if (q == 0)
    reinterpret_cast<u32x2*>(store + layout.meta())[group] = {ptx::bits_of(scale),
                                                              (static_cast<u32>(sum) & 0xffffu) | static_cast<u32>(other) << 16};
}

// The groups of row m, shared out among `threads` threads (a multiple of 32), of which this is number `thread`.
template <class D, class X>
QUERN_FN void quantize_row(u8* store, const QuantizedActivations& layout, const KernelArgs& args, i64 m, int thread, int threads) {
  const X* row = static_cast<const X*>(args.x) + m * args.ldx;
  bool wide = rows_are_wide<X>(args.x, args.ldx);
  int slices = static_cast<int>(layout.slices), lanes = slices * kGroupLanes;
  for (int i = thread; i < round_up(lanes, kWarpLanes); i += threads) {
    int s = static_cast<int>(static_cast<u32>(i) / kGroupLanes);
    quantize_group<D>(store, layout, row, m, s < slices ? s : 0, wide, s < slices);
  }
}

// As a kernel of its own: kGroupsPerBlock groups of one row per block, one quad per thread.
template <class D, class X, int kThreads>
QUERN_FN void quantize_activations(const KernelArgs& args) {
  QuantizedActivations layout{args.m, args.k / kSliceWeights};
  constexpr int kGroups = kThreads / kGroupLanes;
  i64 blocks_per_row = ceil_div(layout.slices, kGroups), m = ptx::block_x() / blocks_per_row;
  int s = static_cast<int>(ptx::block_x() % blocks_per_row) * kGroups + static_cast<int>(static_cast<u32>(ptx::thread_x()) / kGroupLanes);
  bool active = s < layout.slices;
  quantize_group<D>(static_cast<u8*>(args.workspace), layout, static_cast<const X*>(args.x) + m * args.ldx, m, active ? s : 0,
                    rows_are_wide<X>(args.x, args.ldx), active);
}

// The power of two that brings absmax to [128, 256): far from f16's ends for the largest activation and 2^21 below it. At least 2^-126, so
// that its inverse is a number; then even the smallest f32, 2^-149, is one of f16.
QUERN_FN f32 fragment_scale(f32 absmax) {
  u32 exponent = (ptx::bits_of(absmax) >> 23) & 0xffu;
  if (exponent > 254u) return 1.0f;  // no number
  return ptx::float_from_bits((exponent < 8u ? 1u : exponent - 7u) << 23);
}

// Where the two packed pairs of (token, run of 128, quad, lane) go: 4 bytes each, in neighbouring 16-byte pieces.
struct FragmentPlace {
  FragmentActivations layout;
  QUERN_FN u32* at(u8* store, i64 m, int run, int quad, int half) const {
    return reinterpret_cast<u32*>(store + (m * layout.k_padded() + run * 128 + 16 * quad + 8 * half) * 2);
  }
};
struct TiledPlace {
  TiledActivations layout;
  QUERN_FN u32* at(u8* store, i64 m, int run, int quad, int half) const {
    return reinterpret_cast<u32*>(store + layout.piece(m, 2 * run + quad / 4, 2 * (quad % 4) + half));
  }
};

// Row m of the workspace from one row of X, by a block, in the order and place that `place` says: bf16 as is, or f16 scaled by the row's
// power of two. Zeros where the row is not `inside` X.
template <class D, class X, bool kBf16, int kThreads, class Place>
QUERN_FN void fragment_row(const KernelArgs& args, const Place& place, i64 m, const X* row, bool inside, bool wide) {
  u8* store = static_cast<u8*>(args.workspace);
  f32 scale = 1.0f, inverse = 1.0f;
  if constexpr (!kBf16) {
    f32 absmax = 0;
    if (inside)
      for (i64 k = ptx::thread_x(); k < args.k; k += kThreads) {
        f32 v = ptx::to_f32(ptx::load_cached(row + k));
        v = v < 0 ? -v : v;
        absmax = v > absmax ? v : absmax;
      }
    f32* warps = reinterpret_cast<f32*>(ptx::shared_memory());
    for (int mask = 16; mask > 0; mask /= 2) {
      f32 other = ptx::shuffle_xor(absmax, mask);
      absmax = other > absmax ? other : absmax;
    }
    if (ptx::lane() == 0) warps[ptx::warp()] = absmax;
    ptx::barrier();
    QUERN_UNROLL
    for (int w = 0; w < kThreads / kWarpLanes; ++w) absmax = warps[w] > absmax ? warps[w] : absmax;
    scale = fragment_scale(absmax);
    inverse = ptx::div(1.0f, scale);
  }
  if (ptx::thread_x() == 0) reinterpret_cast<f32*>(store + place.layout.scales())[m] = scale;

  // One thread per (run of 128, quad, lane).
  int slices = static_cast<int>(args.k / kSliceWeights), quads = static_cast<int>(place.layout.k_padded() / 4);
  for (int i = ptx::thread_x(); i < quads; i += kThreads) {
    int run = i / 32, quad = i / 4 % 8, t = i % 4;
    int s = 4 * run + t;
    f32 x[4] = {0, 0, 0, 0};
    if (inside && s < slices) load_quad(x, row + quad_position<D>(s, quad), wide);
    u32 low, high;
    if constexpr (kBf16) {
      low = ptx::pack_bf16x2(x[0], x[1]), high = ptx::pack_bf16x2(x[2], x[3]);
    } else {
      low = ptx::pack_f16x2(ptx::mul(x[0], inverse), ptx::mul(x[1], inverse));
      high = ptx::pack_f16x2(ptx::mul(x[2], inverse), ptx::mul(x[3], inverse));
    }
    place.at(store, m, run, quad, 0)[t] = low;
    place.at(store, m, run, quad, 1)[t] = high;
  }
}

// One block per row of X. Rows past m are zeros.
template <class D, class X, bool kBf16, int kThreads, class Place>
QUERN_FN void fragment_activations(const KernelArgs& args, const Place& place) {
  i64 m = ptx::block_x();
  bool inside = m < args.m;
  const X* row = static_cast<const X*>(args.x) + (inside ? m * args.ldx : 0);
  fragment_row<D, X, kBf16, kThreads>(args, place, m, row, inside, rows_are_wide<X>(args.x, args.ldx));
}

}  // namespace quern

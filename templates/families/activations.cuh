// Preparing activations: 8-bit groups for the integer GEMV, fragment order for the tensor cores (geometry/activations.h has both layouts).
#pragma once

#include "decode/slice.cuh"
#include "families/element.cuh"
#include "geometry/activations.h"

namespace quern {

// The 32 activations that meet slice s.
template <class D, class X>
QUERN_FN void gather_slice(f32 (&x)[32], const X* row, int s, bool wide) {
  QUERN_UNROLL
  for (int q = 0; q < 8; ++q) {
    f32 quad[4];
    load_quad(quad, row + quad_position<D>(s, q), wide);
    QUERN_UNROLL
    for (int e = 0; e < 4; ++e) x[4 * q + e] = quad[e];
  }
}

// Quantizes the group of (m, s) into `store`, laid out as QuantizedActivations. Scale = absmax / 127; groups below 1e-35 count as zero.
// A NaN or infinity among the activations makes the group's scale NaN or infinite, and so the outputs that use it.
template <class D, class X>
QUERN_FN void quantize_group(u8* store, const QuantizedActivations& layout, const X* row, i64 m, int s, bool wide) {
  f32 x[32];
  gather_slice<D>(x, row, s, wide);
  f32 absmax = 0;
  bool finite = true;
  QUERN_UNROLL
  for (int i = 0; i < 32; ++i) {
    f32 a = x[i] < 0 ? -x[i] : x[i];
    finite = finite && a <= 3.4028234e38f;
    absmax = a > absmax ? a : absmax;
  }
  bool zero = absmax < 1e-35f;
  f32 inverse = zero || !finite ? 0.0f : ptx::div(127.0f, absmax);
  f32 scale = zero ? 0.0f : ptx::div(absmax, 127.0f);
  if (!finite) scale = ptx::float_from_bits(0x7fc00000u);

  u32 packed[8];
  i32 sums[2] = {0, 0};
  QUERN_UNROLL
  for (int q = 0; q < 8; ++q) {
    u32 word = 0;
    QUERN_UNROLL
    for (int e = 0; e < 4; ++e) {
      i32 v = ptx::round_even(ptx::mul(x[4 * q + e], inverse));
      sums[q / 4] += v;
      word |= (static_cast<u32>(v) & 0xffu) << (8 * e);
    }
    packed[q] = word;
  }
  // A group of NaNs must not vanish behind weights that are all zero: keep one nonzero quant.
  if (!finite) packed[0] = 1, sums[0] = 1;
  i64 group = m * layout.slices + s;
  *reinterpret_cast<u32x4*>(store + layout.half(0) + group * 16) = {packed[0], packed[1], packed[2], packed[3]};
  *reinterpret_cast<u32x4*>(store + layout.half(1) + group * 16) = {packed[4], packed[5], packed[6], packed[7]};
  *reinterpret_cast<u32x2*>(store + layout.meta() + group * 8) = {
      ptx::bits_of(scale), (static_cast<u32>(sums[0]) & 0xffffu) | static_cast<u32>(sums[1]) << 16};
}

// One thread per group, all rows of X.
template <class D, class X, int kThreads>
QUERN_FN void quantize_activations(const KernelArgs& args) {
  QuantizedActivations layout{args.m, args.k / kSliceWeights};
  i64 index = ptx::block_x() * kThreads + ptx::thread_x();
  if (index >= layout.m * layout.slices) return;
  i64 m = index / layout.slices;
  const X* row = static_cast<const X*>(args.x) + m * args.ldx;
  quantize_group<D>(static_cast<u8*>(args.workspace), layout, row, m, static_cast<int>(index % layout.slices), rows_are_wide<X>(args.x, args.ldx));
}

// The power of two that brings absmax to [128, 256): far from f16's ends for the largest activation and 2^21 below it.
QUERN_FN f32 fragment_scale(f32 absmax) {
  u32 exponent = (ptx::bits_of(absmax) >> 23) & 0xffu;
  if (exponent < 8u || exponent > 250u) return 1.0f;
  return ptx::float_from_bits((exponent - 7u) << 23);
}

// One block per row of X: fragment order, bf16 as is, or f16 scaled by the row's power of two.
template <class D, class X, bool kBf16, int kThreads>
QUERN_FN void fragment_activations(const KernelArgs& args) {
  FragmentActivations layout{args.m, args.k};
  i64 m = ptx::block_x();
  const X* row = static_cast<const X*>(args.x) + m * args.ldx;
  u8* store = static_cast<u8*>(args.workspace);
  bool wide = rows_are_wide<X>(args.x, args.ldx);

  f32 scale = 1.0f, inverse = 1.0f;
  if constexpr (!kBf16) {
    f32 absmax = 0;
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
  if (ptx::thread_x() == 0) reinterpret_cast<f32*>(store + layout.scales())[m] = scale;

  // One thread per (run of 128, quad, lane): four activations to two places of 4 bytes.
  int slices = static_cast<int>(args.k / kSliceWeights), quads = static_cast<int>(layout.k_padded() / 4);
  for (int i = ptx::thread_x(); i < quads; i += kThreads) {
    int run = i / 32, quad = i / 4 % 8, t = i % 4;
    int s = 4 * run + t;
    f32 x[4] = {0, 0, 0, 0};
    if (s < slices) load_quad(x, row + quad_position<D>(s, quad), wide);
    u32 low, high;
    if constexpr (kBf16) {
      low = ptx::pack_bf16x2(x[0], x[1]), high = ptx::pack_bf16x2(x[2], x[3]);
    } else {
      low = ptx::pack_f16x2(ptx::mul(x[0], inverse), ptx::mul(x[1], inverse));
      high = ptx::pack_f16x2(ptx::mul(x[2], inverse), ptx::mul(x[3], inverse));
    }
    u32* place = reinterpret_cast<u32*>(store + (m * layout.k_padded() + run * 128 + 16 * quad) * 2);
    place[t] = low;
    place[t + 4] = high;
  }
}

}  // namespace quern

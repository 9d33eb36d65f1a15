// X's rows to int8 codes and a scale each: scale = max(absmax, 1e-12) / 127 and code = x / scale, both IEEE divisions (a multiplication by
// the reciprocal is one unit off in some rows), rounded half to even, clamped to +-127. A NaN becomes the code 0 and does not count for the
// scale. A block per row.
#pragma once

#include "families/element.cuh"
#include "geometry/limits.h"

namespace quern {

template <class In, int kThreads>
QUERN_FN f32 row_absmax(const KernelArgs& args, i64 m, bool wide) {
  using X = typename In::Type;
  const X* row = static_cast<const X*>(args.x) + m * args.ldx;
  f32 absmax = 0;
  for (i64 k = 4 * ptx::thread_x(); k < args.k; k += 4 * kThreads) {
    f32 x[4];
    load_quad(x, row + k, wide);
    QUERN_UNROLL
    for (int i = 0; i < 4; ++i) {
      f32 a = x[i] < 0 ? -x[i] : x[i];
      absmax = a > absmax ? a : absmax;
    }
  }
  QUERN_UNROLL
  for (int mask = kWarpLanes / 2; mask > 0; mask /= 2) {
    f32 other = ptx::shuffle_xor(absmax, mask);
    absmax = other > absmax ? other : absmax;
  }
  f32* of_warp = reinterpret_cast<f32*>(ptx::shared_memory());
  if (ptx::lane() == 0) of_warp[ptx::warp()] = absmax;
  ptx::barrier();
  QUERN_UNROLL
  for (int w = 0; w < kThreads / kWarpLanes; ++w) absmax = of_warp[w] > absmax ? of_warp[w] : absmax;
  return absmax;
}

QUERN_FN u32 int8_code(f32 x, f32 scale) {
  i32 q = ptx::round_even(ptx::div(x, scale));
  q = q > 127 ? 127 : q < -127 ? -127 : q;
  return static_cast<u32>(q) & 0xffu;
}

// K is a multiple of four.
template <class In, int kThreads>
QUERN_FN void quantize_rows(const KernelArgs& args) {
  using X = typename In::Type;
  i64 m = ptx::block_x();
  bool wide = rows_are_wide<X>(args.x, args.ldx);
  f32 absmax = row_absmax<In, kThreads>(args, m, wide);
  f32 scale = ptx::div(absmax > 1e-12f ? absmax : 1e-12f, 127.0f);
  if (ptx::thread_x() == 0) args.y_scales[m] = scale;

  const X* row = static_cast<const X*>(args.x) + m * args.ldx;
  u8* codes = static_cast<u8*>(args.y) + m * args.ldy;
  bool words = (reinterpret_cast<u64>(codes) & 3) == 0;
  for (i64 k = 4 * ptx::thread_x(); k < args.k; k += 4 * kThreads) {
    f32 x[4];
    load_quad(x, row + k, wide);
    u32 word = 0;
    QUERN_UNROLL
    for (int i = 0; i < 4; ++i) word |= int8_code(x[i], scale) << (8 * i);
    if (words) {
      *reinterpret_cast<u32*>(codes + k) = word;
    } else {
      QUERN_UNROLL
      for (int i = 0; i < 4; ++i) codes[k + i] = static_cast<u8>(word >> (8 * i));
    }
  }
}

}  // namespace quern

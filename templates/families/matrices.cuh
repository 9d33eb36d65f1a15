// An op over many matrices is a plain problem per matrix: kernels are written for one, and their entries pick it by block_y.
#pragma once

#include "args.h"
#include "ptx/ptx.cuh"

namespace quern {

// Matrix `index` of batch dims 2 and 3, W's being shared by `ratio` neighbours. `workspace_bytes` is each matrix's own part.
template <class X, class Y>
struct BatchMatrices {
  static QUERN_FN i64 count(const KernelArgs& all) { return all.batch2 * all.batch3; }
  static QUERN_FN i64 rows(const KernelArgs& all) { return all.m; }
  static QUERN_FN bool select(KernelArgs& one, const KernelArgs& all, i64 index, i64 workspace_bytes) {
    i64 b2 = index % all.batch2, b3 = index / all.batch2;
    one = all;
    one.w = static_cast<const u8*>(all.w) + (b2 / all.ratio2 * all.w_stride2 + b3 / all.ratio3 * all.w_stride3);
    one.x = static_cast<const X*>(all.x) + (b2 * all.x_stride2 + b3 * all.x_stride3);
    one.y = static_cast<Y*>(all.y) + (b2 * all.y_stride2 + b3 * all.y_stride3);
    one.workspace = static_cast<u8*>(all.workspace) + index * workspace_bytes;
    return true;
  }
};

// Row `index` of mul_mat_id, a (token, slot) pair, as a matrix of one row with the weights of its expert. False where its id names none.
template <class X, class Y>
struct RoutedRows {
  static QUERN_FN i64 count(const KernelArgs& all) { return all.m * all.used; }
  static QUERN_FN i64 rows(const KernelArgs&) { return 1; }
  static QUERN_FN bool select(KernelArgs& one, const KernelArgs& all, i64 index, i64 workspace_bytes) {
    i64 token = index / all.used, slot = index % all.used;
    i64 expert = ptx::load_cached(all.ids + token * all.ids_stride + slot);
    one = all;
    one.m = 1;
    one.x = static_cast<const X*>(all.x) + (token * all.x_stride2 + slot * all.ldx);
    one.y = static_cast<Y*>(all.y) + (token * all.y_stride2 + slot * all.ldy);
    one.workspace = static_cast<u8*>(all.workspace) + index * workspace_bytes;
    if (expert < 0 || expert >= all.experts) return false;
    one.w = static_cast<const u8*>(all.w) + expert * all.w_stride2;
    if (all.w_scale != nullptr) one.w_scale = all.w_scale + expert;
    if (all.bias != nullptr) one.bias = static_cast<const Y*>(all.bias) + expert * all.n;
    return true;
  }
};

// What a row without an expert holds: NaN, so that a wrong id is seen. Written by the first block of its row.
template <class Y, int kThreads>
QUERN_FN void write_no_expert(const KernelArgs& one) {
  ptx::wait_previous();
  if (ptx::block_x() != 0) return;
  for (i64 n = ptx::thread_x(); n < one.n; n += kThreads) static_cast<Y*>(one.y)[n] = ptx::from_f32<Y>(ptx::float_from_bits(0x7fc00000u));
}

}  // namespace quern

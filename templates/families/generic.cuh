// mul_mat for every legal problem on every architecture: one thread per output, weights decoded to f32 as the format's reference does, f32
// sums of 32. Slow and obvious: the device-side oracle of the other families.
#pragma once

#include "decode/slice.cuh"
#include "families/element.cuh"

namespace quern {

template <class D, class Layout, class X, class Y, bool kBias, int kThreads>
QUERN_FN void generic_mul_mat(const KernelArgs& args) {
  i64 index = ptx::block_x() * kThreads + ptx::thread_x();
  if (index >= args.m * args.n * args.batch2 * args.batch3) return;
  i64 n = index % args.n, m = index / args.n % args.m;
  i64 b2 = index / (args.n * args.m) % args.batch2, b3 = index / (args.n * args.m * args.batch2);

  KernelArgs matrix = args;  // this batch index as a plain matrix
  matrix.w = static_cast<const u8*>(args.w) + b2 / args.ratio2 * args.w_stride2 + b3 / args.ratio3 * args.w_stride3;
  matrix.y = static_cast<Y*>(args.y) + b2 * args.y_stride2 + b3 * args.y_stride3;
  const X* x = static_cast<const X*>(args.x) + b2 * args.x_stride2 + b3 * args.x_stride3 + m * args.ldx;

  auto view = RowView<D, Layout>::of(matrix, n);
  f32 sum = 0;
  if constexpr (D::kDense) {
    for (int k0 = 0; k0 < args.k; k0 += kSliceWeights) {
      f32 part = 0;
      for (int k = k0; k < k0 + kSliceWeights && k < args.k; ++k) part = ptx::fma(D::element(view, k), ptx::to_f32(x[k]), part);
      sum = ptx::add(sum, part);
    }
  } else {
    for (int s = 0; s < args.k / kSliceWeights; ++s) {
      f32 w[32], part = 0;
      slice_values<D>(load_slice<D>(view, s), w);
      QUERN_UNROLL
      for (int i = 0; i < 32; ++i) part = ptx::fma(w[i], ptx::to_f32(x[quad_position<D>(s, i / 4) + i % 4]), part);
      sum = ptx::add(sum, part);
    }
  }
  store_output<Y, kBias>(matrix, m, n, sum);
}

}  // namespace quern

// Products for every legal problem on every architecture: weights decoded to f32 as the format's reference does, f32 sums of 32. Slow and
// obvious: the device-side oracle of the other families.
#pragma once

#include "decode/slice.cuh"
#include "families/element.cuh"
#include "families/matrices.cuh"

namespace quern {

// mul_mat and mul_mat_id: one thread per output.
template <class D, class Layout, class Matrices, class In, class Out, int kThreads>
QUERN_FN void generic_mul_mat(const KernelArgs& args) {
  i64 index = ptx::block_x() * kThreads + ptx::thread_x(), rows = Matrices::rows(args);
  if (index >= args.n * rows * Matrices::count(args)) return;
  i64 n = index % args.n, m = index / args.n % rows;
  KernelArgs matrix;
  if (!Matrices::select(matrix, args, index / (args.n * rows), 0)) {
    static_cast<typename Out::Type*>(matrix.y)[n] = ptx::from_f32<typename Out::Type>(ptx::float_from_bits(0x7fc00000u));
    return;
  }

  auto view = RowView<D, Layout>::of(matrix, n);
  f32 sum = 0;
  if constexpr (D::kDense) {
    for (int k0 = 0; k0 < args.k; k0 += kSliceWeights) {
      f32 part = 0;
      for (int k = k0; k < k0 + kSliceWeights && k < args.k; ++k) part = ptx::fma(D::element(view, k), In::load(matrix, m, k), part);
      sum = ptx::add(sum, part);
    }
  } else {
    for (int s = 0; s < args.k / kSliceWeights; ++s) {
      f32 w[32], part = 0;
      slice_values<D>(load_slice<D>(view, s), w);
      QUERN_UNROLL
      for (int i = 0; i < 32; ++i) part = ptx::fma(w[i], In::load(matrix, m, quad_position<D>(s, i / 4) + i % 4), part);
      sum = ptx::add(sum, part);
    }
  }
  Out::store(matrix, m, n, sum);
}

// out_prod: one thread per row of X and slice of outputs, walking down the rows of W.
template <class D, class Layout, class Matrices, class In, class Out, int kThreads>
QUERN_FN void generic_out_prod(const KernelArgs& args) {
  i64 slices = ceil_div(args.k, kSliceWeights), index = ptx::block_x() * kThreads + ptx::thread_x();
  if (index >= slices * args.m * Matrices::count(args)) return;
  int s = static_cast<int>(index % slices);
  i64 m = index / slices % args.m;
  KernelArgs matrix;
  Matrices::select(matrix, args, index / (slices * args.m), 0);

  f32 sum[32] = {};
  for (i64 n0 = 0; n0 < args.n; n0 += 32) {
    f32 part[32] = {};
    for (i64 n = n0; n < n0 + 32 && n < args.n; ++n) {
      auto view = RowView<D, Layout>::of(matrix, n);
      f32 w[32], x = In::load(matrix, m, n);
      if constexpr (D::kDense) {
        QUERN_UNROLL
        for (int i = 0; i < 32; ++i) w[i] = s * kSliceWeights + i < args.k ? D::element(view, s * kSliceWeights + i) : 0.0f;
      } else {
        slice_values<D>(load_slice<D>(view, s), w);
      }
      QUERN_UNROLL
      for (int i = 0; i < 32; ++i) part[i] = ptx::fma(w[i], x, part[i]);
    }
    QUERN_UNROLL
    for (int i = 0; i < 32; ++i) sum[i] = ptx::add(sum[i], part[i]);
  }
  QUERN_UNROLL
  for (int i = 0; i < 32; ++i) {
    i64 k = D::kDense ? s * kSliceWeights + i : quad_position<D>(s, i / 4) + i % 4;
    if (k < args.k) Out::store(matrix, m, k, sum[i]);
  }
}

}  // namespace quern

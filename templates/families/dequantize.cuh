// dequantize: Y[N,K] = decode(W), bit for bit the format's reference in f32, times the weight scale where there is one, rounded once for
// f16 and bf16. One thread per slice.
#pragma once

#include "decode/slice.cuh"
#include "families/element.cuh"

namespace quern {

template <class D, class Layout, class Out, int kThreads>
QUERN_FN void dequantize(const KernelArgs& args) {
  i64 per_row = ceil_div(args.k, kSliceWeights);
  i64 index = ptx::block_x() * kThreads + ptx::thread_x();
  i64 n = index / per_row;
  int s = static_cast<int>(index % per_row);
  if (n >= args.n) return;
  auto view = RowView<D, Layout>::of(args, n);
  if constexpr (D::kDense) {
    for (int k = s * kSliceWeights; k < (s + 1) * kSliceWeights && k < args.k; ++k) Out::store(args, n, k, D::element(view, k));
  } else {
    f32 w[32];
    slice_values<D>(load_slice<D>(view, s), w);
    bool wide = Out::quads_are_wide(args);
    QUERN_UNROLL
    for (int q = 0; q < 8; ++q) {
      f32 quad[4] = {w[4 * q], w[4 * q + 1], w[4 * q + 2], w[4 * q + 3]};
      Out::store_quad(args, n, quad_position<D>(s, q), quad, wide);
    }
  }
}

}  // namespace quern

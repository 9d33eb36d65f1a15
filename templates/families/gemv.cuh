// Decode GEMV, M = 1..8: a group of lanes per row of W, one slice per lane at a time, activations shared by every row of the block.
// The loop is one flat sequence over (pass, slice group) with the next weights always in flight: the first load is issued before the
// activations are staged, so that the memory never idles. Activation policies: GemvQ8 (gemv_q8.cuh), GemvF32 (gemv_f32.cuh).
#pragma once

#include "decode/slice.cuh"
#include "families/element.cuh"
#include "geometry/gemv.h"

namespace quern {

template <class D, class Layout, class Policy, class Out, GemvGeometry G>
struct Gemv {
  static constexpr int kSlices = G.k / kSliceWeights;
  static constexpr int kStep = G.lanes * G.warps_k * G.unroll;  // slices per row and iteration
  static constexpr int kIterations = (kSlices + kStep - 1) / kStep;
  static constexpr bool kWhole = kSlices % kStep == 0;  // every lane has a slice in every iteration
  // Iterations unrolled: as many as keep the loop's body near 32 slices of work.
  static constexpr int kWork = G.rows * G.unroll * (1 + G.m / 2);
  static constexpr int kUnrolled = kWork >= 32 ? 1 : 32 / kWork < kIterations ? 32 / kWork : kIterations;

  struct Weights {
    typename D::Slice slice[G.rows][G.unroll];
  };
  struct Place {
    i64 row;    // first row of this lane group in pass 0
    int first;  // first slice of this lane
  };

  static QUERN_FN Place place() {
    int lane_group = ptx::lane() / G.lanes, lane = ptx::lane() % G.lanes;
    int warp_row = ptx::warp() / G.warps_k, warp_k = ptx::warp() % G.warps_k;
    return {ptx::block_x() * G.passes * G.rows_per_block() + warp_row * G.rows_per_warp() + lane_group * G.rows, warp_k * G.lanes + lane};
  }

  using View = RowView<D, Layout>;
  // The rows of one pass. Rows past the end stand for the last one and are not written.
  static QUERN_FN void aim(View (&views)[G.rows], const KernelArgs& args, i64 row) {
    QUERN_UNROLL
    for (int r = 0; r < G.rows; ++r) {
      i64 n = row + r < args.n ? row + r : args.n - 1;
      if constexpr (D::kDense)
        views[r] = View::of(args, n);
      else
        views[r] = View::of(args, n, G.k / D::kBlock);
    }
  }

  static QUERN_FN void load(Weights& w, const View (&views)[G.rows], int slice) {
    QUERN_UNROLL
    for (int u = 0; u < G.unroll; ++u) {
      int s = slice + u * G.lanes * G.warps_k;
      QUERN_UNROLL
      for (int r = 0; r < G.rows; ++r) w.slice[r][u] = kWhole || s < kSlices ? load_slice<D>(views[r], s) : typename D::Slice{};
    }
  }

  // Sums over the lanes of a row, then over the warps that share it.
  static QUERN_FN void finish(f32 (&sum)[G.rows][G.m], const KernelArgs& args, i64 row) {
    QUERN_UNROLL
    for (int r = 0; r < G.rows; ++r) QUERN_UNROLL
    for (int m = 0; m < G.m; ++m) QUERN_UNROLL
    for (int mask = G.lanes / 2; mask > 0; mask /= 2) sum[r][m] = ptx::add(sum[r][m], ptx::shuffle_xor(sum[r][m], mask));

    if constexpr (G.warps_k > 1) {
      f32* partial = reinterpret_cast<f32*>(ptx::shared_memory());
      int lane_group = ptx::lane() / G.lanes;
      f32* mine = partial + (ptx::warp() * G.rows_per_warp() + lane_group * G.rows) * G.m;
      if (ptx::lane() % G.lanes == 0) QUERN_UNROLL
      for (int i = 0; i < G.rows * G.m; ++i) mine[i] = sum[i / G.m][i % G.m];
      ptx::barrier();
      if (ptx::warp() % G.warps_k == 0) QUERN_UNROLL
      for (int i = 0; i < G.rows * G.m; ++i)
        for (int w = 1; w < G.warps_k; ++w) sum[i / G.m][i % G.m] = ptx::add(sum[i / G.m][i % G.m], mine[w * G.rows_per_warp() * G.m + i]);
      ptx::barrier();
    }
    if (ptx::lane() % G.lanes == 0 && ptx::warp() % G.warps_k == 0) QUERN_UNROLL
    for (int r = 0; r < G.rows; ++r)
      if (row + r < args.n) QUERN_UNROLL
    for (int m = 0; m < G.m; ++m) Out::store(args, m, row + r, sum[r][m]);
  }

  static QUERN_FN void run(const KernelArgs& args) {
    Place at = place();
    i64 groups = G.row_groups(args.n) - ptx::block_x() * G.passes;
    int passes = groups < G.passes ? static_cast<int>(groups) : G.passes;

    View views[G.rows];
    aim(views, args, at.row);
    Weights next;
    load(next, views, at.first);
    if constexpr (G.prefetch) {
      // While another kernel prepares the activations, the first rows travel to L2.
      int lane = ptx::lane() % G.lanes + ptx::warp() % G.warps_k * G.lanes;
      for (int r = 0; r < G.rows; ++r) views[r].prefetch(G.k / D::kBlock, lane, G.lanes * G.warps_k);
    }
    Policy policy(args, ptx::shared_memory() + G.partial_bytes());

    i64 row = at.row;
    for (int pass = 0; pass < passes; ++pass) {
      f32 sum[G.rows][G.m] = {};
      QUERN_UNROLL_BY(kUnrolled)
      for (int i = 0; i < kIterations; ++i) {
        Weights now = next;
        if (i + 1 < kIterations) {
          load(next, views, at.first + (i + 1) * kStep);
        } else if (pass + 1 < passes) {
          aim(views, args, row + G.rows_per_block());
          load(next, views, at.first);
        }
        QUERN_UNROLL
        for (int u = 0; u < G.unroll; ++u) {
          int s = at.first + i * kStep + u * G.lanes * G.warps_k;
          if (kWhole || s < kSlices) policy.accumulate(sum, now.slice, u, s);
        }
      }
      finish(sum, args, row);
      row += G.rows_per_block();
    }
  }
};

}  // namespace quern

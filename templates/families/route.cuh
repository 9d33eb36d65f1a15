// Routing for mul_mat_id by tensor cores: each (token, slot) row of Y goes to the tiles of its expert. No atomics: the same ids give the
// same tiles in the same order every time.
#pragma once

#include "families/activations.cuh"
#include "families/gemm.cuh"

namespace quern {

// Rows of X, each prepared once whatever the number of experts it goes to.
template <bool kBroadcast>
QUERN_FN i64 routed_x_rows(const KernelArgs& args) {
  return kBroadcast ? args.m : args.m * args.used;
}

// Walks along the ids, row by row of Y. Ids that name no expert count as expert number `experts`, the last.
struct IdCursor {
  const int* at;
  i64 slot;

  static QUERN_FN IdCursor of(const KernelArgs& args, i64 row) {
    i64 slot = row % args.used;
    return {args.ids + (row / args.used * args.ids_stride + slot), slot};
  }
  QUERN_FN i32 next(const KernelArgs& args) {
    i32 id = ptx::load_cached(at), experts = static_cast<i32>(args.experts);
    ++at;
    if (++slot == args.used) slot = 0, at += args.ids_stride - args.used;
    return id >= 0 && id < experts ? id : experts;
  }
};

// What thread t of a block has before it and what the block has, of one count per thread. `shared`: one word per warp.
template <int kThreads>
QUERN_FN i32 sum_before(i32 mine, i32& all, i32* shared) {
  i32 sum = mine;
  QUERN_UNROLL
  for (int distance = 1; distance < kWarpLanes; distance *= 2) {
    i32 other = ptx::shuffle(sum, ptx::lane() - distance);
    if (ptx::lane() >= distance) sum += other;
  }
  if (ptx::lane() == kWarpLanes - 1) shared[ptx::warp()] = sum;
  ptx::barrier();
  i32 before = sum - mine;
  all = 0;
  QUERN_UNROLL
  for (int w = 0; w < kThreads / kWarpLanes; ++w) {
    if (w < ptx::warp()) before += shared[w];
    all += shared[w];
  }
  return before;
}

// One block per expert, and one for the rows whose ids name none: it alone counts what lies before its rows and writes them and their
// tiles. The rows of no expert become NaN.
template <class Y, GemmGeometry G, int kThreads>
QUERN_FN void route_rows(const KernelArgs& args, u8* workspace, i32 expert) {
  const RoutedTiles routed{args.m * args.used, args.experts, G.tile_m()};
  u32x4* tiles = reinterpret_cast<u32x4*>(workspace);
  u32* order = reinterpret_cast<u32*>(workspace + routed.order());
  i32* shared = reinterpret_cast<i32*>(ptx::shared_memory());

  // Each thread has the ids of neighbouring rows, so that the rows stay in order.
  i64 share = ceil_div(routed.rows, kThreads), begin = ptx::thread_x() * share, end = begin + share;
  begin = begin < routed.rows ? begin : routed.rows, end = end < routed.rows ? end : routed.rows;
  i32 below = 0, mine = 0, first, count;
  IdCursor cursor = IdCursor::of(args, begin);
  for (i64 row = begin; row < end; ++row) {
    i32 id = cursor.next(args);
    below += id < expert, mine += id == expert;
  }
  sum_before<kThreads>(below, first, shared);
  i32 at = first + sum_before<kThreads>(mine, count, shared + kThreads / kWarpLanes);
  cursor = IdCursor::of(args, begin);
  for (i64 row = begin; row < end; ++row)
    if (cursor.next(args) == expert) order[at++] = static_cast<u32>(row);

  const bool none = expert == args.experts;
  i64 tile = routed.first_tile(expert, first), behind = none ? routed.tiles() : routed.first_tile(expert + 1, first + count);
  for (i64 i = tile + ptx::thread_x(); i < behind; i += kThreads) {
    i64 row = first + (i - tile) * G.tile_m();
    tiles[i] = {static_cast<u32>(expert), static_cast<u32>(row), none ? 0u : static_cast<u32>(first + count), 0u};
  }
  if (!none) return;
  ptx::barrier();
  for (i32 i = first; i < first + count; ++i) {
    i64 row = order[i];
    Y* y = static_cast<Y*>(args.y) + (row / args.used * args.y_stride2 + row % args.used * args.ldy);
    for (i64 n = ptx::thread_x(); n < args.n; n += kThreads) y[n] = ptx::from_f32<Y>(ptx::float_from_bits(0x7fc00000u));
  }
}

// The step before the GEMM: experts + 1 blocks that route, and one block per row of X.
template <class D, class X, class Y, bool kBroadcast, GemmGeometry G, int kThreads>
QUERN_FN void route_and_prepare(const KernelArgs& args) {
  const FragmentActivations layout{routed_x_rows<kBroadcast>(args), args.k};
  i64 m = ptx::block_x() - (args.experts + 1);
  if (m < 0) {
    u8* workspace = static_cast<u8*>(args.workspace) + G.partials(layout.m, args.k);
    return route_rows<Y, G, kThreads>(args, workspace, static_cast<i32>(ptx::block_x()));
  }
  i64 token = kBroadcast ? m : m / args.used, slot = kBroadcast ? 0 : m % args.used;
  const X* row = static_cast<const X*>(args.x) + (token * args.x_stride2 + slot * args.ldx);
  fragment_row<D, X, G.bf16 != 0, kThreads>(args, FragmentPlace{layout}, m, row, true, rows_are_wide<X>(row, 0));
}

// The rows of one expert's tile. Where they are lies in shared memory: every stage asks for sources, and the outputs take divisions to
// find.
template <bool kBroadcast>
struct RoutedTile {
  static constexpr i64 first = 0;
  const i64* outputs;  // elements before each row of Y
  const u32* sources;
  int count;

  static QUERN_FN i64 prepared(const KernelArgs& args) { return routed_x_rows<kBroadcast>(args); }
  QUERN_FN bool has(const KernelArgs&, i64 token) const { return token < count; }
  QUERN_FN i64 source(i64 token) const { return sources[token]; }
  QUERN_FN i64 output(i64 token) const { return outputs[token]; }
  template <class Out>
  static QUERN_FN void store(const KernelArgs& args, i64 row, i64 n, f32 value) {
    static_cast<typename Out::Type*>(args.y)[row + n] = ptx::from_f32<typename Out::Type>(Out::finish(args, n, value));
  }
};

// The product of one tile of one expert: its weights, scale and bias.
template <class D, class Layout, class Out, bool kBroadcast, GemmGeometry G>
QUERN_FN void routed_gemm(const KernelArgs& all) {
  static_assert(G.split_k == 1, "partial sums are of plain products");
  using Product = Gemm<D, Layout, Out, G>;
  const RoutedTiles routed{all.m * all.used, all.experts, G.tile_m()};
  const u8* workspace = static_cast<const u8*>(all.workspace) + G.partials(routed_x_rows<kBroadcast>(all), all.k);
  const u32x4 entry = ptx::load_cached(reinterpret_cast<const u32x4*>(workspace) + ptx::block_x() % routed.tiles());
  const i64 expert = entry.x, first = entry.y, end = entry.z;
  if (first >= end) return;

  KernelArgs args = all;
  args.w = static_cast<const u8*>(all.w) + expert * all.w_stride2;
  if (all.w_scale != nullptr) args.w_scale = all.w_scale + expert;
  if (all.bias != nullptr) args.bias = static_cast<const typename Out::Type*>(all.bias) + expert * all.n;

  const u32* order = reinterpret_cast<const u32*>(workspace + routed.order()) + first;
  i64* outputs = reinterpret_cast<i64*>(ptx::shared_memory() + G.shared_bytes());
  u32* sources = reinterpret_cast<u32*>(outputs + G.tile_m());
  const int count = static_cast<int>(end - first < G.tile_m() ? end - first : G.tile_m());
  for (int i = ptx::thread_x(); i < count; i += G.threads()) {
    u32 row = ptx::load_cached(order + i), token = row / static_cast<u32>(all.used), slot = row % static_cast<u32>(all.used);
    outputs[i] = token * all.y_stride2 + slot * all.ldy;
    sources[i] = kBroadcast ? token : row;
  }
  ptx::barrier();
  Product::run_tile(args, Product::tile(args, ptx::block_x(), routed.tiles()), RoutedTile<kBroadcast>{outputs, sources, count});
}

}  // namespace quern

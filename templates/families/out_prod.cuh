// What the tensor-core out_prod kernels share: W's run decoded into shared memory, rows of X as fragments straight from global memory, and
// sums to outputs or partial sums. No copy of W or X is made: W is decoded where it is used, and X is converted in registers.
#pragma once

#include "decode/packed.cuh"
#include "families/activations.cuh"
#include "families/element.cuh"
#include "geometry/out_prod.h"

namespace quern {

// Slices that together cover a range along K without holes: 1 where a slice is 32 neighbours, 8 for TQ1_0, whose slices reach over the
// block.
template <class D>
constexpr int span_slices() {
  int span = 1;
  for (bool closed = false; !closed && span < D::kSlices; span = closed ? span : 2 * span) {
    closed = true;
    for (int s = 0; s < D::kSlices; ++s)
      for (int q = 0; q < 8; ++q) {
        int k = D::quad_k(s, q), first = s / span * span * 32;
        closed = closed && k >= first && k < first + span * 32;
      }
  }
  return span;
}

// Whether quads 2i and 2i+1 are eight neighbours, so that one 16-byte store takes both.
template <class D>
constexpr bool quads_pair() {
  for (int s = 0; s < D::kSlices; ++s)
    for (int q = 0; q < 8; q += 2)
      if (D::quad_k(s, q) % 8 != 0 || D::quad_k(s, q + 1) != D::quad_k(s, q) + 4) return false;
  return true;
}

// A run of W: rows n0 .. n0+run of columns k0 .. k0+tile_k. In each 16 rows, row 4t+i of W (i = 0..3) lies where the fragments of lane t
// have their reduction: at 2t, 2t+1, 2t+8, 2t+9. So lane t multiplies four neighbours of a row of X, one 16-byte load.
template <class D, class Layout, bool kBf16, OutProdTiles T, int kThreads>
struct WeightTile {
  using Slice = typename D::Slice;
  static constexpr WeightTileLayout layout = T.weights();
  static constexpr int kSpan = span_slices<D>();
  static constexpr int kRowSlices = T.tile_k / 32 > kSpan ? T.tile_k / 32 : kSpan;
  static constexpr int kPerThread = (T.run * kRowSlices + kThreads - 1) / kThreads;
  static constexpr bool kWhole = T.run * kRowSlices % kThreads == 0;
  static constexpr bool kInside = kRowSlices * 32 == T.tile_k;  // no slice reaches over the tile

  Slice slice[kPerThread];

  // Eight neighbouring threads take eight rows (their stores meet no bank twice), the next threads further slices of those rows.
  static QUERN_FN int row(int i) { return i % 8 + i / (8 * kRowSlices) * 8; }
  static QUERN_FN int column(int i) { return i / 8 % kRowSlices; }
  static QUERN_FN int row_of_w(int row) { return row / 16 * 16 + row % 8 / 2 * 4 + row / 8 % 2 * 2 + row % 2; }

  // Slices past the end of K or of the rows [.., end) are zeros.
  QUERN_FN void load(const KernelArgs& args, i64 n0, i64 end, i64 k0) {
    int slices = static_cast<int>(args.k / kSliceWeights), first = static_cast<int>(k0 / (32 * kSpan)) * kSpan;
    QUERN_UNROLL
    for (int u = 0; u < kPerThread; ++u) {
      int i = ptx::thread_x() + u * kThreads, s = first + column(i);
      i64 n = n0 + row_of_w(row(i));
      bool inside = s < slices && n < end && (kWhole || i < T.run * kRowSlices);
      slice[u] = inside ? load_slice<D>(RowView<D, Layout>::of(args, n), s) : Slice{};
    }
  }

  QUERN_FN void store(u8* tile, i64 k0) const {
    int first = static_cast<int>(k0 / (32 * kSpan)) * kSpan;
    QUERN_UNROLL
    for (int u = 0; u < kPerThread; ++u) {
      int i = ptx::thread_x() + u * kThreads;
      if (!kWhole && i >= T.run * kRowSlices) break;
      auto scales = PackedScales<D, kBf16>::of(slice[u]);
      QUERN_UNROLL
      for (int q = 0; q < 8; q += 2) {
        u32 low[2], high[2];
        packed_quad<D, kBf16>(low, slice[u], scales, q);
        packed_quad<D, kBf16>(high, slice[u], scales, q + 1);
        int at = quad_position<D>(first + column(i), q) - static_cast<int>(k0);
        if constexpr (quads_pair<D>()) {
          if (kInside || (at >= 0 && at < T.tile_k)) *reinterpret_cast<u32x4*>(tile + layout.at(row(i), at)) = {low[0], low[1], high[0], high[1]};
        } else {
          int next = quad_position<D>(first + column(i), q + 1) - static_cast<int>(k0);
          if (kInside || (at >= 0 && at < T.tile_k)) *reinterpret_cast<u32x2*>(tile + layout.at(row(i), at)) = {low[0], low[1]};
          if (kInside || (next >= 0 && next < T.tile_k)) *reinterpret_cast<u32x2*>(tile + layout.at(row(i), next)) = {high[0], high[1]};
        }
      }
    }
  }
};

// The part of X that lane 4g+t of a warp multiplies in one step: of rows g and g+8 of each of kFrags fragments, four neighbours along N for
// each 16 rows of W. Loaded raw, one step ahead; converted when the step comes.
template <class In, int kFrags, int kGroups>
struct InputFragments {
  using X = typename In::Type;
  u32 raw[kFrags][2][kGroups][sizeof(X)];  // four elements

  static QUERN_FN u32 bits(const X* p) {
    if constexpr (sizeof(X) == 4)
      return ptx::bits_of(ptx::load_cached(p));
    else
      return ptx::load_cached(p).bits;
  }
  // Columns [n, n+4) of row m, those from `end` on as zeros.
  static QUERN_FN void load_quad(u32 (&out)[sizeof(X)], const KernelArgs& args, i64 m, i64 n, i64 end, bool wide) {
    const X* x = static_cast<const X*>(args.x);
    if (wide) {
      const X* p = x + In::offset(args, m, n);
      if constexpr (sizeof(X) == 4) {
        u32x4 v = ptx::load_cached(reinterpret_cast<const u32x4*>(p));
        out[0] = v.x, out[1] = v.y, out[2] = v.z, out[3] = v.w;
      } else {
        u32x2 v = ptx::load_cached(reinterpret_cast<const u32x2*>(p));
        out[0] = v.x, out[1] = v.y;
      }
      return;
    }
    u32 one[4];
    QUERN_UNROLL
    for (int i = 0; i < 4; ++i) one[i] = n + i < end ? bits(x + In::offset(args, m, n + i)) : 0u;
    if constexpr (sizeof(X) == 4) {
      QUERN_UNROLL
      for (int i = 0; i < 4; ++i) out[i] = one[i];
    } else {
      out[0] = one[0] | one[1] << 16, out[1] = one[2] | one[3] << 16;
    }
  }

  // Rows past the end read the last one and are not written. `wide`: rows of X can be read four elements at a time.
  QUERN_FN void load(const KernelArgs& args, i64 m0, i64 n0, i64 end, bool wide) {
    wide = wide && n0 + 16 * kGroups <= end;
    QUERN_UNROLL
    for (int f = 0; f < kFrags; ++f) QUERN_UNROLL
    for (int h = 0; h < 2; ++h) {
      i64 m = m0 + 16 * f + 8 * h + ptx::lane() / 4;
      if (m >= args.m) m = args.m - 1;
      QUERN_UNROLL
      for (int j = 0; j < kGroups; ++j) load_quad(raw[f][h][j], args, m, n0 + 16 * j + ptx::lane() % 4 * 4, end, wide);
    }
  }

  template <bool kBf16>
  static QUERN_FN void convert(u32 (&pair)[2], const u32 (&raw)[sizeof(X)], f32 inverse) {
    f32 x[4];
    QUERN_UNROLL
    for (int i = 0; i < 4; ++i) {
      if constexpr (sizeof(X) == 4)
        x[i] = ptx::float_from_bits(raw[i]);
      else
        x[i] = ptx::to_f32(X{static_cast<u16>(raw[i / 2] >> (16 * (i % 2)))});
    }
    using P = Packed<kBf16>;
    QUERN_UNROLL
    for (int i = 0; i < 2; ++i)
      pair[i] = kBf16 ? P::pack(x[2 * i], x[2 * i + 1]) : P::pack(ptx::mul(x[2 * i], inverse), ptx::mul(x[2 * i + 1], inverse));
  }
  // The A operand of the j-th 16 rows of W; `inverse` per row of X, for f16 operands.
  template <bool kBf16>
  QUERN_FN void operand(u32 (&a)[4], int f, int j, const f32 (&inverse)[kFrags][2]) const {
    u32 top[2], bottom[2];
    convert<kBf16>(top, raw[f][0][j], inverse[f][0]);
    convert<kBf16>(bottom, raw[f][1][j], inverse[f][1]);
    a[0] = top[0], a[1] = bottom[0], a[2] = top[1], a[3] = bottom[1];
  }
};

// Per lane the scales of its rows of X: a power of two for f16 operands, else one.
template <bool kBf16, int kFrags>
struct InputScales {
  f32 scale[kFrags][2], inverse[kFrags][2];

  QUERN_FN void load(const KernelArgs& args, i64 m0) {
    QUERN_UNROLL
    for (int f = 0; f < kFrags; ++f) QUERN_UNROLL
    for (int h = 0; h < 2; ++h) {
      scale[f][h] = inverse[f][h] = 1.0f;
      if constexpr (!kBf16) {
        i64 m = m0 + 16 * f + 8 * h + ptx::lane() / 4;
        scale[f][h] = m < args.m ? ptx::load_cached(static_cast<const f32*>(args.workspace) + m) : 1.0f;
        inverse[f][h] = ptx::div(1.0f, scale[f][h]);
      }
    }
  }
};

// Which part of the output and of N a block has.
struct OutProdPlace {
  i64 m0, k0;
  i64 begin, end;  // rows of W
  int split;
};
template <OutProdTiles T>
QUERN_FN OutProdPlace out_prod_place(const KernelArgs& args) {
  i64 index = ptx::block_x(), tiles_k = T.tiles_k(args.k), tiles_m = T.tiles_m(args.m);
  int split = static_cast<int>(index / (tiles_k * tiles_m));
  i64 steps = ceil_div(ceil_div(args.n, T.run), T.split);
  i64 begin = split * steps * T.run, end = begin + steps * T.run;
  return {index / tiles_k % tiles_m * T.tile_m, index % tiles_k * T.tile_k, begin, end < args.n ? end : args.n, split};
}

// Fragments [kFrags x kColumns] of 16 tokens by 8 columns to Y, or to the partial sums of the block's split.
template <class Out, int kSplit, bool kScaled, int kFrags, int kColumns>
QUERN_FN void store_out_prod(const f32 (&c)[kFrags][kColumns][4], const f32 (&scale)[kFrags][2], const KernelArgs& args,
                             const OutProdPlace& at, i64 m0, i64 k0) {
  constexpr OutProdWorkspace kNone{0, 0, kSplit, kScaled};
  OutProdWorkspace workspace = kNone;
  workspace.m = args.m, workspace.k = args.k;
  f32* partial = reinterpret_cast<f32*>(static_cast<u8*>(args.workspace) + workspace.partials()) + at.split * args.m * args.k;
  bool pairs = Out::pairs_are_wide(args);
  QUERN_UNROLL
  for (int f = 0; f < kFrags; ++f) QUERN_UNROLL
  for (int h = 0; h < 2; ++h) {
    i64 m = m0 + 16 * f + 8 * h + ptx::lane() / 4;
    if (m >= args.m) continue;
    QUERN_UNROLL
    for (int j = 0; j < kColumns; ++j) {
      i64 k = k0 + 8 * j + ptx::lane() % 4 * 2;
      if (k >= args.k) continue;  // K is even: a pair is inside or outside
      f32 low = ptx::mul(c[f][j][2 * h], scale[f][h]), high = ptx::mul(c[f][j][2 * h + 1], scale[f][h]);
      if constexpr (kSplit > 1)
        *reinterpret_cast<u32x2*>(partial + m * args.k + k) = {ptx::bits_of(low), ptx::bits_of(high)};
      else
        Out::store_pair(args, m, k, low, high, pairs);
    }
  }
}

// The scale of each row of X for f16 operands, into the workspace. A block has one row, or 32 rows of a transposed X, a lane each.
template <class In, int kThreads>
QUERN_FN void input_scales(const KernelArgs& args) {
  ptx::allow_next();
  constexpr int kRows = In::transposed ? kWarpLanes : 1, kParts = kThreads / kRows;
  int row = ptx::thread_x() % kRows, part = ptx::thread_x() / kRows;
  i64 m = ptx::block_x() * kRows + row;
  f32 absmax = 0;
  if (m < args.m)
    for (i64 n = part; n < args.n; n += kParts) {
      f32 v = In::load(args, m, n);
      v = v < 0 ? -v : v;
      absmax = v > absmax ? v : absmax;
    }
  f32* shared = reinterpret_cast<f32*>(ptx::shared_memory());
  shared[ptx::thread_x()] = absmax;
  for (int half = kParts / 2; half > 0; half /= 2) {
    ptx::barrier();
    if (part < half) shared[ptx::thread_x()] = absmax = absmax > shared[ptx::thread_x() + half * kRows] ? absmax : shared[ptx::thread_x() + half * kRows];
  }
  if (part == 0 && m < args.m) static_cast<f32*>(args.workspace)[m] = fragment_scale(absmax);
}

// Adds the partial sums of the splits in their order. One thread per output.
template <class Out, int kSplit, bool kScaled, int kThreads>
QUERN_FN void sum_out_prod(const KernelArgs& args) {
  ptx::wait_previous();
  i64 index = ptx::block_x() * kThreads + ptx::thread_x(), outputs = args.m * args.k;
  if (index >= outputs) return;
  OutProdWorkspace workspace{args.m, args.k, kSplit, kScaled};
  const f32* partial = reinterpret_cast<const f32*>(static_cast<const u8*>(args.workspace) + workspace.partials());
  f32 sum = 0;
  QUERN_UNROLL
  for (int s = 0; s < kSplit; ++s) sum = ptx::add(sum, ptx::load_cached(partial + s * outputs + index));
  Out::store(args, index / args.k, index % args.k, sum);
}

}  // namespace quern

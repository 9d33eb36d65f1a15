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

// Whether quad q of every slice lies as far behind quad 0 as in slice 0, in bits that quad 0's place leaves clear: its place in swizzled
// shared memory is then quad 0's XOR a constant.
template <class D>
constexpr bool quads_alike() {
  for (int s = 0; s < D::kSlices; ++s)
    for (int q = 0; q < 8; ++q) {
      int behind = D::quad_k(0, q) - D::quad_k(0, 0);
      if (behind < 0 || D::quad_k(s, q) != D::quad_k(s, 0) + behind || (D::quad_k(s, 0) & behind) != 0) return false;
    }
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

  using View = RowView<D, Layout>;
  Slice slice[kPerThread];
  // A thread's slices lie kRowStep rows apart, in the same columns. Whole planar tiles apart, they share a view.
  static constexpr int kRowStep = kThreads / kRowSlices;
  static constexpr int kViews = kRowStep % planar::kTileRows == 0 ? 1 : kPerThread;
  View view[kViews];  // the rows of the next whole run to load
  // Where a thread's slices all lie alike in the tile, one address serves every store: Q8_0 955 us at M=2048; 1061 in a build with one for
  // each.
  static constexpr bool kAlike = quads_alike<D>() && kWhole && kInside && kRowStep % 8 == 0 && kThreads % (8 * kRowSlices) == 0;
  int place;  // of the first quad of the first slice
  int thread;

  // Neighbouring threads take kPhaseRows rows, the next threads further slices of those rows. The stores of eight threads then meet no bank
  // twice; with four rows a warp's load of eight slices reads half as many lines as with eight. Four rows need slices 32 columns apart.
  // In each row the slices begin elsewhere: in memory the rows lie multiples of 128 bytes apart, and eight threads that read the same
  // columns of them took L1 a cycle per row: 16 a load by ncu.
  static constexpr int kPhaseRows = D::kSlices == 1 || D::quad_k(D::kSlices > 1 ? 1 : 0, 0) == D::quad_k(0, 0) + 32 ? 4 : 8;
  static constexpr int kSkew = 8 / kPhaseRows;
  // Slices of 32 bytes are loaded in two halves of 16. Each two rows begin 64 bytes behind the two before them; of the two, which then
  // meet in the banks of one half, the odd row begins with the other half, and its quads are stored in the other half's place. It has to be
  // the odd row: the swizzle sets rows r and r+2 apart by just such a half, so that stores of theirs would meet (by ncu 8 cycles a store in
  // place of 4; Q8_0, M=2048: 938 us became 897, both with `hold`).
  static constexpr bool kHalves = kAlike && kPhaseRows == 4 && View::template alignment<0>() == 16 && requires(const View& v) {
    D::load_halves(v, 0, 0);
  };
  static QUERN_FN int row(int i) { return i % kPhaseRows + i / (kPhaseRows * kRowSlices) * kPhaseRows; }
  static QUERN_FN int column(int i) {
    int row = i % kPhaseRows;
    return (i / kPhaseRows + (kHalves ? row / 2 * 2 : row * kSkew)) % kRowSlices;
  }
  static QUERN_FN int row_of_w(int row) { return row / 16 * 16 + row % 8 / 2 * 4 + row / 8 % 2 * 2 + row % 2; }

  // Where thread i, of those that are kAlike, stores quad 0 of its first slice, and with which byte of a slice it begins.
  static QUERN_FN int place_of(int i, int first_slice, i64 k0) {
    int at = layout.at(row(i), quad_position<D>(first_slice + column(i), 0) - static_cast<int>(k0));
    return kHalves ? at ^ 2 * first_byte(i) : at;
  }
  static QUERN_FN int first_byte(int i) { return kHalves ? i % 2 * 16 : 0; }

  // The place of quad q of the slice whose quad 0 is at `place`.
  static QUERN_FN int behind(int place, int q) {
    int columns = D::quad_k(0, q) - D::quad_k(0, 0);
    return (place ^ (columns % 64 * 2)) + columns / 64 * layout.chunk_bytes();
  }

  // To load runs from n0 on. The thread's number comes through a shuffle, so that the compiler keeps it and does not read its special
  // register anew in every step.
  QUERN_FN WeightTile(const KernelArgs& args, int n0, i64 k0) {
    thread = ptx::shuffle_xor(ptx::thread_x(), 0);
    place = kAlike ? place_of(thread, first_slice(k0), k0) : 0;
    QUERN_UNROLL
    for (int u = 0; u < kViews; ++u) {
      int n = n0 + row_of_w(row(thread + u * kThreads));
      view[u] = View::of(args, n < args.n ? n : 0);  // past the end: never loaded from
    }
  }

  // Loads the next run, of which every row is inside. Slices past the end of K repeat the last one: their columns are not written. Without
  // a condition a load goes straight to its registers; where paths meet behind it, the compiler copies them, and waits.
  QUERN_FN void load_whole(int u, const KernelArgs& args, i64 k0) {
    if constexpr (kViews == 1) {
      slice[u] = load_from(view[0].below(args, u * kRowStep), slice_number(u, args, k0));
      if (u == kPerThread - 1) view[0] = view[0].below(args, T.run);
    } else {
      slice[u] = load_from(view[u], slice_number(u, args, k0));
      view[u] = view[u].below(args, T.run);
    }
  }
  // Loads the run at n0, its rows from `end` on as zeros.
  QUERN_FN void load_guarded(int u, const KernelArgs& args, int n0, int end, i64 k0) {
    int n = n0 + row_of_w(row(thread + u * kThreads));
    bool inside = n < end && (kWhole || thread + u * kThreads < T.run * kRowSlices);
    slice[u] = inside ? load_from(View::of(args, n), slice_number(u, args, k0)) : Slice{};
  }
  QUERN_FN void load(const KernelArgs& args, int n0, int end, i64 k0) {
    QUERN_UNROLL
    for (int u = 0; u < kPerThread; ++u) load_guarded(u, args, n0, end, k0);
  }

  // Decodes two quads of a slice: piece 4*u + i holds quads 2i and 2i+1 of slice u.
  static constexpr int kPieces = 4 * kPerThread;
  QUERN_FN void store_piece(int piece, u8* tile, i64 k0) const {
    int u = piece / 4, q = piece % 4 * 2, i = thread + u * kThreads;
    if (!kWhole && i >= T.run * kRowSlices) return;
    auto scales = PackedScales<D, kBf16>::of(slice[u]);
    u32 low[2], high[2];
    packed_quad<D, kBf16>(low, slice[u], scales, q);
    packed_quad<D, kBf16>(high, slice[u], scales, q + 1);
    if constexpr (kAlike) {
      u8* row = tile + u * kRowStep * 128;
      if constexpr (quads_pair<D>()) {
        *reinterpret_cast<u32x4*>(row + behind(place, q)) = {low[0], low[1], high[0], high[1]};
      } else {
        *reinterpret_cast<u32x2*>(row + behind(place, q)) = {low[0], low[1]};
        *reinterpret_cast<u32x2*>(row + behind(place, q + 1)) = {high[0], high[1]};
      }
      return;
    }
    int at = quad_position<D>(first_slice(k0) + column(i), q) - static_cast<int>(k0);
    if constexpr (quads_pair<D>()) {
      if (is_inside(at)) *reinterpret_cast<u32x4*>(tile + layout.at(row(i), at)) = {low[0], low[1], high[0], high[1]};
    } else {
      int next = quad_position<D>(first_slice(k0) + column(i), q + 1) - static_cast<int>(k0);
      if (is_inside(at)) *reinterpret_cast<u32x2*>(tile + layout.at(row(i), at)) = {low[0], low[1]};
      if (is_inside(next)) *reinterpret_cast<u32x2*>(tile + layout.at(row(i), next)) = {high[0], high[1]};
    }
  }
  QUERN_FN void store(u8* tile, i64 k0) const {
    QUERN_UNROLL
    for (int piece = 0; piece < kPieces; ++piece) store_piece(piece, tile, k0);
  }
  // Part `part` of `parts` of store(); each slice's registers are taken at once by the load of a run ahead, the one at n0, which then has a
  // whole step to arrive. With kWholeRun it is the next of the whole runs.
  template <bool kWholeRun>
  QUERN_FN void store_part(int part, int parts, u8* tile, const KernelArgs& args, int n0, int end, i64 k0) {
    QUERN_UNROLL
    for (int piece = kPieces * part / parts; piece < kPieces * (part + 1) / parts; ++piece) {
      store_piece(piece, tile, k0);
      if (piece % 4 != 3) continue;
      if constexpr (kWholeRun && kWhole)
        load_whole(piece / 4, args, k0);
      else
        load_guarded(piece / 4, args, n0, end, k0);
    }
  }

  // Starts bringing the widest field of the run at n0 into L2, a line per thread.
  QUERN_FN void prefetch(const KernelArgs& args, int n0, i64 k0) const {
    constexpr int kBytes = T.tile_k * D::kFields.field[0].bytes / D::kBlock, kLines = kBytes > 128 ? kBytes / 128 : 1;
    int row = thread / kLines;
    if (row < T.run)
      ptx::prefetch_l2(View::of(args, n0 + row).template field<0>(first_slice(k0) / D::kSlices * block_step()) + thread % kLines * 128);
  }

 private:
  QUERN_FN Slice load_from(const View& row, int s) const {
    if constexpr (kHalves)
      return D::load_halves(row, s, first_byte(thread));
    else
      return load_slice<D>(row, s);
  }
  // Fields per block of slices: a dense type's virtual block has as many as elements.
  static constexpr int block_step() {
    if constexpr (D::kDense)
      return D::kVirtualBlock;
    else
      return 1;
  }
  QUERN_FN int slice_number(int u, const KernelArgs& args, i64 k0) const {
    int slices = static_cast<int>(args.k / kSliceWeights), s = first_slice(k0) + column(thread + u * kThreads);
    return s < slices ? s : slices - 1;
  }
  static QUERN_FN int first_slice(i64 k0) { return static_cast<int>(k0 / (32 * kSpan)) * kSpan; }
  static QUERN_FN bool is_inside(int at) { return kInside || (at >= 0 && at < T.tile_k); }
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
  // Keeps the conversions behind the barrier that returned `zero`, as hold_until() does: one of the two elements that are packed together
  // will do.
  QUERN_FN void hold(u32 zero) {
    QUERN_UNROLL
    for (int f = 0; f < kFrags; ++f) QUERN_UNROLL
    for (int h = 0; h < 2; ++h) QUERN_UNROLL
    for (int j = 0; j < kGroups; ++j) {
      raw[f][h][j][0] ^= zero;
      raw[f][h][j][sizeof(X) / 2] ^= zero;
    }
  }
  // Columns [n, n+4) of row m, those from `end` on as zeros.
  static QUERN_FN void load_quad(u32 (&out)[sizeof(X)], const KernelArgs& args, i64 m, int n, int end, bool wide) {
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

  // Rows past the end read the last one and are not written. kWide: rows of X can be read four elements at a time, and 16*kGroups rows of W
  // are left.
  template <bool kWide>
  QUERN_FN void load_group(int j, const KernelArgs& args, i64 m0, int n0, int end) {
    QUERN_UNROLL
    for (int f = 0; f < kFrags; ++f) QUERN_UNROLL
    for (int h = 0; h < 2; ++h) {
      i64 m = m0 + 16 * f + 8 * h + ptx::lane() / 4;
      if (m >= args.m) m = args.m - 1;
      load_quad(raw[f][h][j], args, m, n0 + 16 * j + ptx::lane() % 4 * 4, end, kWide);
    }
  }
  // Starts bringing columns [n0, n0 + 16*kGroups) of kRows rows of X into L2, a line per thread.
  template <int kRows, int kThreads>
  static QUERN_FN void prefetch(const KernelArgs& args, int thread, i64 m0, int n0) {
    constexpr int kLine = 128 / static_cast<int>(sizeof(X)), kLines = (16 * kGroups + kLine - 1) / kLine;
    static_assert(kRows * kLines <= kThreads);
    i64 m = m0 + thread / kLines;
    if (m < args.m) ptx::prefetch_l2(static_cast<const X*>(args.x) + In::offset(args, m, n0 + thread % kLines * kLine));
  }
  QUERN_FN void load(const KernelArgs& args, i64 m0, int n0, int end, bool wide) {
    if (wide && n0 + 16 * kGroups <= end) {
      QUERN_UNROLL
      for (int j = 0; j < kGroups; ++j) load_group<true>(j, args, m0, n0, end);
    } else {
      QUERN_UNROLL
      for (int j = 0; j < kGroups; ++j) load_group<false>(j, args, m0, n0, end);
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
  int begin, end;  // rows of W, at most 2^30 by the families' rule
  i64 partial;     // its tile among all partial sums, or -1: the whole of N
};
template <OutProdTiles T>
QUERN_FN OutProdPlace out_prod_place(const KernelArgs& args) {
  i64 index = ptx::block_x(), tiles_k = T.tiles_k(args.k), whole = T.whole(args.m, args.k), split_tiles = T.tiles(args.m, args.k) - whole;
  bool part = T.split > 1 && index >= whole;
  i64 partial = part ? index - whole : -1, tile = part ? whole + partial % split_tiles : index;
  int split = part ? static_cast<int>(partial / split_tiles) : 0;
  int n = static_cast<int>(args.n), steps = static_cast<int>(ceil_div(ceil_div(n, T.run), part ? T.split : 1));
  i64 begin = static_cast<i64>(split) * steps * T.run, end = begin + static_cast<i64>(steps) * T.run;
  return {tile / tiles_k * T.tile_m, tile % tiles_k * T.tile_k, static_cast<int>(begin < n ? begin : n),
          static_cast<int>(end < n ? end : n), partial};
}

// Fragments [kFrags x kColumns] of 16 tokens by 8 columns, from token m0 and column k0 on, to Y or to the block's partial sums.
template <class Out, OutProdTiles T, bool kScaled, int kFrags, int kColumns>
QUERN_FN void store_out_prod(const f32 (&c)[kFrags][kColumns][4], const f32 (&scale)[kFrags][2], const KernelArgs& args,
                             const OutProdPlace& at, i64 m0, i64 k0) {
  OutProdWorkspace workspace{T, args.m, args.k, kScaled};
  i64 slot = T.split > 1 && at.partial >= 0 ? at.partial : 0;  // without partial sums there may be no workspace either
  f32* partial = reinterpret_cast<f32*>(static_cast<u8*>(args.workspace) + workspace.partials()) + slot * (T.tile_m * T.tile_k);
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
      if (T.split > 1 && at.partial >= 0)
        *reinterpret_cast<u32x2*>(partial + (m - at.m0) * T.tile_k + (k - at.k0)) = {ptx::bits_of(low), ptx::bits_of(high)};
      else
        Out::store_pair(args, m, k, low, high, pairs);
    }
  }
}

// Adds the partial sums of the split tiles, in the order of their splits. One thread per output.
template <class Out, OutProdTiles T, bool kScaled, int kThreads>
QUERN_FN void sum_out_prod(const KernelArgs& args) {
  OutProdWorkspace workspace{T, args.m, args.k, kScaled};
  i64 index = ptx::block_x() * kThreads + ptx::thread_x(), outputs = workspace.outputs();
  if (index >= outputs) return;
  constexpr int kOutputs = T.tile_m * T.tile_k;
  int within = static_cast<int>(index % kOutputs);
  i64 tile = T.whole(args.m, args.k) + index / kOutputs, tiles_k = T.tiles_k(args.k);
  i64 m = tile / tiles_k * T.tile_m + within / T.tile_k, k = tile % tiles_k * T.tile_k + within % T.tile_k;
  if (m >= args.m || k >= args.k) return;
  const f32* partial = reinterpret_cast<const f32*>(static_cast<const u8*>(args.workspace) + workspace.partials()) + index;
  f32 sum = 0;
  QUERN_UNROLL
  for (int s = 0; s < T.split; ++s) sum = ptx::add(sum, ptx::load_cached(partial + s * outputs));
  Out::store(args, m, k, sum);
}

// The scale of each row of X for f16 operands, into the workspace. A block has one row, or 32 rows of a transposed X, a lane each.
template <class In, int kThreads>
QUERN_FN void input_scales(const KernelArgs& args) {
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
    if (part < half)
      shared[ptx::thread_x()] = absmax = absmax > shared[ptx::thread_x() + half * kRows] ? absmax : shared[ptx::thread_x() + half * kRows];
  }
  if (part == 0 && m < args.m) static_cast<f32*>(args.workspace)[m] = fragment_scale(absmax);
}

}  // namespace quern

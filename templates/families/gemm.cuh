// Tensor-core GEMM (mma.sync m16n8k16): weights are the 16-row operand, loaded straight from their layout into registers and decoded there,
// one slice per lane of a fragment row; activations come prepared in fragment order (activations.cuh) through cp.async stages.
// K is walked in runs of 128: lane t of a row holds slice 4*run + t, and step s of the run multiplies quad s of the four lanes.
#pragma once

#include "decode/packed.cuh"
#include "families/element.cuh"
#include "families/splits.cuh"
#include "geometry/gemm.h"

namespace quern {

// Where a block's tokens are: those of mul_mat follow one another in X and in Y. RoutedTile, of mul_mat_id, is in route.cuh.
struct PlainRows {
  i64 first;  // the number of the block's first token

  // How many rows of prepared activations there are in the workspace.
  static QUERN_FN i64 prepared(const KernelArgs& args) { return args.m; }
  QUERN_FN bool has(const KernelArgs& args, i64 m) const { return m < args.m; }
  // A token's row of prepared activations.
  QUERN_FN i64 source(i64 m) const { return m; }
  // Its row of Y, for store().
  QUERN_FN i64 output(i64 m) const { return m; }
  template <class Out>
  static QUERN_FN void store(const KernelArgs& args, i64 row, i64 n, f32 value) {
    Out::store(args, row, n, value);
  }
};

template <class D, class Layout, class Out, GemmGeometry G>
struct Gemm {
  static constexpr bool kBf16 = G.bf16 != 0;
  static constexpr int kRowBytes = G.kRun * 2;                // one token's run in shared memory
  static constexpr int kGroupBytes = G.tile_m() * kRowBytes;  // one run of all tokens
  using Slice = typename D::Slice;

  struct Tile {
    i64 n0, m0;      // first weight row of the block, and its first token where tiles follow one another
    int begin, end;  // steps along K
    int split;
    int warp_n, warp_m, warp_k;
  };
  struct Weights {
    Slice slice[G.frags_n][2];  // rows g and g+8 of each fragment
  };

  // Token tiles are the innermost part of a block's number: W is reused in L2.
  static QUERN_FN Tile tile(const KernelArgs& args, i64 index, i64 tiles_m) {
    int steps = static_cast<int>(G.steps(args.k));
    i64 tile_m = index % tiles_m, tile_n = index / (tiles_m * G.split_k);
    int split = static_cast<int>(index / tiles_m % G.split_k);
    int per_split = (steps + G.split_k - 1) / G.split_k, end = (split + 1) * per_split;
    int warp = ptx::warp();
    return {
        tile_n * G.tile_n(),          tile_m * G.tile_m(),           split * per_split, end < steps ? end : steps, split, warp % G.warps_n,
        warp / G.warps_n % G.warps_m, warp / (G.warps_n * G.warps_m)};
  }

  static QUERN_FN void load_weights(Weights& w, const KernelArgs& args, const Tile& t, int step) {
    int slices = static_cast<int>(args.k / kSliceWeights);
    int s = (step * G.warps_k + t.warp_k) * 4 + ptx::lane() % 4;
    QUERN_UNROLL
    for (int f = 0; f < G.frags_n; ++f) QUERN_UNROLL
    for (int h = 0; h < 2; ++h) {
      i64 n = t.n0 + (t.warp_n * G.frags_n + f) * 16 + ptx::lane() / 4 + 8 * h;
      if (n >= args.n) n = args.n - 1;  // rows past the end read the last one and are not written
      w.slice[f][h] = s < slices ? load_slice<D>(RowView<D, Layout>::of(args, n), s) : Slice{};
    }
  }

  // 16-byte pieces of a token's run are XOR-ed with the token's low three bits: the eight rows of an ldmatrix hit all 32 banks.
  template <class Rows>
  static QUERN_FN void stage_activations(u8* stage, const KernelArgs& args, const Rows& rows, int step) {
    FragmentActivations layout{Rows::prepared(args), args.k};
    constexpr int kPieces = G.warps_k * G.tile_m() * (kRowBytes / 16);
    QUERN_UNROLL
    for (int base = 0; base < kPieces; base += G.threads()) {
      int i = base + ptx::thread_x();
      if (kPieces % G.threads() != 0 && i >= kPieces) break;
      int piece = i % (kRowBytes / 16), token = i / (kRowBytes / 16) % G.tile_m(), group = i / (kRowBytes / 16 * G.tile_m());
      int run = step * G.warps_k + group;
      i64 m = rows.first + token;
      bool inside = rows.has(args, m) && run * G.kRun < layout.k_padded();
      const u8* from =
          static_cast<const u8*>(args.workspace) + (inside ? (rows.source(m) * layout.k_padded() + run * G.kRun) * 2 + piece * 16 : 0);
      ptx::cp_async_zero16(stage + group * kGroupBytes + token * kRowBytes + ((piece ^ (token & 7)) * 16), from, inside ? 16 : 0);
    }
  }

  static QUERN_FN void mma(f32 (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    if constexpr (G.bf16)
      ptx::mma_bf16(c, a, b0, b1);
    else
      ptx::mma_f16(c, a, b0, b1);
  }

  static QUERN_FN void multiply(f32 (&c)[G.frags_n][G.frags_m][4], const Weights& w, const u8* stage, const Tile& t) {
    const u8* tokens = stage + t.warp_k * kGroupBytes + t.warp_m * G.frags_m * 8 * kRowBytes;
    PackedScales<D, kBf16> scales[G.frags_n][2];
    QUERN_UNROLL
    for (int f = 0; f < G.frags_n; ++f) QUERN_UNROLL
    for (int h = 0; h < 2; ++h) scales[f][h] = PackedScales<D, kBf16>::of(w.slice[f][h]);
    int lane = ptx::lane();
    QUERN_UNROLL
    for (int step = 0; step < 8; ++step) {
      u32 a[G.frags_n][4];
      QUERN_UNROLL
      for (int f = 0; f < G.frags_n; ++f) {
        u32 top[2], bottom[2];
        packed_quad<D, kBf16>(top, w.slice[f][0], scales[f][0], step);
        packed_quad<D, kBf16>(bottom, w.slice[f][1], scales[f][1], step);
        a[f][0] = top[0], a[f][1] = bottom[0], a[f][2] = top[1], a[f][3] = bottom[1];
      }
      // Lane i addresses row i%8 of matrix i/8: tokens 0-7 and 8-15, each with the step's two 16-byte pieces. With one fragment of
      // tokens the upper half of the lanes repeats the lower.
      int token = G.frags_m == 1 ? lane % 8 : lane / 16 * 8 + lane % 8;
      int piece = 2 * step + lane / 8 % 2;
      QUERN_UNROLL
      for (int pair = 0; pair < (G.frags_m + 1) / 2; ++pair) {
        u32 b[4];
        int row = pair * 16 + token;
        ptx::ldmatrix_x4(b, tokens + row * kRowBytes + ((piece ^ (row & 7)) * 16));
        QUERN_UNROLL
        for (int f = 0; f < G.frags_n; ++f) {
          mma(c[f][2 * pair], a[f], b[0], b[1]);
          if constexpr (G.frags_m > 1) mma(c[f][2 * pair + 1], a[f], b[2], b[3]);
        }
      }
    }
  }

  // Sums the fragments of the warps that share an output, into the first of them.
  static QUERN_FN void reduce_warps(f32 (&c)[G.frags_n][G.frags_m][4], const Tile& t) {
    f32* flat = &c[0][0][0];
    f32* shared = reinterpret_cast<f32*>(ptx::shared_memory()) + (ptx::warp() % (G.warps_n * G.warps_m)) * kWarpLanes * G.accumulators();
    for (int source = 1; source < G.warps_k; ++source) {
      ptx::barrier();
      if (t.warp_k == source) QUERN_UNROLL
      for (int i = 0; i < G.accumulators(); ++i) shared[i * kWarpLanes + ptx::lane()] = flat[i];
      ptx::barrier();
      if (t.warp_k == 0) QUERN_UNROLL
      for (int i = 0; i < G.accumulators(); ++i) flat[i] = ptx::add(flat[i], shared[i * kWarpLanes + ptx::lane()]);
    }
  }

  template <class Rows>
  static QUERN_FN void store(f32 (&c)[G.frags_n][G.frags_m][4], const KernelArgs& args, const Tile& t, const Rows& rows) {
    FragmentActivations layout{Rows::prepared(args), args.k};
    const f32* scales = reinterpret_cast<const f32*>(static_cast<const u8*>(args.workspace) + layout.scales());
    f32* partial =
        reinterpret_cast<f32*>(static_cast<u8*>(args.workspace) + G.partials(args.m, args.k)) + static_cast<i64>(t.split) * args.m * args.n;
    QUERN_UNROLL
    for (int j = 0; j < G.frags_m; ++j) QUERN_UNROLL
    for (int e = 0; e < 2; ++e) {
      i64 m = rows.first + (t.warp_m * G.frags_m + j) * 8 + ptx::lane() % 4 * 2 + e;
      if (!rows.has(args, m)) continue;
      f32 scale = G.bf16 ? 1.0f : ptx::load_cached(scales + rows.source(m));
      i64 row = rows.output(m);
      QUERN_UNROLL
      for (int f = 0; f < G.frags_n; ++f) QUERN_UNROLL
      for (int h = 0; h < 2; ++h) {
        i64 n = t.n0 + (t.warp_n * G.frags_n + f) * 16 + ptx::lane() / 4 + 8 * h;
        if (n >= args.n) continue;
        f32 value = ptx::mul(c[f][j][2 * h + e], scale);
        if constexpr (G.split_k > 1)
          partial[m * args.n + n] = value;
        else
          Rows::template store<Out>(args, row, n, value);
      }
    }
  }

  static QUERN_FN void run(const KernelArgs& args) {
    i64 index = ptx::block_x();
    Tile t = tile(args, index, G.tiles_m(args.m));
    run_tile(args, t, PlainRows{t.m0});
  }

  template <class Rows>
  static QUERN_FN void run_tile(const KernelArgs& args, const Tile& t, const Rows& rows) {
    u8* stages = ptx::shared_memory();
    f32 c[G.frags_n][G.frags_m][4] = {};

    Weights next;
    if (t.begin < t.end) load_weights(next, args, t, t.begin);
    ptx::wait_previous();
    ptx::allow_next();
    QUERN_UNROLL
    for (int i = 0; i < G.stages - 1; ++i) {
      if (t.begin + i < t.end) stage_activations(stages + i * G.stage_bytes(), args, rows, t.begin + i);
      ptx::cp_async_commit();
    }
    int read = 0, write = G.stages - 1;
    for (int step = t.begin; step < t.end; ++step) {
      ptx::cp_async_wait<G.stages - 2>();
      ptx::barrier();
      int ahead = step + G.stages - 1;
      if (ahead < t.end) stage_activations(stages + write * G.stage_bytes(), args, rows, ahead);
      ptx::cp_async_commit();
      Weights now = next;
      if (step + 1 < t.end) load_weights(next, args, t, step + 1);
      multiply(c, now, stages + read * G.stage_bytes(), t);
      read = read + 1 == G.stages ? 0 : read + 1;
      write = write + 1 == G.stages ? 0 : write + 1;
    }
    if constexpr (G.warps_k > 1) {
      ptx::cp_async_wait<0>();
      reduce_warps(c, t);
      if (t.warp_k != 0) return;
    }
    store(c, args, t, rows);
  }
};

}  // namespace quern

// Hopper GEMM: a warpgroup decodes 64 rows of W into registers and multiplies them with every token of the tile by wgmma, which reads the
// tokens from shared memory by itself. While the tensor cores work on one run of K, the warps decode the next run's weights and copy
// further tokens.
#pragma once

#include "decode/packed.cuh"
#include "families/element.cuh"
#include "geometry/wgmma.h"
#include "ptx/wgmma.cuh"

namespace quern {

template <class D, class Layout, class Out, WgmmaGeometry G>
struct WgmmaGemm {
  static constexpr bool kBf16 = G.bf16 != 0;
  static constexpr int kFrags = G.tile_m / 8;
  using Slice = typename D::Slice;
  using View = RowView<D, Layout>;

  struct Operand {
    u32 a[8][4];  // the A fragments of the eight steps of a run
  };

  static QUERN_FN void load(Slice (&w)[2], const View (&views)[2], int run, int slices) {
    int s = run * 4 + ptx::lane() % 4;
    QUERN_UNROLL
    for (int h = 0; h < 2; ++h) w[h] = s < slices ? load_slice<D>(views[h], s) : Slice{};
  }

  static QUERN_FN void decode(Operand& operand, const Slice (&w)[2]) {
    QUERN_UNROLL
    for (int h = 0; h < 2; ++h) {
      auto scales = PackedScales<D, kBf16>::of(w[h]);
      QUERN_UNROLL
      for (int step = 0; step < 8; ++step) {
        u32 pair[2];
        packed_quad<D, kBf16>(pair, w[h], scales, step);
        operand.a[step][h] = pair[0], operand.a[step][2 + h] = pair[1];
      }
    }
  }

  // A run of the tile's tokens is contiguous in the workspace.
  static QUERN_FN void stage_activations(u8* stage, const u8* tile, int run) {
    constexpr int kPieces = G.stage_bytes() / 16;
    const u8* from = tile + static_cast<i64>(run) * G.stage_bytes();
    QUERN_UNROLL
    for (int i = 0; i < kPieces; i += G.threads()) ptx::cp_async16(stage + (i + ptx::thread_x()) * 16, from + (i + ptx::thread_x()) * 16);
  }

  static QUERN_FN void multiply(f32 (&c)[kFrags][4], const Operand& operand, const u8* stage) {
    ptx::wgmma_fence();
    QUERN_UNROLL
    for (int step = 0; step < 8; ++step)
      ptx::Wgmma<kBf16, kFrags>::multiply(c, operand.a[step], stage + step / 4 * (G.tile_m * 128) + step % 4 * 32);
    ptx::wgmma_commit();
  }

  static QUERN_FN void store(f32 (&c)[kFrags][4], const KernelArgs& args, const f32* scales, i64 m0, i64 n0) {
    QUERN_UNROLL
    for (int j = 0; j < kFrags; ++j) QUERN_UNROLL
    for (int e = 0; e < 2; ++e) {
      i64 m = m0 + j * 8 + ptx::lane() % 4 * 2 + e;
      if (m >= args.m) continue;
      f32 scale = kBf16 ? 1.0f : ptx::load_cached(scales + m);
      QUERN_UNROLL
      for (int h = 0; h < 2; ++h) {
        i64 n = n0 + ptx::lane() / 4 + 8 * h;
        if (n < args.n) Out::store(args, m, n, ptx::mul(c[j][2 * h + e], scale));
      }
    }
  }

  static QUERN_FN void run(const KernelArgs& args) {
    TiledActivations layout{args.m, args.k, G.tile_m};
    i64 tiles_m = G.tiles_m(args.m), tile_m = ptx::block_x() % tiles_m,
        tile_n = ptx::block_x() / tiles_m;  // tokens innermost: W stays in L2
    const u8* workspace = static_cast<const u8*>(args.workspace);
    const u8* tile = workspace + tile_m * G.tile_m * layout.k_padded() * 2;
    int runs = static_cast<int>(layout.k_padded() / G.kRun), slices = static_cast<int>(args.k / kSliceWeights);
    u8* stages = ptx::shared_memory();

    i64 n0 = tile_n * G.tile_n() + ptx::warp() * 16;
    View views[2];
    QUERN_UNROLL
    for (int h = 0; h < 2; ++h) {
      i64 n = n0 + ptx::lane() / 4 + 8 * h;
      views[h] = View::of(args, n < args.n ? n : args.n - 1);  // rows past the end read the last one and are not written
    }
    Slice w[2];
    load(w, views, 0, slices);
    ptx::wait_previous();
    ptx::allow_next();
    QUERN_UNROLL
    for (int i = 0; i < G.stages - 1; ++i) {
      if (i < runs) stage_activations(stages + i * G.stage_bytes(), tile, i);
      ptx::cp_async_commit();
    }

    f32 c[kFrags][4] = {};
    Operand operand[2];
    decode(operand[0], w);
    if (runs > 1) load(w, views, 1, slices);
    int read = 0, write = G.stages - 1;
    // Two runs per turn, so that each has its own operand registers.
    for (int first = 0; first < runs; first += 2) {
      QUERN_UNROLL
      for (int half = 0; half < 2; ++half) {
        int current = first + half;
        if (current >= runs) break;
        ptx::cp_async_wait<G.stages - 2>();
        ptx::fence_proxy_async();
        ptx::barrier();
        multiply(c, operand[half], stages + read * G.stage_bytes());
        if (current + G.stages - 1 < runs) stage_activations(stages + write * G.stage_bytes(), tile, current + G.stages - 1);
        ptx::cp_async_commit();
        if (current + 1 < runs) decode(operand[1 - half], w);
        if (current + 2 < runs) load(w, views, current + 2, slices);
        ptx::wgmma_wait(c);
        read = read + 1 == G.stages ? 0 : read + 1;
        write = write + 1 == G.stages ? 0 : write + 1;
      }
    }
    store(c, args, reinterpret_cast<const f32*>(workspace + layout.scales()), tile_m * G.tile_m, n0);
  }
};

}  // namespace quern

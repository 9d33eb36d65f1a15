// Rows of codes times rows of codes on tensor cores (mma m16n8k32). The sum is exact, so that its order is free: lane 4g+t loads 16
// neighbouring bytes of each of its rows, where the instruction's own order would be 4 bytes at a time, and W and X are permuted alike. A
// block stages its rows of X as codes in shared memory, as long as they fit; where there are many they come from global memory, and a
// block's warps share them in L1.
#pragma once

#include "families/codebook.cuh"

namespace quern {

// What is multiplied of a piece of W: its codes, or the two planes of magnitudes of a codebook whose halves have one sign each.
template <class Codes>
struct OnePlane {
  static constexpr int kPlanes = 1;
  const Codes& codes;
  QUERN_FN void look_up(Chunk (&planes)[1], const Chunk& chunk, int piece) const { planes[0] = codes.w_piece(chunk, piece); }
  QUERN_FN i32 total(const i32 (&sums)[1]) const { return sums[0]; }
};
template <bool kMultiply>
struct TwoPlanes {
  static constexpr int kPlanes = 2;
  decode::HalvesTable table;
  QUERN_FN void look_up(Chunk (&planes)[2], const Chunk& chunk, int piece) const {
    QUERN_UNROLL
    for (int i = 0; i < 2; ++i) {
      u32 low[2], high[2];
      decode::look_up_halves<kMultiply>(low, high, table, chunk.word[2 * piece + i]);
      planes[0].word[2 * i] = low[0], planes[0].word[2 * i + 1] = low[1];
      planes[1].word[2 * i] = high[0], planes[1].word[2 * i + 1] = high[1];
    }
  }
  QUERN_FN i32 total(const i32 (&sums)[2]) const { return table.sign[0] * sums[0] + table.sign[1] * sums[1]; }
};

// Where both sides come from. Rows of W: a pointer, and chunk c behind it. Rows of X that are not staged: codes in global memory.
template <int kRowBytes>
struct Int8Operands {
  using Codes = Int8Codes;
  static QUERN_FN u64 addresses(const KernelArgs& args, bool staged) { return w_addresses(args) | (staged ? 0 : x_addresses(args)); }
  static QUERN_FN const u8* w_row(const KernelArgs& args, i64 n) { return static_cast<const u8*>(args.w) + n * args.w_row_bytes; }
  static QUERN_FN const u8* x_row(const KernelArgs& args, i64 m) { return static_cast<const u8*>(args.x) + m * args.ldx; }
  template <int kAlign, bool kWithin>
  static QUERN_FN Chunk load_w(const KernelArgs&, const u8* row, int c) {
    return load_chunk<kRowBytes, kAlign, kWithin>(row, c);
  }
  template <int kAlign>
  static QUERN_FN Chunk load_x(const u8* row, int c, int) {
    return load_chunk<kRowBytes, kAlign>(row, c);
  }
};

// w4a4: W's indices looked up in registers; X as int8 codes, which the step before this one has made in the workspace. A k-major W is
// gathered byte by byte: the lanes of a fragment read neighbouring bytes, so that whole sectors are used, once per tile of X's rows.
template <int kRowBytes, bool kKMajor, bool kMultiply>
struct IndexOperands {
  using Codes = IndexCodes<RegisterCodebook<kMultiply>>;
  using Halves = TwoPlanes<kMultiply>;
  static QUERN_FN u64 addresses(const KernelArgs& args, bool) { return kKMajor ? 1 : w_addresses(args); }
  static QUERN_FN const u8* w_row(const KernelArgs& args, i64 n) {
    return static_cast<const u8*>(args.w) + n * (kKMajor ? 1 : args.w_row_bytes);
  }
  static QUERN_FN const u8* x_row(const KernelArgs& args, i64 m) { return static_cast<const u8*>(args.workspace) + m * (2 * kRowBytes); }
  template <int kAlign, bool kWithin>
  static QUERN_FN Chunk load_w(const KernelArgs& args, const u8* row, int c) {
    if constexpr (!kKMajor) return load_chunk<kRowBytes, kAlign, kWithin>(row, c);
    Chunk chunk{};
    if (c * kChunkBytes >= kRowBytes) return chunk;
    const u8* p = row + c * kChunkBytes * args.w_row_bytes;
    QUERN_UNROLL
    for (int i = 0; i < kChunkBytes; ++i)
      chunk.word[i / 4] |= static_cast<u32>(ptx::load_stream(p + i * args.w_row_bytes)) << (8 * (i % 4));
    return chunk;
  }
  // Zeros past the end of a row: what the indices there would stand for does not count.
  template <int kAlign>
  static QUERN_FN Chunk load_x(const u8* row, int c, int piece) {
    return load_chunk<2 * kRowBytes, 16>(row, 2 * c + piece);
  }
};

// X's indices to int8 codes in the workspace, [M,K] dense: a chunk per thread.
template <int kRowBytes, int kThreads>
QUERN_FN void expand_codes(const KernelArgs& args) {
  ptx::allow_next();
  constexpr int kChunks = kRowBytes / kChunkBytes;
  RegisterCodebook<false> codebook(args.x_codebook);
  i64 i = ptx::block_x() * kThreads + ptx::thread_x(), m = i / kChunks;
  if (m >= args.m) return;
  const u8* row = static_cast<const u8*>(args.x) + m * args.ldx;
  int c = static_cast<int>(i % kChunks);
  Chunk chunk = x_addresses(args) % 16 == 0 ? load_chunk<kRowBytes, 16>(row, c) : load_chunk<kRowBytes, 1>(row, c);
  Chunk* out = static_cast<Chunk*>(args.workspace) + 2 * i;
  QUERN_UNROLL
  for (int p = 0; p < 2; ++p) out[p] = look_up_piece(codebook, chunk, p);
}

template <class Operands, class Epilogue, CodeMmaGeometry G>
struct CodeMma {
  using Codes = typename Operands::Codes;
  static constexpr int kPieces = G.pieces;
  // Every step of every warp lies within the rows.
  static constexpr bool kWithin = G.row_bytes == G.iterations() * G.warps_k * G.kSegment;
  // Of one step, 64 bytes per row of W.
  struct Step {
    Chunk w[G.frags_n][2];  // rows g and g+8 of each fragment
    Chunk x[G.frags_m][kPieces];
  };
  // Where a lane reads: row lane/4 of each fragment, chunk lane%4 of each segment. Rows past the end stand for the last one and are not
  // written.
  struct Rows {
    const u8* w[G.frags_n][2];
    const u8* x[G.frags_m];

    QUERN_FN void aim_w(const KernelArgs& args, i64 n0) {
      QUERN_UNROLL
      for (int f = 0; f < G.frags_n; ++f) QUERN_UNROLL
      for (int h = 0; h < 2; ++h) {
        i64 n = n0 + 16 * f + 8 * h + ptx::lane() / 4;
        w[f][h] = Operands::w_row(args, n < args.n ? n : args.n - 1);
      }
    }
    QUERN_FN void aim_x(const KernelArgs& args, i64 m0) {
      QUERN_UNROLL
      for (int f = 0; f < G.frags_m; ++f) {
        i64 m = m0 + 8 * f + ptx::lane() / 4;
        x[f] = Operands::x_row(args, m < args.m ? m : args.m - 1);
      }
    }
  };

  template <int kAlign>
  static QUERN_FN void load(Step& step, const KernelArgs& args, const Rows& rows, int segment) {
    int c = 4 * segment + ptx::lane() % 4;
    QUERN_UNROLL
    for (int f = 0; f < G.frags_n; ++f) QUERN_UNROLL
    for (int h = 0; h < 2; ++h) step.w[f][h] = Operands::template load_w<kAlign, kWithin>(args, rows.w[f][h], c);
    if constexpr (!G.staged()) {
      QUERN_UNROLL
      for (int f = 0; f < G.frags_m; ++f) QUERN_UNROLL
      for (int p = 0; p < kPieces; ++p) step.x[f][p] = Operands::template load_x<kAlign>(rows.x[f], c, p);
    }
  }
  // A column that no row of X stands for takes the last one's: its sums are not written.
  static QUERN_FN void load_staged(Step& step, int segment) {
    const Chunk* staged = reinterpret_cast<const Chunk*>(ptx::shared_memory());
    int c = 4 * segment + ptx::lane() % 4;
    QUERN_UNROLL
    for (int f = 0; f < G.frags_m; ++f) QUERN_UNROLL
    for (int p = 0; p < kPieces; ++p) {
      int m = 8 * f + ptx::lane() / 4;
      if (m >= G.x_rows) m = G.x_rows - 1;
      step.x[f][p] = Chunk{};
      if (!kWithin && c >= G.chunks()) continue;
      u32x4 x = ptx::load_cached(reinterpret_cast<const u32x4*>(staged + m * G.pitch() + p * G.chunks() + c));
      step.x[f][p] = Chunk{{x.x, x.y, x.z, x.w}};
    }
  }

  template <class Planes>
  using Sums = i32[Planes::kPlanes][G.frags_n][G.frags_m][4];

  template <class Planes>
  static QUERN_FN void multiply(Sums<Planes>& sum, const Planes& w, const Step& step) {
    QUERN_UNROLL
    for (int p = 0; p < kPieces; ++p) QUERN_UNROLL
    for (int f = 0; f < G.frags_n; ++f) {
      Chunk top[Planes::kPlanes], bottom[Planes::kPlanes];
      w.look_up(top, step.w[f][0], p), w.look_up(bottom, step.w[f][1], p);
      QUERN_UNROLL
      for (int half = 0; half < 2; ++half) QUERN_UNROLL
      for (int plane = 0; plane < Planes::kPlanes; ++plane) {
        const u32 *t = top[plane].word + 2 * half, *b = bottom[plane].word + 2 * half;
        u32 a[4] = {t[0], b[0], t[1], b[1]};
        QUERN_UNROLL
        for (int i = 0; i < G.frags_m; ++i) ptx::mma_s8(sum[plane][f][i], a, step.x[i][p].word[2 * half], step.x[i][p].word[2 * half + 1]);
      }
    }
  }

  // What a block covers, and a warp of it: rows of X from m0 on, rows of W from n0 on in every `tile_n()`, a part of K.
  struct Place {
    i64 m0, block_n0, n0;
    int part, passes;
  };

  // A tile's sums, which then start from zero: to Y, or where warps share the tile to their place in shared memory, [pass][warp][row of X]
  // [row of W].
  template <class Planes>
  static QUERN_FN void end_tile(Sums<Planes>& sum, const Planes& w, const KernelArgs& args, const Place& at, int pass) {
    i32* parts = reinterpret_cast<i32*>(ptx::shared_memory() + G.staged_bytes()) + (pass * G.all_warps() + ptx::warp()) * G.part_size();
    QUERN_UNROLL
    for (int e = 0; e < G.sums(); ++e) {
      i32 of_planes[Planes::kPlanes];
      QUERN_UNROLL
      for (int plane = 0; plane < Planes::kPlanes; ++plane) {
        i32& one = sum[plane][e / (4 * G.frags_m)][e / 4 % G.frags_m][e % 4];
        of_planes[plane] = one;
        one = 0;
      }
      i32 total = w.total(of_planes);
      int row = 16 * (e / (4 * G.frags_m)) + 8 * (e % 4 / 2) + ptx::lane() / 4;
      int column = 8 * (e / 4 % G.frags_m) + 2 * (ptx::lane() % 4) + e % 2;
      if constexpr (G.warps_k == 1) {
        i64 n = at.n0 + pass * G.tile_n() + row, m = at.m0 + column;
        if (n < args.n && m < args.m) Epilogue::store(args, m, n, total);
      } else {
        if (column < G.columns()) parts[column * G.part_pitch() + row] = total;
      }
    }
  }

  // Adds up what the warps of each tile left, whole numbers in any order.
  static QUERN_FN void add_parts(const KernelArgs& args, const Place& at) {
    const i32* parts = reinterpret_cast<const i32*>(ptx::shared_memory() + G.staged_bytes());
    constexpr int kRows = 16 * G.frags_n, kTile = kRows * G.columns();
    ptx::barrier();
    for (int i = ptx::thread_x(); i < at.passes * G.warps * kTile; i += G.threads()) {
      int row = i % kRows, column = i % kTile / kRows, tile = i / kTile;  // tile: [pass][warp along N]
      const i32* part = parts + tile * G.warps_k * G.part_size() + column * G.part_pitch() + row;
      i32 total = 0;
      QUERN_UNROLL
      for (int p = 0; p < G.warps_k; ++p) total += part[p * G.part_size()];
      i64 n = at.block_n0 + tile * kRows + row, m = at.m0 + column;
      if (n < args.n && m < args.m) Epilogue::store(args, m, n, total);
    }
  }

  // Loads step j of those in flight, which begin with `pass` and `round`.
  template <int kAlign>
  static QUERN_FN void fill(Step& step, Rows& rows, const KernelArgs& args, const Place& at, int pass, int round, int j) {
    constexpr int kIterations = G.iterations();
    int tile = pass + j / kIterations, i = round * G.stages + j % kIterations;
    if (tile >= at.passes) return;
    if (j % kIterations == 0 && (G.rounds_per_tile() == 1 || round == 0)) rows.aim_w(args, at.n0 + tile * G.tile_n());
    load<kAlign>(step, args, rows, at.part + i * G.warps_k);
  }

  // `ring` holds the first steps. Each is loaded again as soon as it is multiplied: before, its registers would have to be copied, as many
  // instructions as an eighth of the look-ups.
  template <int kAlign, class Planes>
  static QUERN_FN void multiply_all(Step (&ring)[G.stages], Rows& rows, const Planes& w, const KernelArgs& args, const Place& at) {
    constexpr int kIterations = G.iterations(), kTiles = G.tiles_per_round(), kRounds = G.rounds_per_tile();
    Sums<Planes> sum = {};
    QUERN_UNROLL_BY(1)
    for (int pass = 0; pass < at.passes; pass += kTiles) {
      QUERN_UNROLL_BY(1)  // unrolled, the bodies for odd addresses spill
      for (int round = 0; round < kRounds; ++round) {
        bool last = round + 1 == kRounds;
        QUERN_UNROLL
        for (int j = 0; j < G.stages; ++j) {
          int tile = pass + j / kIterations;
          if (j >= kIterations && tile >= at.passes) continue;
          if constexpr (G.staged()) load_staged(ring[j], at.part + (round * G.stages + j % kIterations) * G.warps_k);
          multiply(sum, w, ring[j]);
          fill<kAlign>(ring[j], rows, args, at, last ? pass + kTiles : pass, last ? 0 : round + 1, j);
          if ((j + 1) % kIterations == 0 || (j + 1 == G.stages && last)) end_tile(sum, w, args, at, tile);
        }
      }
    }
  }

  // `stage` has X on its way where it is staged.
  template <int kAlign, class Stage>
  static QUERN_FN void run_with(Stage& stage, const Codes& codes, const KernelArgs& args, const Place& at) {
    Rows rows;
    if constexpr (!G.staged()) rows.aim_x(args, at.m0);
    Step ring[G.stages];
    QUERN_UNROLL
    for (int j = 0; j < G.stages; ++j) fill<kAlign>(ring[j], rows, args, at, 0, 0, j);
    for (i64 n = at.block_n0 + ptx::thread_x(); n < args.n && n < at.block_n0 + at.passes * G.tile_n(); n += G.threads())
      Epilogue::prefetch(args, n);
    if constexpr (G.staged()) stage.finish(reinterpret_cast<Chunk*>(ptx::shared_memory()), codes, args, at.m0);

    bool done = false;
    if constexpr (G.halves && kAlign == 16) {
      typename Operands::Halves halves;
      if (decode::split_halves(halves.table, codes.w.table)) {
        multiply_all<kAlign>(ring, rows, halves, args, at);
        done = true;
      }
    }
    if (!done) multiply_all<kAlign>(ring, rows, OnePlane<Codes>{codes}, args, at);
    if constexpr (G.warps_k > 1) add_parts(args, at);
  }

  template <int kAlign>
  static QUERN_FN void run_aligned(const KernelArgs& args) {
    i64 blocks_n = G.blocks_n(args.n), block_n = ptx::block_x(), m0 = 0;
    if (G.tiles_m > 1) block_n = ptx::block_x() % blocks_n, m0 = ptx::block_x() / blocks_n * G.tile_m();
    i64 n0 = block_n * G.passes * G.tile_n(), tiles = ceil_div(args.n - n0, G.tile_n());
    Place at{m0, n0, n0 + ptx::warp() / G.warps_k * (16 * G.frags_n), ptx::warp() % G.warps_k,
             tiles < G.passes ? static_cast<int>(tiles) : G.passes};
    Codes codes(args);
    if constexpr (G.staged()) {
      CodeStage<G.row_bytes, G.x_rows, G.pitch(), G.threads(), Codes> stage(args, m0);
      run_with<kAlign>(stage, codes, args, at);
    } else {
      ptx::wait_previous();
      run_with<kAlign>(codes, codes, args, at);
    }
  }

  static QUERN_FN void run(const KernelArgs& args) {
    run_by_alignment<CodeMma, CodeMma<Operands, Epilogue, G.slim()>>(args, Operands::addresses(args, G.staged()));
  }
};

}  // namespace quern

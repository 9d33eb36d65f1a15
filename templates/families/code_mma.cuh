// Rows of codes times rows of codes on tensor cores (mma m16n8k32). The sum is exact, so that its order is free: lane 4g+t loads 16
// neighbouring bytes of each of its rows, where the instruction's own order would be 4 bytes at a time, and W and X are permuted alike. A
// block stages its rows of X as codes in shared memory (`staged`), or they come from global memory, where they are many, and a block's
// warps share them in L1.
#pragma once

#include "families/code_operands.cuh"

namespace quern {

template <class Operands, class Epilogue, CodeMmaGeometry G>
struct CodeMma {
  using Codes = typename Operands::Codes;
  static constexpr int kPieces = G.pieces;
  static_assert(kPieces == Codes::kPieces);
  // Every step of every warp lies within the rows.
  static constexpr bool kWithin = G.row_bytes == G.iterations() * G.warps_k * G.segment_bytes();
  // Of one step, one or two times 64 bytes per row of W.
  static constexpr int kHalves = G.segment_bytes() / 64;
  struct Step {
    Chunk w[G.frags_n][2][kHalves];  // rows g and g+8 of each fragment
    Chunk x[G.frags_m][kHalves][kPieces];
  };
  static QUERN_FN const u8* w_row(const KernelArgs& args, i64 n) {
    return static_cast<const u8*>(args.w) + n * Operands::w_row_stride(args);
  }
  // Where a lane reads: row lane/4 of each fragment. Rows past the end stand for the last one and are not written.
  struct Rows {
    const u8* w[G.frags_n][2];
    const u8* last;  // of W
    const u8* x[G.frags_m];

    QUERN_FN Rows(const KernelArgs& args, i64 m0, i64 n0) : last(w_row(args, args.n - 1)) {
      QUERN_UNROLL
      for (int f = 0; f < G.frags_n; ++f) QUERN_UNROLL
      for (int h = 0; h < 2; ++h) w[f][h] = w_row(args, n0 + 16 * f + 8 * h + ptx::lane() / 4);
      move(0);
      if constexpr (!G.staged()) {
        QUERN_UNROLL
        for (int f = 0; f < G.frags_m; ++f) {
          i64 m = m0 + 8 * f + ptx::lane() / 4;
          x[f] = Operands::x_row(args, m < args.m ? m : args.m - 1);
        }
      }
    }
    QUERN_FN void move(i64 bytes) {
      QUERN_UNROLL
      for (int f = 0; f < G.frags_n; ++f) QUERN_UNROLL
      for (int h = 0; h < 2; ++h) {
        w[f][h] += bytes;
        if (w[f][h] > last) w[f][h] = last;
      }
    }
  };

  static QUERN_FN int chunk_of(int segment, int half) { return 4 * (kHalves * segment + half) + ptx::lane() % 4; }

  template <int kAlign>
  static QUERN_FN void load(Step& step, const KernelArgs& args, const Rows& rows, int segment) {
    QUERN_UNROLL
    for (int half = 0; half < kHalves; ++half) {
      int c = chunk_of(segment, half);
      QUERN_UNROLL
      for (int f = 0; f < 2 * G.frags_n; ++f)
        step.w[f / 2][f % 2][half] = Operands::template load_w<kAlign, kWithin>(args, rows.w[f / 2][f % 2], c);
      if constexpr (!G.staged()) {
        QUERN_UNROLL
        for (int f = 0; f < G.frags_m; ++f) QUERN_UNROLL
        for (int p = 0; p < kPieces; ++p) step.x[f][half][p] = Operands::template load_x<kAlign>(rows.x[f], c, p);
      }
    }
  }
  // A column that no row of X stands for takes the last one's: its sums are not written.
  static QUERN_FN void load_staged(Step& step, int segment) {
    const Chunk* staged = reinterpret_cast<const Chunk*>(ptx::shared_memory());
    QUERN_UNROLL
    for (int half = 0; half < kHalves; ++half) {
      int c = chunk_of(segment, half);
      QUERN_UNROLL
      for (int f = 0; f < G.frags_m; ++f) QUERN_UNROLL
      for (int p = 0; p < kPieces; ++p) {
        int m = 8 * f + ptx::lane() / 4;
        if (m >= G.x_rows) m = G.x_rows - 1;
        step.x[f][half][p] = Chunk{};
        if (!kWithin && c >= G.chunks()) continue;
        u32x4 x = ptx::load_cached(reinterpret_cast<const u32x4*>(staged + m * G.pitch() + p * G.chunks() + c));
        step.x[f][half][p] = Chunk{{x.x, x.y, x.z, x.w}};
      }
    }
  }

  template <class Planes>
  using Sums = i32[Planes::kPlanes][G.frags_n][G.frags_m][4];

  template <class Planes>
  static QUERN_FN void multiply(Sums<Planes>& sum, const Planes& w, const Step& step) {
    QUERN_UNROLL
    for (int half = 0; half < kHalves; ++half) QUERN_UNROLL
    for (int p = 0; p < kPieces; ++p) QUERN_UNROLL
    for (int f = 0; f < G.frags_n; ++f) {
      Chunk top[Planes::kPlanes], bottom[Planes::kPlanes];
      w.look_up(top, step.w[f][0][half], p), w.look_up(bottom, step.w[f][1][half], p);
      QUERN_UNROLL
      for (int k = 0; k < 4; k += 2) QUERN_UNROLL
      for (int plane = 0; plane < Planes::kPlanes; ++plane) {
        const u32 *t = top[plane].word + k, *b = bottom[plane].word + k;
        u32 a[4] = {t[0], b[0], t[1], b[1]};
        QUERN_UNROLL
        for (int i = 0; i < G.frags_m; ++i) ptx::mma_s8(sum[plane][f][i], a, step.x[i][half][p].word[k], step.x[i][half][p].word[k + 1]);
      }
    }
  }

  // What a block covers, and a warp of it: rows of X from m0 on, in each pass `stride` further rows of W from n0 on, a part of K.
  struct Place {
    i64 m0, block_n0, n0, stride;
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
        i64 n = at.n0 + pass * at.stride + row, m = at.m0 + column;
        if (n < args.n && m < args.m) Epilogue::load(args, m, n).store(args, m, n, total);
      } else {
        if (column < G.columns()) parts[column * G.part_pitch() + row] = total;
      }
    }
  }

  // Adds up what the warps of each tile left, whole numbers in any order. What a sum is finished with is loaded while the sums are made,
  // behind X: ahead of X, or in the end from L2, 0.5 us were lost (14336 x 4096, M=1, in the test bench of decision 0013: 9.3 us, now 8.8).
  struct Outputs {
    static constexpr int kRows = 16 * G.frags_n, kTile = kRows * G.columns();  // of a tile
    static constexpr int kEach = static_cast<int>(ceil_div(G.passes * G.warps * kTile, G.threads()));
    static constexpr bool kEarly = G.staged() && kEach <= 8;  // two registers each, three with a bias
    struct One {
      int tile, row, column;  // tile: [pass][warp along N]
      i64 m, n;
      bool inside;
      QUERN_FN One(const KernelArgs& args, const Place& at, int e) {
        int i = ptx::thread_x() + e * G.threads();
        tile = i / kTile, column = i % kTile / kRows, row = i % kRows;
        m = at.m0 + column, n = at.block_n0 + tile / G.warps * at.stride + tile % G.warps * kRows + row;
        inside = tile < at.passes * G.warps && n < args.n && m < args.m;
      }
    };
    Epilogue early[kEarly ? kEach : 1];

    // Without a condition, so that nothing waits here: past the end for the last output.
    QUERN_FN Outputs(const KernelArgs& args, const Place& at) {
      if constexpr (kEarly) QUERN_UNROLL
      for (int e = 0; e < kEach; ++e) {
        One o(args, at, e);
        early[e] = Epilogue::load(args, o.inside ? o.m : args.m - 1, o.inside ? o.n : args.n - 1);
      }
    }
    QUERN_FN void add(const KernelArgs& args, const Place& at, int e) const {
      One o(args, at, e);
      if (!o.inside) return;
      const i32* part = reinterpret_cast<const i32*>(ptx::shared_memory() + G.staged_bytes()) + o.tile * G.warps_k * G.part_size() +
                        o.column * G.part_pitch() + o.row;
      i32 total = 0;
      QUERN_UNROLL
      for (int p = 0; p < G.warps_k; ++p) total += part[p * G.part_size()];
      (kEarly ? early[e] : Epilogue::load(args, o.m, o.n)).store(args, o.m, o.n, total);
    }
    QUERN_FN void add_all(const KernelArgs& args, const Place& at) const {
      ptx::barrier();
      if constexpr (kEarly) {
        QUERN_UNROLL
        for (int e = 0; e < kEach; ++e) add(args, at, e);
      } else {
        QUERN_UNROLL_BY(1)
        for (int e = 0; e < kEach; ++e) add(args, at, e);
      }
    }
  };

  // Goes along a warp's steps, one tile after the other.
  struct Cursor {
    Rows rows;
    i64 tile_bytes;  // from one tile's rows to the next's
    int tiles, part, segment;

    QUERN_FN Cursor(const KernelArgs& args, const Place& at)
        : rows(args, at.m0, at.n0), tile_bytes(Operands::w_row_stride(args) * at.stride), tiles(at.passes), part(at.part), segment(part) {}
    QUERN_FN bool done() const { return tiles == 0; }
    QUERN_FN void advance() {
      segment += G.warps_k;
      if (segment < G.iterations() * G.warps_k) return;
      segment = part, --tiles;
      rows.move(tile_bytes);
    }
  };

  // Steps come through registers, from any address and whatever X: one ahead, but where words or bytes are loaded, which would take more
  // registers than all the rest (233 where 175 do).
  template <int kAlign>
  struct RegisterFeed {
    Cursor cursor;
    Step next;
    QUERN_FN RegisterFeed(const KernelArgs& args, const Place& at) : cursor(args, at) {
      if constexpr (kAlign == 16) load<kAlign>(next, args, cursor.rows, cursor.segment);
    }
    QUERN_FN void fill() {}
    QUERN_FN void take(Step& step, const KernelArgs& args) {
      if constexpr (kAlign < 16) {
        load<kAlign>(step, args, cursor.rows, cursor.segment);
        cursor.advance();
      } else {
        step = next;
        cursor.advance();
        if (!cursor.done()) load<kAlign>(next, args, cursor.rows, cursor.segment);
      }
    }
  };

  // Steps come through shared memory, `stages` of them, all but one on their way; a warp copies what it reads itself, whole lines of 128
  // bytes, and waits for no other. Of an H200's multiprocessor 32 to 48 KB on their way are best: with less the reads are slower (a plain
  // read of 29 MB takes 9.0 us with 64 KB, 9.9 with 32, 12.0 with 16), with more what was asked for first comes among what was asked for
  // last, and products wait (192 KB: 14.3 us where 64 take 11.1). Rows of W lie side by side: strides are constants.
  struct SharedFeed {
    static constexpr int kLine = 8, kRows = kWarpLanes / kLine;  // chunks of a line; rows that lanes side by side copy at once
    static_assert(G.stages == 1 || G.segment_bytes() == kLine * kChunkBytes);
    static constexpr int kCopies = 16 * G.frags_n / kRows, kSlot = kCopies * kWarpLanes, kRing = G.stages * kSlot;
    static constexpr int kStepBytes = G.warps_k * G.segment_bytes(), kFirst = G.stages < 3 ? 1 : 2;
    static constexpr i64 kRowsBytes = static_cast<i64>(kRows) * G.row_bytes;
    // From the last step of a tile to the first of the next.
    static constexpr i64 kNextTile = static_cast<i64>(G.blocks_n()) * G.tile_n() * G.row_bytes - (G.iterations() - 1) * kStepBytes;
    static constexpr bool kWholeTiles = G.n % G.tile_n() == 0;
    // With it four stages of 8 warps take 8.9 us where three took 9.0 (w4a4 14336 x 4096, M=1, the same test bench); without it they take
    // 9.4. Codes of int8 have no figures of it.
    static constexpr bool kLines = true;
    Chunk* ring;  // of this warp: [stage][row][chunk of its line]; odd rows have their halves exchanged, for the banks
    int read = 0, write = 0;
    // Of the next step to be copied: the lane's chunk of its first row, the number of rows from there to the end, what is left of the tile
    // and of the tiles.
    const u8* from;
    int rows, steps = G.iterations(), tiles;

    QUERN_FN SharedFeed(const KernelArgs& args, const Place& at)
        : ring(reinterpret_cast<Chunk*>(ptx::shared_memory() + G.ring_offset()) + ptx::warp() * kRing), tiles(at.passes) {
      i64 n = at.n0 + ptx::lane() / kLine;
      from = static_cast<const u8*>(args.w) + n * G.row_bytes + at.part * G.segment_bytes() + ptx::lane() % kLine * kChunkBytes;
      rows = static_cast<int>(args.n - n);
      for (int s = 0; s < kFirst; ++s) copy();
    }
    // The rest of the stages, when X has come.
    QUERN_FN void fill() {
      for (int s = kFirst; s < G.stages - 1; ++s) copy();
    }
    static QUERN_FN int place(int row, int chunk) { return row * kLine + (chunk ^ (row % 2 * 4)); }
    // What lies past the last row or a row's end is zeros.
    QUERN_FN void copy() {
      if (tiles > 0) {
        int c = kLine * (ptx::warp() % G.warps_k + (G.iterations() - steps) * G.warps_k) + ptx::lane() % kLine;
        Chunk* to = ring + write + place(ptx::lane() / kLine, ptx::lane() % kLine);
        QUERN_UNROLL
        for (int i = 0; i < kCopies; ++i) {
          if constexpr (kWholeTiles && kWithin)
            ptx::cp_async16<kLines>(to + i * kWarpLanes, from + i * kRowsBytes);
          else
            ptx::cp_async_zero16<kLines>(to + i * kWarpLanes, from + i * kRowsBytes, rows > i * kRows && c < G.chunks() ? kChunkBytes : 0);
        }
        bool last = --steps == 0;
        from += last ? kNextTile : kStepBytes;
        if (last) steps = G.iterations(), --tiles, rows -= G.blocks_n() * G.tile_n();
      }
      ptx::cp_async_commit();
      write = write + kSlot == kRing ? 0 : write + kSlot;
    }
    QUERN_FN void take(Step& step, const KernelArgs&) {
      ptx::cp_async_wait<G.stages - 2>();
      ptx::warp_barrier();  // the whole warp's copies are there, and it has read the step before, whose place is copied to now
      QUERN_UNROLL
      for (int f = 0; f < 2 * G.frags_n; ++f) QUERN_UNROLL
      for (int half = 0; half < kHalves; ++half) {
        int at = place(8 * f + ptx::lane() / 4, 4 * half + ptx::lane() % 4);
        u32x4 w = *reinterpret_cast<const u32x4*>(ring + read + at);
        step.w[f / 2][f % 2][half] = Chunk{{w.x, w.y, w.z, w.w}};
      }
      read = read + kSlot == kRing ? 0 : read + kSlot;
      copy();
    }
  };

  template <class Feed, class Planes>
  static QUERN_FN void multiply_all(Feed& feed, const Planes& w, const KernelArgs& args, const Place& at) {
    Sums<Planes> sum = {};
    QUERN_UNROLL_BY(1)
    for (int pass = 0; pass < at.passes; ++pass) {
      QUERN_UNROLL_BY(1)  // unrolled, the bodies for odd addresses spill
      for (int i = 0; i < G.iterations(); ++i) {
        Step step;
        feed.take(step, args);
        if constexpr (G.staged()) load_staged(step, at.part + i * G.warps_k);
        multiply(sum, w, step);
      }
      end_tile(sum, w, args, at, pass);
    }
  }

  template <bool kAligned, class Feed>
  static QUERN_FN void multiply_planes(Feed& feed, const Codes& codes, const KernelArgs& args, const Place& at) {
    if constexpr (G.halves && kAligned) {
      typename Operands::Halves halves;
      if (decode::split_halves(halves.table, codes.w.table)) {
        multiply_all(feed, halves, args, at);
        return;
      }
    }
    multiply_all(feed, OnePlane<Codes>{codes}, args, at);
  }

  // `stage` has X on its way where it is staged.
  template <bool kAligned, class Feed, class Stage>
  static QUERN_FN void run_with(Stage& stage, const Codes& codes, const KernelArgs& args, const Place& at) {
    Feed feed(args, at);
    if constexpr (G.staged()) stage.finish(reinterpret_cast<Chunk*>(ptx::shared_memory()), codes, args, at.m0);
    if constexpr (G.warps_k > 1) {
      Outputs outputs(args, at);
      feed.fill();
      multiply_planes<kAligned>(feed, codes, args, at);
      outputs.add_all(args, at);
    } else {
      feed.fill();
      multiply_planes<kAligned>(feed, codes, args, at);
    }
  }

  template <int kAlign>
  static QUERN_FN void run_aligned(const KernelArgs& args) {
    int block_n = static_cast<int>(ptx::block_x()), tile_m = 0;
    if (G.tiles_m > 1) tile_m = block_n / G.blocks_n(), block_n %= G.blocks_n();
    // Neighbouring blocks have neighbouring tiles, in each pass anew: all of them together read on through W.
    i64 m0 = static_cast<i64>(tile_m) * G.tile_m(), n0 = static_cast<i64>(block_n) * G.tile_n();
    Place at{m0,
             n0,
             n0 + ptx::warp() / G.warps_k * (16 * G.frags_n),
             static_cast<i64>(G.blocks_n()) * G.tile_n(),
             ptx::warp() % G.warps_k,
             static_cast<int>(ceil_div(G.tiles_n() - block_n, G.blocks_n()))};
    Codes codes(args);
    if constexpr (!G.staged()) {
      run_with<kAlign == 16, RegisterFeed<kAlign>>(codes, codes, args, at);
    } else {
      CodeStage<G.row_bytes, G.x_rows, G.pitch(), G.threads(), Codes> stage(args, m0);
      if constexpr (G.stages > 1)
        run_with<true, SharedFeed>(stage, codes, args, at);
      else
        run_with<kAlign == 16, RegisterFeed<kAlign>>(stage, codes, args, at);
    }
  }

  static QUERN_FN void run(const KernelArgs& args) {
    if constexpr (G.stages > 1) {
      if (w_addresses(args) % 16 == 0 && args.w_row_bytes == G.row_bytes)
        run_aligned<16>(args);
      else
        CodeMma<Operands, Epilogue, G.slim()>::run(args);
    } else {
      run_by_alignment<CodeMma, CodeMma>(args, Operands::addresses(args, G.staged()));
    }
  }
};

}  // namespace quern

// X's rows permuted, signed, divided by their norm, turned by Hadamard matrices and bucketized; include/quern/problem.h defines every
// rounding. A block per row, whose columns lie in shared memory as f32. The first five stages of the butterflies are shuffles, so that a
// warp's lanes are neighbours in a row and no two share a bank; the further ones take up to three at a time between two barriers.
#pragma once

#include "families/element.cuh"
#include "geometry/rpbh.h"

namespace quern {

template <class In, RpbhGeometry G, bool kPacked>
struct RpbhQuantize {
  using X = typename In::Type;

  static QUERN_FN void run(const KernelArgs& args) {
    f32* values = reinterpret_cast<f32*>(ptx::shared_memory());
    f32* partials = values + G.k;
    i64 m = ptx::block_x();
    permute(values, stage(reinterpret_cast<X*>(partials + G.kPartials), static_cast<const X*>(args.x) + m * args.ldx), args);
    ptx::barrier();
    f32 norm = row_norm(values, partials);
    if (ptx::thread_x() == 0) args.y_scales[m] = norm;
    divide_and_turn(values, ptx::add(norm, args.epsilon));
    turn_wide<kWarpLanes>(values);
    ptx::barrier();
    store(static_cast<u8*>(args.y) + m * args.ldy, values, args);
  }

 private:
  // Where to fetch the row's elements from. A permutation scatters a warp's 32 over most lines of a row.
  static QUERN_FN const X* stage(X* staged, const X* row) {
    if constexpr (G.staged == 0) return row;
    for (int c = ptx::thread_x(); c < G.k; c += G.threads) staged[c] = ptx::load_cached(row + c);
    ptx::barrier();
    return staged;
  }

  static QUERN_FN void permute(f32* values, const X* row, const KernelArgs& args) {
    QUERN_UNROLL_BY(4)
    for (int c = ptx::thread_x(); c < G.k; c += G.threads) {
      u32 from = static_cast<u32>(ptx::load_cached(args.permutation + c));
      if (from >= static_cast<u32>(G.k)) from = G.k - 1;
      values[c] = ptx::mul(ptx::to_f32(ptx::load_cached(row + from)), static_cast<f32>(ptx::load_cached(args.signs + c)));
    }
  }

  // The order of the sum is the definition's, whatever the number of threads. Every warp adds the partial sums up for itself: they are
  // few, and one warp would have to tell the others behind one more barrier.
  static QUERN_FN f32 row_norm(const f32* values, f32* partials) {
    for (int p = ptx::thread_x(); p < G.kPartials; p += G.threads) {
      f32 sum = 0;
      for (int c = p; c < G.k; c += G.kPartials) sum = ptx::fma(values[c], values[c], sum);
      partials[p] = sum;
    }
    ptx::barrier();
    constexpr int kOfLane = G.kPartials / kWarpLanes;
    f32 sum[kOfLane];
    QUERN_UNROLL
    for (int i = 0; i < kOfLane; ++i) sum[i] = partials[ptx::lane() + i * kWarpLanes];
    QUERN_UNROLL
    for (int half = kOfLane / 2; half > 0; half /= 2) QUERN_UNROLL
    for (int i = 0; i < half; ++i) sum[i] = ptx::add(sum[i], sum[i + half]);
    QUERN_UNROLL
    for (int mask = kWarpLanes / 2; mask > 0; mask /= 2) sum[0] = ptx::add(sum[0], ptx::shuffle_xor(sum[0], mask));
    return ptx::sqrt(sum[0]);
  }

  // The division, and the stages whose pairs are lanes of one warp.
  static QUERN_FN void divide_and_turn(f32* values, f32 divisor) {
    int lane = ptx::lane();
    for (int first = ptx::warp() * kWarpLanes; first < G.k; first += G.threads) {
      int c = first + lane;
      f32 v = c < G.k ? ptx::div(values[c], divisor) : 0;
      QUERN_UNROLL
      for (int width = 1; width < kWarpLanes && width < G.block; width *= 2) {
        f32 other = ptx::shuffle_xor(v, width);
        v = (lane & width) != 0 ? ptx::sub(other, v) : ptx::add(v, other);
      }
      if (c < G.k) values[c] = v;
    }
  }

  // The stages from kWidth on: a thread has the columns that meet in them.
  template <int kWidth>
  static QUERN_FN void turn_wide(f32* values) {
    if constexpr (kWidth < G.block) {
      constexpr int kColumns = G.block / kWidth < 8 ? G.block / kWidth : 8;
      ptx::barrier();
      for (int i = ptx::thread_x(); i < G.k / kColumns; i += G.threads) {
        f32* column = values + (i / kWidth * (kWidth * kColumns) + i % kWidth);
        f32 v[kColumns];
        QUERN_UNROLL
        for (int j = 0; j < kColumns; ++j) v[j] = column[j * kWidth];
        turn(v);
        QUERN_UNROLL
        for (int j = 0; j < kColumns; ++j) column[j * kWidth] = v[j];
      }
      turn_wide<kWidth * kColumns>(values);
    }
  }

  template <int kColumns>
  static QUERN_FN void turn(f32 (&v)[kColumns]) {
    QUERN_UNROLL
    for (int width = 1; width < kColumns; width *= 2) QUERN_UNROLL
    for (int j = 0; j < kColumns; ++j) {
      if ((j & width) != 0) continue;
      f32 a = v[j], b = v[j + width];
      v[j] = ptx::add(a, b);
      v[j + width] = ptx::sub(a, b);
    }
  }

  // A thread per byte: neighbours in a warp write neighbours in memory, wherever the row begins.
  static QUERN_FN void store(u8* y, const f32* values, const KernelArgs& args) {
    f32 boundaries[15];
    QUERN_UNROLL
    for (int i = 0; i < 15; ++i) boundaries[i] = ptx::load_cached(args.boundaries + i);
    for (int i = ptx::thread_x(); i < (kPacked ? G.k / 2 : G.k); i += G.threads) {
      if constexpr (kPacked)
        y[i] = static_cast<u8>(index(values[2 * i], boundaries) | index(values[2 * i + 1], boundaries) << 4);
      else
        y[i] = static_cast<u8>(ptx::load_cached(args.x_codebook + index(values[i], boundaries)));
    }
  }

  static QUERN_FN u32 index(f32 value, const f32 (&boundaries)[15]) {
    f32 v = ptx::mul(value, ptx::float_from_bits(G.factor));
    u32 count = 0;
    QUERN_UNROLL
    for (int i = 0; i < 15; ++i) count += v > boundaries[i] ? 1 : 0;
    return count;
  }
};

}  // namespace quern

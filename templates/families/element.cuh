// Activations in and outputs out: four neighbours of a row at a time, in any of the three types, at any alignment.
#pragma once

#include "args.h"
#include "ptx/ptx.cuh"

namespace quern {

// x[0..3] of p as f32. `wide`: p is aligned to four elements.
template <class T>
QUERN_FN void load_quad(f32 (&x)[4], const T* p, bool wide) {
  if (wide) {
    if constexpr (sizeof(T) == 4) {
      u32x4 v = ptx::load_cached(reinterpret_cast<const u32x4*>(p));
      x[0] = ptx::float_from_bits(v.x), x[1] = ptx::float_from_bits(v.y), x[2] = ptx::float_from_bits(v.z),
      x[3] = ptx::float_from_bits(v.w);
    } else {
      u32x2 v = ptx::load_cached(reinterpret_cast<const u32x2*>(p));
      x[0] = ptx::to_f32(T{static_cast<u16>(v.x)}), x[1] = ptx::to_f32(T{static_cast<u16>(v.x >> 16)});
      x[2] = ptx::to_f32(T{static_cast<u16>(v.y)}), x[3] = ptx::to_f32(T{static_cast<u16>(v.y >> 16)});
    }
  } else {
    QUERN_UNROLL
    for (int i = 0; i < 4; ++i) x[i] = ptx::to_f32(ptx::load_cached(p + i));
  }
}

// Whether every row of X can be read four elements at a time.
template <class T>
QUERN_FN bool rows_are_wide(const void* base, i64 leading_dimension) {
  return ((reinterpret_cast<u64>(base) | static_cast<u64>(leading_dimension * static_cast<i64>(sizeof(T)))) & (4 * sizeof(T) - 1)) == 0;
}

// Element (row, column) of X, stored by rows or transposed.
template <class T, bool kTransposed>
struct Input {
  using Type = T;
  static constexpr bool transposed = kTransposed;
  static QUERN_FN i64 offset(const KernelArgs& args, i64 row, i64 column) {
    return kTransposed ? column * args.ldx + row : row * args.ldx + column;
  }
  static QUERN_FN f32 load(const KernelArgs& args, i64 row, i64 column) {
    return ptx::to_f32(ptx::load_cached(static_cast<const T*>(args.x) + offset(args, row, column)));
  }
};

// What becomes of a sum: times the weight scale, plus the bias, rounded once to the output's type.
template <class T, bool kBias, bool kScale>
struct Output {
  using Type = T;
  static QUERN_FN f32 finish(const KernelArgs& args, i64 column, f32 value) {
    if constexpr (kScale) value = ptx::mul(value, ptx::load_cached(args.w_scale));
    if constexpr (kBias) value = ptx::add(value, ptx::to_f32(ptx::load_cached(static_cast<const T*>(args.bias) + column)));
    return value;
  }
  static QUERN_FN void store(const KernelArgs& args, i64 row, i64 column, f32 value) {
    static_cast<T*>(args.y)[row * args.ldy + column] = ptx::from_f32<T>(finish(args, column, value));
  }
  // Columns `column`, an even one, and the next in one store where every row allows it: `wide` is pairs_are_wide().
  static QUERN_FN void store_pair(const KernelArgs& args, i64 row, i64 column, f32 low, f32 high, bool wide) {
    if (!wide) {
      store(args, row, column, low);
      store(args, row, column + 1, high);
      return;
    }
    T pair[2] = {ptx::from_f32<T>(finish(args, column, low)), ptx::from_f32<T>(finish(args, column + 1, high))};
    T* y = static_cast<T*>(args.y) + (row * args.ldy + column);
    if constexpr (sizeof(T) == 4)
      *reinterpret_cast<u32x2*>(y) = {ptx::bits_of(pair[0]), ptx::bits_of(pair[1])};
    else
      *reinterpret_cast<u32*>(y) = pair[0].bits | static_cast<u32>(pair[1].bits) << 16;
  }
  static QUERN_FN bool pairs_are_wide(const KernelArgs& args) { return are_wide<2>(args); }
  // The same for four columns from a multiple of four on.
  static QUERN_FN void store_quad(const KernelArgs& args, i64 row, i64 column, const f32 (&v)[4], bool wide) {
    if (!wide) {
      QUERN_UNROLL
      for (int i = 0; i < 4; ++i) store(args, row, column + i, v[i]);
      return;
    }
    T quad[4];
    QUERN_UNROLL
    for (int i = 0; i < 4; ++i) quad[i] = ptx::from_f32<T>(finish(args, column + i, v[i]));
    T* y = static_cast<T*>(args.y) + (row * args.ldy + column);
    if constexpr (sizeof(T) == 4)
      *reinterpret_cast<u32x4*>(y) = {ptx::bits_of(quad[0]), ptx::bits_of(quad[1]), ptx::bits_of(quad[2]), ptx::bits_of(quad[3])};
    else
      *reinterpret_cast<u32x2*>(y) = {quad[0].bits | static_cast<u32>(quad[1].bits) << 16, quad[2].bits | static_cast<u32>(quad[3].bits)
                                                                                                              << 16};
  }
  static QUERN_FN bool quads_are_wide(const KernelArgs& args) { return are_wide<4>(args); }

 private:
  template <int kColumns>
  static QUERN_FN bool are_wide(const KernelArgs& args) {
    return ((reinterpret_cast<u64>(args.y) | static_cast<u64>(args.ldy * static_cast<i64>(sizeof(T)))) & (kColumns * sizeof(T) - 1)) == 0;
  }
};

}  // namespace quern

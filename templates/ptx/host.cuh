// The hardware header's host body: the values of device.cuh, computed on the CPU. Every float operation rounds once, to nearest even, and a
// NaN result of a 16-bit conversion or operation is 0x7fff, as on the device.
#pragma once

#include "ptx/host_lane.h"
#include "ptx/types.h"

#define QUERN_FN inline __attribute__((always_inline))
// A kernel entry: QUERN_KERNEL(name, threads, min_blocks)(quern::KernelArgs args) { ... }
// The launch bound is data beside the entry, so that a launch of more threads fails here as it does on the device.
#define QUERN_KERNEL(name, threads, min_blocks)    \
  extern "C" {                                     \
  extern const unsigned int name##_max_threads;    \
  const unsigned int name##_max_threads = threads; \
  }                                                \
  extern "C" __attribute__((visibility("default"))) void name
#define QUERN_GRID_CONSTANT const
#define QUERN_TABLE static constexpr
// The optimizer decides here: forced unrolling would cost compile time and buys nothing without a register file to index.
#define QUERN_UNROLL
#define QUERN_UNROLL_BY(count)

namespace quern::ptx {

inline constexpr bool kHasAsyncCopy = true;

QUERN_FN int thread_x() { return static_cast<int>(quern_host_lane()->thread_x); }
QUERN_FN int lane() { return static_cast<int>(quern_host_lane()->thread_x & 31u); }
QUERN_FN int warp() { return static_cast<int>(quern_host_lane()->thread_x >> 5); }
QUERN_FN i64 block_x() { return quern_host_lane()->block_x; }
QUERN_FN i64 block_y() { return quern_host_lane()->block_y; }
QUERN_FN void barrier() { quern_host_barrier(quern_host_lane()); }
QUERN_FN u32 barrier_zero() {
  barrier();
  return 0;
}
QUERN_FN void warp_barrier() { quern_host_exchange(quern_host_lane(), Collective::warp_barrier, nullptr, 0, nullptr); }

// Launches follow one another here.
QUERN_FN void wait_previous() {}
QUERN_FN void allow_next() {}

template <class T>
QUERN_FN T shuffle_xor(T v, int mask) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 4 or 8 bytes");
  HostLane* self = quern_host_lane();
  const T* all = static_cast<const T*>(quern_host_exchange(self, Collective::shuffle_xor, &v, sizeof(T), nullptr));
  return all[((self->thread_x & 31u) ^ static_cast<u32>(mask)) & 31u];
}
template <class T>
QUERN_FN T shuffle(T v, int source_lane) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 4 or 8 bytes");
  const T* all = static_cast<const T*>(quern_host_exchange(quern_host_lane(), Collective::shuffle, &v, sizeof(T), nullptr));
  return all[static_cast<u32>(source_lane) & 31u];
}

// The block's dynamic shared memory, 1024-byte aligned.
QUERN_FN u8* shared_memory() { return quern_host_lane()->shared; }

// The device faults on an access that is not naturally aligned; so does the host, in every build.
template <class T>
QUERN_FN const T* aligned(const T* p) {
  if (reinterpret_cast<u64>(p) & (sizeof(T) - 1)) quern_host_fault(quern_host_lane(), "misaligned load", p);
  return p;
}
QUERN_FN u32x4 load_stream(const u32x4* p) { return *aligned(p); }
QUERN_FN u32x2 load_stream(const u32x2* p) { return *aligned(p); }
QUERN_FN u32 load_stream(const u32* p) { return *aligned(p); }
QUERN_FN u16 load_stream(const u16* p) { return *aligned(p); }
QUERN_FN u8 load_stream(const u8* p) { return *p; }

QUERN_FN void prefetch_l2(const void*) {}

// Read-only data that several lanes or warps share.
template <class T>
QUERN_FN T load_cached(const T* p) {
  return *aligned(p);
}

QUERN_FN void check_shared16(HostLane* self, const void* shared) {
  const u64 offset = reinterpret_cast<u64>(shared) - reinterpret_cast<u64>(self->shared);
  if (offset & 15u) quern_host_fault(self, "misaligned shared address of a 16-byte access", shared);
  if (self->shared_bytes < 16 || offset > self->shared_bytes - 16) quern_host_fault(self, "16-byte access outside shared memory", shared);
}
// The source is read where the copy is issued, so that a sanitizer blames the line that issued it.
template <bool kLine = false>
QUERN_FN void cp_async16(void* shared, const void* global) {
  HostLane* self = quern_host_lane();
  check_shared16(self, shared);
  const u32x4 v = *aligned(static_cast<const u32x4*>(global));
  quern_host_copy(self, shared, &v);
}
// Copies the first `bytes` of 16 and zeroes the rest; reads nothing when bytes is 0.
template <bool kLine = false>
QUERN_FN void cp_async_zero16(void* shared, const void* global, int bytes) {
  HostLane* self = quern_host_lane();
  check_shared16(self, shared);
  if (bytes < 0 || bytes > 16) quern_host_fault(self, "cp.async of a size outside 0..16", global);
  aligned(static_cast<const u32x4*>(global));
  union {
    u32x4 vector;
    u8 byte[16];
  } v = {{0, 0, 0, 0}};
  for (int i = 0; i < bytes; ++i) v.byte[i] = static_cast<const u8*>(global)[i];
  quern_host_copy(self, shared, &v.vector);
}
QUERN_FN void cp_async_commit() { quern_host_copy_commit(quern_host_lane()); }
template <int kPending>
QUERN_FN void cp_async_wait() {
  quern_host_copy_wait(quern_host_lane(), kPending);
}

// Four products of bytes added to c: signed x signed, and unsigned x signed. The sum wraps.
template <class ByteA>
QUERN_FN i32 dp4a(u32 a, u32 b, i32 c) {
  u32 sum = static_cast<u32>(c);
  for (int i = 0; i < 32; i += 8)
    sum += static_cast<u32>(static_cast<i32>(static_cast<ByteA>(a >> i)) * static_cast<i32>(static_cast<i8>(b >> i)));
  return static_cast<i32>(sum);
}
QUERN_FN i32 dp4a_ss(u32 a, u32 b, i32 c) { return dp4a<i8>(a, b, c); }
QUERN_FN i32 dp4a_us(u32 a, u32 b, i32 c) { return dp4a<u8>(a, b, c); }
// Two products of signed halves of a and bytes first, first+1 of b.
template <class B>
QUERN_FN i32 dp2a(u32 a, u32 b, int first, i32 c) {
  u32 sum = static_cast<u32>(c);
  for (int i = 0; i < 2; ++i)
    sum += static_cast<u32>(static_cast<i32>(static_cast<i16>(a >> (16 * i))) * static_cast<i32>(static_cast<B>(b >> (8 * (first + i)))));
  return static_cast<i32>(sum);
}
QUERN_FN i32 dp2a_lo_ss(u32 a, u32 b, i32 c) { return dp2a<i8>(a, b, 0, c); }
QUERN_FN i32 dp2a_hi_su(u32 a, u32 b, i32 c) { return dp2a<u8>(a, b, 2, c); }
// Byte permute: byte i of the result is byte (selector nibble i) of {b,a}, for nibbles 8..15 eight copies of its sign bit.
QUERN_FN u32 prmt(u32 a, u32 b, u32 selector) {
  const u64 bytes = static_cast<u64>(b) << 32 | a;
  u32 r = 0;
  for (int i = 0; i < 4; ++i) {
    const u32 nibble = selector >> (4 * i), byte = static_cast<u32>(bytes >> ((nibble & 7u) * 8)) & 0xffu;
    r |= ((nibble & 8u) != 0 ? (byte >> 7) * 0xffu : byte) << (8 * i);
  }
  return r;
}
QUERN_FN u32 and_or(u32 a, u32 b, u32 c) { return (a & b) | c; }
QUERN_FN u32 mul_high(u32 a, u32 b) { return static_cast<u32>(static_cast<u64>(a) * b >> 32); }
// Low 32 bits of {high,low} >> shift; shift 0..31.
QUERN_FN u32 funnel_right(u32 low, u32 high, u32 shift) { return static_cast<u32>((static_cast<u64>(high) << 32 | low) >> (shift & 31u)); }

QUERN_FN u32 bits_of(f32 a) { return __builtin_bit_cast(u32, a); }
QUERN_FN f32 float_from_bits(u32 a) { return __builtin_bit_cast(f32, a); }

QUERN_FN f32 fma(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }
QUERN_FN f32 mul(f32 a, f32 b) { return a * b; }
QUERN_FN f32 add(f32 a, f32 b) { return a + b; }
QUERN_FN f32 sub(f32 a, f32 b) { return a - b; }
QUERN_FN f32 div(f32 a, f32 b) { return a / b; }
QUERN_FN f32 sqrt(f32 a) { return __builtin_sqrtf(a); }
// cvt.rni.s32.f32: half to even, saturating, 0 for NaN.
QUERN_FN i32 round_even(f32 a) {
  if (a != a) return 0;
  if (a >= 2147483648.0f) return 0x7fffffff;
  if (a <= -2147483648.0f) return -0x7fffffff - 1;
  return static_cast<i32>(__builtin_rintf(a));
}

QUERN_FN f32 to_f32(f32 v) { return v; }
QUERN_FN f32 to_f32(f16 v) {
  const u32 magnitude = v.bits & 0x7fffu;
  const u32 sign = static_cast<u32>(v.bits & 0x8000u) << 16;
  if (magnitude > 0x7c00u) return float_from_bits(0x7fffffffu);
  if (magnitude == 0x7c00u) return float_from_bits(sign | 0x7f800000u);
  // The exponent is 112 short of its f32 bias; the product by 2^112 is exact and normalizes denormals.
  return float_from_bits(sign | bits_of(float_from_bits(magnitude << 13) * float_from_bits(0x77800000u)));
}
QUERN_FN f32 to_f32(bf16 v) { return float_from_bits(static_cast<u32>(v.bits) << 16); }

// f32 to T, round to nearest even.
template <class T>
QUERN_FN T from_f32(f32 v);
template <>
QUERN_FN f32 from_f32<f32>(f32 v) {
  return v;
}
template <>
QUERN_FN f16 from_f32<f16>(f32 v) {
  const u32 magnitude = bits_of(v) & 0x7fffffffu;
  const u32 sign = bits_of(v) >> 16 & 0x8000u;
  u32 r;
  if (magnitude > 0x7f800000u) return f16{0x7fff};
  if (magnitude >= 0x477ff000u) {
    r = 0x7c00u;  // 65520 and above
  } else if (magnitude < 0x38800000u) {
    r = bits_of(float_from_bits(magnitude) + 0.5f) - 0x3f000000u;  // below 2^-14: the sum rounds to 2^-24, the denormals' unit
  } else {
    r = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  }
  return f16{static_cast<u16>(sign | r)};
}
template <>
QUERN_FN bf16 from_f32<bf16>(f32 v) {
  const u32 b = bits_of(v);
  if ((b & 0x7fffffffu) > 0x7f800000u) return bf16{0x7fff};
  return bf16{static_cast<u16>((b + 0x7fffu + (b >> 16 & 1u)) >> 16)};
}

// `low` lands in bits 0-15.
QUERN_FN u32 pack_f16x2(f32 low, f32 high) { return from_f32<f16>(low).bits | static_cast<u32>(from_f32<f16>(high).bits) << 16; }
QUERN_FN u32 pack_bf16x2(f32 low, f32 high) { return from_f32<bf16>(low).bits | static_cast<u32>(from_f32<bf16>(high).bits) << 16; }

QUERN_FN u64 bits_of(double a) { return __builtin_bit_cast(u64, a); }
QUERN_FN double double_from_bits(u64 a) { return __builtin_bit_cast(double, a); }

// double to a float of 16 bits with kMantissa stored mantissa bits and least exponent kMinExponent, in one rounding.
template <int kMantissa, int kMinExponent>
QUERN_FN u16 round_to_16(double v) {
  constexpr int kDrop = 52 - kMantissa;
  constexpr u64 kInfinity = 0x7fffull >> kMantissa << kMantissa;
  constexpr u64 kMinNormal = static_cast<u64>(1023 + kMinExponent) << 52;
  // Adding this to a value below the least normal rounds it to the denormals' unit, 2^(kMinExponent - kMantissa).
  constexpr u64 kMagic = static_cast<u64>(1023 + kMinExponent - kMantissa + 52) << 52;
  const u64 magnitude = bits_of(v) & ~(1ull << 63);
  const u16 sign = static_cast<u16>(bits_of(v) >> 48 & 0x8000u);
  if (magnitude > 0x7ff0000000000000ull) return 0x7fff;
  u64 r;
  if (magnitude < kMinNormal) {
    r = bits_of(double_from_bits(magnitude) + double_from_bits(kMagic)) - kMagic;
  } else {
    r = (magnitude - kMinNormal + (1ull << 52) + (1ull << (kDrop - 1)) - 1 + (magnitude >> kDrop & 1u)) >> kDrop;
  }
  return static_cast<u16>(sign | (r < kInfinity ? r : kInfinity));
}
QUERN_FN u16 round_to_f16(double v) { return round_to_16<10, -14>(v); }
QUERN_FN u16 round_to_bf16(double v) { return round_to_16<7, -126>(v); }

// a + b with the lost tail folded into the last bit (round to odd), so that a second rounding gives what one would have given.
QUERN_FN double add_odd(double a, double b) {
  const double sum = a + b;
  const double virtual_b = sum - a;
  const double tail = (a - (sum - virtual_b)) + (b - virtual_b);
  const u64 bits = bits_of(sum);
  if (!(tail < 0 || tail > 0) || (bits & 1u) || (bits & 0x7ff0000000000000ull) == 0x7ff0000000000000ull) return sum;
  const bool away_from_zero = (tail > 0) == (sum > 0);
  return double_from_bits(away_from_zero ? bits + 1 : bits - 1);
}

QUERN_FN double half_of(u32 pair, int i, f16*) { return to_f32(f16{static_cast<u16>(pair >> (16 * i))}); }
QUERN_FN double half_of(u32 pair, int i, bf16*) { return to_f32(bf16{static_cast<u16>(pair >> (16 * i))}); }

// Products and sums of two f16 are exact in double; a sum of three terms need not be, hence add_odd.
QUERN_FN u32 mul_f16x2(u32 a, u32 b) {
  u32 r = 0;
  for (int i = 0; i < 2; ++i) r |= static_cast<u32>(round_to_f16(half_of(a, i, (f16*)nullptr) * half_of(b, i, (f16*)nullptr))) << (16 * i);
  return r;
}
QUERN_FN u32 sub_f16x2(u32 a, u32 b) {
  u32 r = 0;
  for (int i = 0; i < 2; ++i) r |= static_cast<u32>(round_to_f16(half_of(a, i, (f16*)nullptr) - half_of(b, i, (f16*)nullptr))) << (16 * i);
  return r;
}
QUERN_FN u32 fma_f16x2(u32 a, u32 b, u32 c) {
  u32 r = 0;
  for (int i = 0; i < 2; ++i) {
    const double product = half_of(a, i, (f16*)nullptr) * half_of(b, i, (f16*)nullptr);
    r |= static_cast<u32>(round_to_f16(add_odd(product, half_of(c, i, (f16*)nullptr)))) << (16 * i);
  }
  return r;
}
QUERN_FN u32 fma_bf16x2(u32 a, u32 b, u32 c) {
  u32 r = 0;
  for (int i = 0; i < 2; ++i) {
    const double product = half_of(a, i, (bf16*)nullptr) * half_of(b, i, (bf16*)nullptr);
    r |= static_cast<u32>(round_to_bf16(add_odd(product, half_of(c, i, (bf16*)nullptr)))) << (16 * i);
  }
  return r;
}
QUERN_FN u32 mul_bf16x2(u32 a, u32 b) { return fma_bf16x2(a, b, 0x80008000u); }
QUERN_FN u32 sub_bf16x2(u32 a, u32 b) { return fma_bf16x2(b, 0xbf80bf80u, a); }

// Four 8x8 matrices of 16-bit elements; lane i gives the address of row i%8 of matrix i/8.
QUERN_FN void ldmatrix_x4(u32 (&r)[4], const void* shared_row) {
  HostLane* self = quern_host_lane();
  check_shared16(self, shared_row);
  const u32 lane = self->thread_x & 31u;
  const void* const* rows =
      static_cast<const void* const*>(quern_host_exchange(self, Collective::ldmatrix_x4, &shared_row, sizeof(void*), nullptr));
  for (u32 i = 0; i < 4; ++i) r[i] = static_cast<const u32*>(rows[8 * i + lane / 4])[lane % 4];
}
// The same with each matrix transposed: lane 4g+t receives rows 2t and 2t+1 of column g.
QUERN_FN void ldmatrix_x4_trans(u32 (&r)[4], const void* shared_row) {
  HostLane* self = quern_host_lane();
  check_shared16(self, shared_row);
  const u32 lane = self->thread_x & 31u;
  const void* const* rows =
      static_cast<const void* const*>(quern_host_exchange(self, Collective::ldmatrix_x4, &shared_row, sizeof(void*), nullptr));
  for (u32 i = 0; i < 4; ++i) {
    const void* const* matrix = rows + 8 * i;
    const u32 row = 2 * (lane % 4), column = lane / 4;
    r[i] = static_cast<const u16*>(matrix[row])[column] | static_cast<u32>(static_cast<const u16*>(matrix[row + 1])[column]) << 16;
  }
}

// c[16x8] += a[16x16] * b[16x8]. Lane 4g+t holds a: rows g (a0,a2) and g+8 (a1,a3), columns 2t,2t+1 (a0,a1) and 2t+8,2t+9 (a2,a3);
// b: column g, rows 2t,2t+1 (b0) and 2t+8,2t+9 (b1); c: row g (c0,c1) and g+8 (c2,c3), columns 2t,2t+1.
struct MmaDeposit {
  u32 a[4], b[2];
  f32 c[4];
};
// The whole warp's product, computed once by the last lane to arrive: the sum runs over k from 0 to 15, each step rounded to f32.
template <class T>
void combine_mma(void* deposits) {
  MmaDeposit* lanes = static_cast<MmaDeposit*>(deposits);
  f32 a[16][16], b[16][8], c[16][8];
  for (int l = 0; l < 32; ++l) {
    const int g = l / 4, t = l % 4;
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < 4; ++i)
        a[g + 8 * (i & 1)][2 * t + 8 * (i >> 1) + half] = to_f32(T{static_cast<u16>(lanes[l].a[i] >> (16 * half))});
      for (int i = 0; i < 2; ++i) b[2 * t + 8 * i + half][g] = to_f32(T{static_cast<u16>(lanes[l].b[i] >> (16 * half))});
      for (int i = 0; i < 2; ++i) c[g + 8 * i][2 * t + half] = lanes[l].c[2 * i + half];
    }
  }
  for (int row = 0; row < 16; ++row)
    for (int k = 0; k < 16; ++k)
      for (int column = 0; column < 8; ++column) c[row][column] += a[row][k] * b[k][column];
  for (int l = 0; l < 32; ++l)
    for (int i = 0; i < 4; ++i) lanes[l].c[i] = c[l / 4 + 8 * (i >> 1)][2 * (l % 4) + (i & 1)];
}
template <class T>
QUERN_FN void mma(f32 (&c)[4], const u32 (&a)[4], u32 b0, u32 b1, Collective collective) {
  HostLane* self = quern_host_lane();
  const MmaDeposit mine{{a[0], a[1], a[2], a[3]}, {b0, b1}, {c[0], c[1], c[2], c[3]}};
  const MmaDeposit* all = static_cast<const MmaDeposit*>(quern_host_exchange(self, collective, &mine, sizeof mine, combine_mma<T>));
  for (int i = 0; i < 4; ++i) c[i] = all[self->thread_x & 31u].c[i];
}
QUERN_FN void mma_f16(f32 (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) { mma<f16>(c, a, b0, b1, Collective::mma_f16); }
QUERN_FN void mma_bf16(f32 (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) { mma<bf16>(c, a, b0, b1, Collective::mma_bf16); }

// c[16x8] += a[16x32] * b[32x8] in i32. Lane 4g+t holds a: rows g (a0,a2) and g+8 (a1,a3), columns 4t..4t+3 (a0,a1) and 4t+16..4t+19
// (a2,a3); b: column g, rows 4t..4t+3 (b0) and 4t+16..4t+19 (b1); c as above.
struct MmaS8Deposit {
  u32 a[4], b[2];
  i32 c[4];
};
QUERN_FN i32 signed_byte(u32 word, int i) { return static_cast<i32>(word << (24 - 8 * i)) >> 24; }
inline void combine_mma_s8(void* deposits) {
  MmaS8Deposit* lanes = static_cast<MmaS8Deposit*>(deposits);
  i32 a[16][32], b[32][8];
  for (int l = 0; l < 32; ++l)
    for (int byte = 0; byte < 4; ++byte) {
      const int g = l / 4, k = l % 4 * 4 + byte;
      for (int i = 0; i < 4; ++i) a[g + 8 * (i & 1)][k + 16 * (i >> 1)] = signed_byte(lanes[l].a[i], byte);
      for (int i = 0; i < 2; ++i) b[k + 16 * i][g] = signed_byte(lanes[l].b[i], byte);
    }
  for (int l = 0; l < 32; ++l)
    for (int i = 0; i < 4; ++i)
      for (int k = 0; k < 32; ++k) lanes[l].c[i] += a[l / 4 + 8 * (i >> 1)][k] * b[k][2 * (l % 4) + (i & 1)];
}
QUERN_FN void mma_s8(i32 (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  HostLane* self = quern_host_lane();
  const MmaS8Deposit mine{{a[0], a[1], a[2], a[3]}, {b0, b1}, {c[0], c[1], c[2], c[3]}};
  const MmaS8Deposit* all =
      static_cast<const MmaS8Deposit*>(quern_host_exchange(self, Collective::mma_s8, &mine, sizeof mine, combine_mma_s8));
  for (int i = 0; i < 4; ++i) c[i] = all[self->thread_x & 31u].c[i];
}

}  // namespace quern::ptx

// The hardware header's CUDA body: thin wrappers, one instruction each wherever one exists.
#pragma once

#include "ptx/types.h"

#define QUERN_FN __device__ __forceinline__
// A kernel entry: QUERN_KERNEL(name, threads, min_blocks)(quern::KernelArgs args) { ... }
#define QUERN_KERNEL(name, threads, min_blocks) extern "C" __global__ void __launch_bounds__(threads, min_blocks) name
#define QUERN_GRID_CONSTANT const __grid_constant__
// A look-up table at namespace scope: QUERN_TABLE u32 name[n] = {...};
#define QUERN_TABLE static __device__ const
#define QUERN_UNROLL _Pragma("unroll")
#define QUERN_PRAGMA(text) _Pragma(#text)
#define QUERN_UNROLL_BY(count) QUERN_PRAGMA(unroll count)

extern __shared__ __align__(1024) unsigned char quern_shared_arena[];

namespace quern::ptx {

#if __CUDA_ARCH__ >= 800
inline constexpr bool kHasAsyncCopy = true;
#else
inline constexpr bool kHasAsyncCopy = false;
#endif

QUERN_FN int thread_x() { return static_cast<int>(threadIdx.x); }
QUERN_FN int lane() { return static_cast<int>(threadIdx.x & 31u); }
QUERN_FN int warp() { return static_cast<int>(threadIdx.x >> 5); }
QUERN_FN i64 block_x() { return static_cast<i64>(blockIdx.x); }
QUERN_FN i64 block_y() { return static_cast<i64>(blockIdx.y); }
QUERN_FN void barrier() { __syncthreads(); }
// A barrier that returns zero, which the compiler cannot know: what is combined with it cannot be computed before the barrier.
QUERN_FN u32 barrier_zero() { return static_cast<u32>(__syncthreads_or(0)); }
QUERN_FN void warp_barrier() { __syncwarp(); }

template <class T>
QUERN_FN T shuffle_xor(T v, int mask) {
  return __shfl_xor_sync(0xffffffffu, v, mask);
}
template <class T>
QUERN_FN T shuffle(T v, int source_lane) {
  return __shfl_sync(0xffffffffu, v, source_lane);
}

// The block's dynamic shared memory, 1024-byte aligned.
QUERN_FN u8* shared_memory() { return quern_shared_arena; }

QUERN_FN u32 shared_address(const void* p) { return static_cast<u32>(__cvta_generic_to_shared(p)); }

// A launch that overlaps the one before it calls wait_previous() before it touches what that one may touch; allow_next() lets the one
// behind it begin, as soon as all blocks have called it. Without hardware support a launch waits for its predecessor anyway.
QUERN_FN void wait_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
QUERN_FN void allow_next() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Weights are read once, but a lane's 32 bytes in two halves of a sector: with no_allocate each half fetched the sector from L2 anew (1024
// bytes for 512 by ncu), evict_first keeps it until the second. Not .nc, though nobody writes them while the kernel works: it begins while
// the launch before it may still write them, and ptxas moves such loads ahead of wait_previous().
QUERN_FN u32x4 load_stream(const u32x4* p) {
  u32x4 v;
  asm volatile("ld.global.L1::evict_first.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}
QUERN_FN u32x2 load_stream(const u32x2* p) {
  u32x2 v;
  asm volatile("ld.global.L1::evict_first.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
  return v;
}
QUERN_FN u32 load_stream(const u32* p) {
  u32 v;
  asm volatile("ld.global.L1::evict_first.u32 %0, [%1];" : "=r"(v) : "l"(p));
  return v;
}
QUERN_FN u16 load_stream(const u16* p) {
  u16 v;
  asm volatile("ld.global.L1::evict_first.u16 %0, [%1];" : "=h"(v) : "l"(p));
  return v;
}
QUERN_FN u8 load_stream(const u8* p) {
  u32 v;
  asm volatile("ld.global.L1::evict_first.u8 %0, [%1];" : "=r"(v) : "l"(p));
  return static_cast<u8>(v);
}

// Starts bringing the line at `p` into L2.
QUERN_FN void prefetch_l2(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

// Read-only data that several lanes or warps share.
template <class T>
QUERN_FN T load_cached(const T* p) {
  return *p;
}

// With kLine, of a line of 128 bytes that is read as a whole: L2 is told to bring it at once (`prefetch size`).
template <bool kLine = false>
QUERN_FN void cp_async16(void* shared, const void* global) {
#if __CUDA_ARCH__ >= 800
  if constexpr (kLine)
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared_address(shared)), "l"(global) : "memory");
  else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(shared)), "l"(global) : "memory");
#else
  *static_cast<u32x4*>(shared) = *static_cast<const u32x4*>(global);
#endif
}
// Copies the first `bytes` of 16 and zeroes the rest; reads nothing when bytes is 0.
template <bool kLine = false>
QUERN_FN void cp_async_zero16(void* shared, const void* global, int bytes) {
#if __CUDA_ARCH__ >= 800
  if constexpr (kLine)
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global), "r"(bytes)
                 : "memory");
  else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global), "r"(bytes) : "memory");
#else
  u32x4 v{0, 0, 0, 0};
  for (int i = 0; i < bytes; ++i) reinterpret_cast<u8*>(&v)[i] = static_cast<const u8*>(global)[i];
  *static_cast<u32x4*>(shared) = v;
#endif
}
QUERN_FN void cp_async_commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int kPending>
QUERN_FN void cp_async_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#endif
}

// Four products of bytes added to c: signed x signed, and unsigned x signed.
QUERN_FN i32 dp4a_ss(u32 a, u32 b, i32 c) {
  i32 d;
  asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}
QUERN_FN i32 dp4a_us(u32 a, u32 b, i32 c) {
  i32 d;
  asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}
// Two products of signed halves of a and bytes of b added to c: bytes 0 and 1 (lo) or 2 and 3 (hi), signed or unsigned.
QUERN_FN i32 dp2a_lo_ss(u32 a, u32 b, i32 c) {
  i32 d;
  asm("dp2a.lo.s32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}
QUERN_FN i32 dp2a_hi_su(u32 a, u32 b, i32 c) {
  i32 d;
  asm("dp2a.hi.s32.u32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}
// Byte permute: byte i of the result is byte (selector nibble i) of {b,a}, for nibbles 8..15 eight copies of its sign bit. The instruction
// itself: __byte_perm takes a mask more, two instructions of 14 in a look-up of eight nibbles.
QUERN_FN u32 prmt(u32 a, u32 b, u32 selector) {
  u32 d;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(selector));
  return d;
}
// (a & b) | c. One instruction although b and c are constants: the compiler makes two, each with its own.
QUERN_FN u32 and_or(u32 a, u32 b, u32 c) {
  u32 d;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}
// High 32 bits of a * b.
QUERN_FN u32 mul_high(u32 a, u32 b) { return __umulhi(a, b); }
// Low 32 bits of {high,low} >> shift; shift 0..31.
QUERN_FN u32 funnel_right(u32 low, u32 high, u32 shift) { return __funnelshift_r(low, high, shift); }

QUERN_FN f32 fma(f32 a, f32 b, f32 c) { return __fmaf_rn(a, b, c); }
QUERN_FN f32 mul(f32 a, f32 b) { return __fmul_rn(a, b); }
QUERN_FN f32 add(f32 a, f32 b) { return __fadd_rn(a, b); }
QUERN_FN f32 sub(f32 a, f32 b) { return __fsub_rn(a, b); }
QUERN_FN f32 div(f32 a, f32 b) { return __fdiv_rn(a, b); }
QUERN_FN f32 sqrt(f32 a) { return __fsqrt_rn(a); }
QUERN_FN i32 round_even(f32 a) { return __float2int_rn(a); }
QUERN_FN u32 bits_of(f32 a) { return __float_as_uint(a); }
QUERN_FN f32 float_from_bits(u32 a) { return __uint_as_float(a); }

QUERN_FN f32 to_f32(f32 v) { return v; }
QUERN_FN f32 to_f32(f16 v) {
  f32 r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(v.bits));
  return r;
}
QUERN_FN f32 to_f32(bf16 v) { return __uint_as_float(static_cast<u32>(v.bits) << 16); }

// f32 to T, round to nearest even.
template <class T>
QUERN_FN T from_f32(f32 v);
template <>
QUERN_FN f32 from_f32<f32>(f32 v) {
  return v;
}
template <>
QUERN_FN f16 from_f32<f16>(f32 v) {
  f16 r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r.bits) : "f"(v));
  return r;
}
template <>
QUERN_FN bf16 from_f32<bf16>(f32 v) {
  bf16 r;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r.bits) : "f"(v));
#else
  u32 b = __float_as_uint(v);
  bool nan = (b & 0x7fffffffu) > 0x7f800000u;
  r.bits = nan ? static_cast<u16>(0x7fff) : static_cast<u16>((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
#endif
  return r;
}

// `low` lands in bits 0-15.
QUERN_FN u32 pack_f16x2(f32 low, f32 high) {
  u32 r;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
#else
  r = from_f32<f16>(low).bits | static_cast<u32>(from_f32<f16>(high).bits) << 16;
#endif
  return r;
}
QUERN_FN u32 pack_bf16x2(f32 low, f32 high) {
  u32 r;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
#else
  r = from_f32<bf16>(low).bits | static_cast<u32>(from_f32<bf16>(high).bits) << 16;
#endif
  return r;
}
QUERN_FN u32 mul_f16x2(u32 a, u32 b) {
  u32 r;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}
QUERN_FN u32 sub_f16x2(u32 a, u32 b) {
  u32 r;
  asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}
QUERN_FN u32 fma_f16x2(u32 a, u32 b, u32 c) {
  u32 r;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
}
#if __CUDA_ARCH__ >= 800
QUERN_FN u32 fma_bf16x2(u32 a, u32 b, u32 c) {
  u32 r;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
}
// Products and differences as fused forms with exact neutral elements: bf16 has no mul or sub before sm_90.
QUERN_FN u32 mul_bf16x2(u32 a, u32 b) { return fma_bf16x2(a, b, 0x80008000u); }
QUERN_FN u32 sub_bf16x2(u32 a, u32 b) { return fma_bf16x2(b, 0xbf80bf80u, a); }

// Four 8x8 matrices of 16-bit elements; lane i gives the address of row i%8 of matrix i/8.
QUERN_FN void ldmatrix_x4(u32 (&r)[4], const void* shared_row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(shared_row)));
}
// The same with each matrix transposed: lane 4g+t receives rows 2t and 2t+1 of column g.
QUERN_FN void ldmatrix_x4_trans(u32 (&r)[4], const void* shared_row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(shared_row)));
}

// c[16x8] += a[16x16] * b[16x8]. Lane 4g+t holds a: rows g (a0,a2) and g+8 (a1,a3), columns 2t,2t+1 (a0,a1) and 2t+8,2t+9 (a2,a3);
// b: column g, rows 2t,2t+1 (b0) and 2t+8,2t+9 (b1); c: row g (c0,c1) and g+8 (c2,c3), columns 2t,2t+1.
QUERN_FN void mma_f16(f32 (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// c[16x8] += a[16x32] * b[32x8] in i32. Lane 4g+t holds a: rows g (a0,a2) and g+8 (a1,a3), columns 4t..4t+3 (a0,a1) and 4t+16..4t+19
// (a2,a3); b: column g, rows 4t..4t+3 (b0) and 4t+16..4t+19 (b1); c as above.
QUERN_FN void mma_s8(i32 (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
QUERN_FN void mma_bf16(f32 (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif

}  // namespace quern::ptx

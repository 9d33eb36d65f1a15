// Warpgroup matrix multiply (sm_90a): asynchronous products of 64 rows held in the registers of four warps with tokens in shared memory.
#pragma once

#include "ptx/types.h"

namespace quern::ptx {

// Accumulators and operand registers are the warpgroup's until wgmma_wait; wgmma_fence orders what was written to them before.
QUERN_FN void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
QUERN_FN void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits for every committed product; nothing that reads `c` may move above it.
template <int kFrags>
QUERN_FN void wgmma_wait(f32 (&c)[kFrags][4]) {
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  QUERN_UNROLL
  for (int i = 0; i < kFrags; ++i) asm volatile("" : "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])::"memory");
}
// Orders this thread's shared-memory writes before the tensor cores' reads of them.
QUERN_FN void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Descriptors, 128-byte swizzle: bits 0-13 start address / 16, 16-29 leading offset / 16, 32-45 stride / 16, 62-63 swizzle mode 1.
// By rows: 8*kFrags rows of 64 values along the reduction, 128 bytes each, 1024 bytes between groups of eight; no leading offset.
// Transposed: rows of the reduction, each 64 of the 8*kFrags columns in 128 bytes; 1024 bytes between groups of eight rows, `chunk_bytes`
// from 64 columns to the next.
QUERN_FN u64 wgmma_descriptor(const void* shared, u32 chunk_bytes) {
  return static_cast<u64>((shared_address(shared) & 0x3ffffu) >> 4) | static_cast<u64>(chunk_bytes >> 4) << 16 | 64ull << 32 | 1ull << 62;
}

// c[64 x 8*kFrags] += a[64x16] * b, per warp of the group c and a as in mma_f16.
// By rows: b is the first of 8*kFrags rows, at the 32 bytes of its swizzled 128 that hold these 16 values.
// kTransposed: b is the first of 16 rows of the reduction.
template <bool kBf16, int kFrags, bool kTransposed = false>
struct Wgmma;

#define QUERN_C4(i) "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
#define QUERN_C16(i) QUERN_C4(i), QUERN_C4(i + 1), QUERN_C4(i + 2), QUERN_C4(i + 3)
#define QUERN_C32(i) QUERN_C16(i), QUERN_C16(i + 4)
#define QUERN_C64(i) QUERN_C32(i), QUERN_C32(i + 8)
#define QUERN_C128(i) QUERN_C64(i), QUERN_C64(i + 16)
#define QUERN_D32                                                                                                       \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, " \
  "%25, %26, %27, %28, %29, %30, %31"
#define QUERN_D64                                                                                                       \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, " \
  "%25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define QUERN_D128                                                                                                      \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, " \
  "%25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, " \
  "%71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, " \
  "%94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, "  \
  "%114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

#define QUERN_C_8 QUERN_C32(0)
#define QUERN_C_16 QUERN_C64(0)
#define QUERN_C_32 QUERN_C128(0)

// One instruction: its shape, the type of its operands, its accumulators' text, and the numbers of the operands behind them.
#define QUERN_WGMMA(BF16, FRAGS, SHAPE, TYPE, D, A0, A1, A2, A3, B, T)                                                             \
  template <bool kTransposed>                                                                                                      \
  struct Wgmma<BF16, FRAGS, kTransposed> {                                                                                         \
    static QUERN_FN void multiply(f32 (&c)[FRAGS][4], const u32 (&a)[4], const void* b, u32 chunk_bytes = 16) {                    \
      asm volatile("wgmma.mma_async.sync.aligned." SHAPE ".f32." TYPE "." TYPE " {" D "}, {" A0 ", " A1 ", " A2 ", " A3 "}, " B    \
                   ", 1, 1, 1, " T ";"                                                                                             \
                   : QUERN_C_##FRAGS                                                                                               \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(wgmma_descriptor(b, chunk_bytes)), "n"(kTransposed ? 1 : 0)); \
    }                                                                                                                              \
  };
#define QUERN_WGMMA_SHAPE(FRAGS, SHAPE, D, A0, A1, A2, A3, B, T)   \
  QUERN_WGMMA(false, FRAGS, SHAPE, "f16", D, A0, A1, A2, A3, B, T) \
  QUERN_WGMMA(true, FRAGS, SHAPE, "bf16", D, A0, A1, A2, A3, B, T)

QUERN_WGMMA_SHAPE(8, "m64n64k16", QUERN_D32, "%32", "%33", "%34", "%35", "%36", "%37")
QUERN_WGMMA_SHAPE(16, "m64n128k16", QUERN_D64, "%64", "%65", "%66", "%67", "%68", "%69")
QUERN_WGMMA_SHAPE(32, "m64n256k16", QUERN_D128, "%128", "%129", "%130", "%131", "%132", "%133")

#undef QUERN_WGMMA
#undef QUERN_WGMMA_SHAPE
#undef QUERN_C_8
#undef QUERN_C_16
#undef QUERN_C_32
#undef QUERN_C4
#undef QUERN_C16
#undef QUERN_C32
#undef QUERN_C64
#undef QUERN_C128
#undef QUERN_D32
#undef QUERN_D64
#undef QUERN_D128

}  // namespace quern::ptx

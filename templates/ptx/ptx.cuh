// The hardware, in one header with two bodies. Everything a template does that C++ cannot say goes through here:
//
//   indices      thread_x() lane() warp() block_x() block_y()      blocks are one-dimensional, warps are 32 lanes; y counts matrices
//   barriers     barrier() barrier_zero() warp_barrier()
//   launches     wait_previous() allow_next()                      overlapping the launch before it
//   warp         shuffle_xor(v, mask) shuffle(v, source_lane)      all 32 lanes take part; T is 4 or 8 bytes
//   memory       shared_memory() load_stream(p) load_cached(p) prefetch_l2(p)   loads of 1, 2, 4, 8 or 16 bytes, naturally aligned
//   copies       cp_async16<line>(shared, global) cp_async_zero16<line>(shared, global, bytes) cp_async_commit() cp_async_wait<N>()
//   integers     dp4a_ss dp4a_us dp2a_lo_ss dp2a_hi_su prmt and_or mul_high funnel_right
//   floats       fma mul add sub div sqrt (each one rounding, never contracted) to_f32 from_f32<T> bits_of float_from_bits round_even
//   packed       f16x2 / bf16x2: pack_f16x2 pack_bf16x2 mul_f16x2 sub_f16x2 fma_f16x2 mul_bf16x2 sub_bf16x2 fma_bf16x2
//   matrices     ldmatrix_x4 ldmatrix_x4_trans mma_f16 mma_bf16    m16n8k16, f32 accumulation
//                mma_s8                                            m16n8k32, i32 accumulation
//   tables       QUERN_TABLE type name[n] = {...}                  constants at namespace scope, looked up through load_cached
//
// device.cuh is PTX; host.cuh computes the same values on the CPU, where every lane is a fiber and every barrier, shuffle, ldmatrix and mma
// is a scheduling point.
#pragma once

#include "ptx/types.h"

#if defined(__CUDACC_RTC__) || defined(__CUDA_ARCH__)
#include "ptx/device.cuh"
#else
#include "ptx/host.cuh"
#endif

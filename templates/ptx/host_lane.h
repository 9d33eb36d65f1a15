// What a kernel on the host target asks of the machinery that runs it: one lane's coordinates, and the scheduling points. The plugin
// defines these functions and resolves them when it loads an object; their addresses are never stored in one.
#pragma once

#include "ptx/types.h"

namespace quern::ptx {

// Coordinates of one CUDA thread. Constant for as long as the kernel runs on it.
struct HostLane {
  u32 thread_x;
  u32 shared_bytes;  // dynamic shared memory of the block
  i64 block_x, block_y;
  u8* shared;  // 1024-byte aligned
};

// What all 32 lanes of a warp must be doing at the same time. Two lanes that meet with different values are a divergent collective.
enum class Collective : u32 { warp_barrier, shuffle_xor, shuffle, ldmatrix_x4, mma_f16, mma_bf16, mma_s8 };

inline constexpr u32 kMaxDepositBytes = 64;

}  // namespace quern::ptx

extern "C" {

// The lane that is running. A fiber stays on its OS thread, hence const: one call per kernel is enough.
quern::ptx::HostLane* quern_host_lane() __attribute__((const));

// Returns when every thread of the block has called it.
void quern_host_barrier(quern::ptx::HostLane* lane);

// Deposits `bytes` (at most kMaxDepositBytes) and returns when all 32 lanes of the warp have: the result is 32 deposits, lane after lane,
// valid until this lane's next exchange. `combine`, when not null, runs once over all deposits before any lane returns.
void* quern_host_exchange(quern::ptx::HostLane* lane, quern::ptx::Collective collective, const void* deposit, quern::u32 bytes,
                          void (*combine)(void* deposits));

// cp.async: `value` lands at `shared` no later than the wait that covers its group.
void quern_host_copy(quern::ptx::HostLane* lane, void* shared, const quern::u32x4* value);
void quern_host_copy_commit(quern::ptx::HostLane* lane);
void quern_host_copy_wait(quern::ptx::HostLane* lane, int pending);

// Ends the launch with an error: what is wrong, and the address.
[[noreturn]] void quern_host_fault(quern::ptx::HostLane* lane, const char* what, const void* address);

}  // extern "C"

#include "runtime/host/block_runner.h"

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) (static_cast<void>(address), static_cast<void>(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) (static_cast<void>(address), static_cast<void>(size))
#endif

namespace quern::host {
namespace {

// Unwritten shared memory reads as this in every byte: a NaN in every float format, -1 in every integer.
constexpr int kPoison = 0xff;
// Bytes after the block's shared memory that must stay as they are.
constexpr std::size_t kCanaryBytes = 256;
constexpr std::uint8_t kCanary = 0xa5;
constexpr std::size_t kSharedAlignment = 1024;
constexpr std::uint32_t kAllLanes = 0xffffffffu;

// One access without a call: the plugin is loaded once and needs eight bytes of the static TLS reserve.
__attribute__((tls_model("initial-exec"))) thread_local ptx::HostLane* running_lane = nullptr;
__attribute__((tls_model("initial-exec"))) thread_local BlockRunner* running_block = nullptr;

const char* name_of(ptx::Collective collective) {
  switch (collective) {
    case ptx::Collective::warp_barrier:
      return "warp_barrier";
    case ptx::Collective::shuffle_xor:
      return "shuffle_xor";
    case ptx::Collective::shuffle:
      return "shuffle";
    case ptx::Collective::ldmatrix_x4:
      return "ldmatrix_x4";
    case ptx::Collective::mma_f16:
      return "mma_f16";
    case ptx::Collective::mma_bf16:
      return "mma_bf16";
    case ptx::Collective::mma_s8:
      return "mma_s8";
  }
  return "?";
}

// Sizes known at compile time where they are hot.
void deposit_bytes(std::uint8_t* slot, const void* deposit, std::uint32_t bytes) {
  if (bytes == 4) {
    std::memcpy(slot, deposit, 4);
  } else if (bytes == 8) {
    std::memcpy(slot, deposit, 8);
  } else if (bytes != 0) {
    std::memcpy(slot, deposit, bytes);
  }
}

}  // namespace

BlockRunner::BlockRunner() : fibers_(&BlockRunner::run_lanes, this), lanes_(kMaxThreads), warps_(kMaxThreads / kWarp) {}

BlockRunner::~BlockRunner() {
  ASAN_UNPOISON_MEMORY_REGION(shared_, shared_capacity_);
  std::free(shared_);
}

bool BlockRunner::prepare(const BlockLaunch& launch, std::int64_t block) {
  launch_ = launch;
  block_ = block;
  const std::size_t needed = (launch.shared_bytes + kCanaryBytes + kSharedAlignment - 1) / kSharedAlignment * kSharedAlignment;
  ASAN_UNPOISON_MEMORY_REGION(shared_, shared_capacity_);
  if (needed > shared_capacity_) {
    std::free(shared_);
    shared_ = static_cast<std::uint8_t*>(std::aligned_alloc(kSharedAlignment, needed));
    shared_capacity_ = shared_ == nullptr ? 0 : needed;
    if (shared_ == nullptr) return false;
  }
  std::memset(shared_, kPoison, launch.shared_bytes);
  std::memset(shared_ + launch.shared_bytes, kCanary, kCanaryBytes);
  ASAN_POISON_MEMORY_REGION(shared_ + launch.shared_bytes, shared_capacity_ - launch.shared_bytes);

  for (std::uint32_t i = 0; i < launch.threads; ++i) {
    Lane& lane = lanes_[i];
    lane.thread_x = i;
    lane.shared_bytes = launch.shared_bytes;
    lane.block_x = block % launch.grid_x;
    lane.block_y = block / launch.grid_x;
    lane.shared = shared_;
    lane.fiber = nullptr;
    lane.waiting = Waiting::no;
    lane.returned = false;
    lane.open_group = 0;
    lane.copies.clear();
  }
  const std::uint32_t warps = launch.threads / kWarp;
  for (std::uint32_t w = 0; w < warps; ++w) {
    warps_[w].ready = kAllLanes;
    warps_[w].arrived = 0;
    warps_[w].parity = 0;
  }
  ready_warps_ = warps == 32 ? kAllLanes : (1u << warps) - 1;
  at_barrier_ = returned_ = 0;
  random_state_ = (launch.seed + 0x9e3779b97f4a7c15ull) ^ (static_cast<std::uint64_t>(block) * 0xbf58476d1ce4e5b9ull);
  if (random_state_ == 0) random_state_ = 1;
  error_.clear();
  return true;
}

bool BlockRunner::run(const BlockLaunch& launch, std::int64_t block) {
  if (!prepare(launch, block)) {
    error_ = "no memory for " + std::to_string(launch.shared_bytes) + " bytes of shared memory";
    return false;
  }
  running_block = this;
  Fiber* first = fibers_.take();
  if (first == nullptr) {
    error_ = "no memory for the stack of a fiber";
    return false;
  }
  current_ = next_lane();
  fibers_.switch_to(first);
  running_block = nullptr;
  if (!error_.empty()) {
    fibers_.abandon();
    return false;
  }
  if (canary_intact()) return true;
  error_ = "kernel " + launch.function->name + ", block " + std::to_string(block) + ": wrote past its " +
           std::to_string(launch.shared_bytes) + " bytes of shared memory";
  return false;
}

__attribute__((no_sanitize("address"))) bool BlockRunner::canary_intact() const {
  for (std::size_t i = 0; i < kCanaryBytes; ++i)
    if (shared_[launch_.shared_bytes + i] != kCanary) return false;
  return true;
}

// The body of every fiber: runs current_, then whichever lane is next, on this fiber as long as that lane has not started on another.
void BlockRunner::run_lanes(void* self) {
  auto& block = *static_cast<BlockRunner*>(self);
  for (;;) {
    Lane* lane = block.current_;
    lane->fiber = block.fibers_.active();
    running_lane = lane;
    block.launch_.function->entry(*block.launch_.args);
    lane->returned = true;
    ++block.returned_;
    Lane* next = block.next_lane();
    if (next == nullptr && block.returned_ < block.launch_.threads) {
      block.blame(block.stuck());
      block.leave();
    }
    block.current_ = next;
    if (next != nullptr && next->fiber == nullptr) continue;
    block.fibers_.give(lane->fiber);
    if (next == nullptr) {
      block.fibers_.switch_to(block.fibers_.origin());
    } else {
      running_lane = next;
      block.fibers_.switch_to(next->fiber);
    }
  }
}

std::uint32_t BlockRunner::random() {
  random_state_ ^= random_state_ << 13;
  random_state_ ^= random_state_ >> 7;
  random_state_ ^= random_state_ << 17;
  return static_cast<std::uint32_t>(random_state_ >> 32);
}

namespace {

// Index of the n-th set bit.
int nth_bit(std::uint32_t mask, int n) {
  for (; n > 0; --n) mask &= mask - 1;
  return std::countr_zero(mask);
}

}  // namespace

BlockRunner::Lane* BlockRunner::next_lane() {
  if (ready_warps_ == 0) return nullptr;
  const auto choose = [this](std::uint32_t mask) {
    switch (launch_.order) {
      case Order::forward:
        return std::countr_zero(mask);
      case Order::reverse:
        return 31 - std::countl_zero(mask);
      case Order::random:
        return nth_bit(mask, static_cast<int>(random() % static_cast<std::uint32_t>(std::popcount(mask))));
    }
    return 0;
  };
  const int w = choose(ready_warps_);
  Warp& warp = warps_[static_cast<std::size_t>(w)];
  const int lane = choose(warp.ready);
  warp.ready &= ~(1u << lane);
  if (warp.ready == 0) ready_warps_ &= ~(1u << w);
  return &lanes_[static_cast<std::size_t>(w) * kWarp + static_cast<std::size_t>(lane)];
}

void BlockRunner::make_ready(std::uint32_t warp) {
  warps_[warp].ready = kAllLanes;
  ready_warps_ |= 1u << warp;
}

// Suspends `self` until its turn comes.
void BlockRunner::run_next(Lane* self) {
  Lane* next = next_lane();
  if (next == self) return;
  if (next == nullptr) {
    blame(stuck());
    leave();
  }
  current_ = next;
  Fiber* fiber = next->fiber;
  if (fiber == nullptr) {
    fiber = fibers_.take();
    if (fiber == nullptr) {
      blame("no memory for the stack of a fiber");
      leave();
    }
  } else {
    running_lane = next;
  }
  fibers_.switch_to(fiber);
}

void BlockRunner::barrier(ptx::HostLane* lane) {
  Lane& self = lane_of(lane);
  self.waiting = Waiting::barrier;
  if (++at_barrier_ == launch_.threads) {
    at_barrier_ = 0;
    for (std::uint32_t w = 0; w < launch_.threads / kWarp; ++w) make_ready(w);
  }
  run_next(&self);
  self.waiting = Waiting::no;
}

void* BlockRunner::exchange(ptx::HostLane* lane, ptx::Collective collective, const void* deposit, std::uint32_t bytes,
                            void (*combine)(void*)) {
  Lane& self = lane_of(lane);
  const std::uint32_t w = self.thread_x / kWarp, position = self.thread_x % kWarp;
  Warp& warp = warps_[w];
  if (warp.arrived == 0) {
    warp.collective = collective;
    warp.bytes = bytes;
  } else if (warp.collective != collective || warp.bytes != bytes) {
    blame("divergent warp collective: lane " + std::to_string(position) + " of warp " + std::to_string(w) + " calls " +
          name_of(collective) + " of " + std::to_string(bytes) + " bytes while others wait in " + name_of(warp.collective) + " of " +
          std::to_string(warp.bytes) + " bytes");
    leave();
  }
  std::uint8_t* deposits = warp.deposits[warp.parity];
  deposit_bytes(deposits + position * bytes, deposit, bytes);
  warp.arrived |= 1u << position;
  self.waiting = Waiting::collective;
  if (warp.arrived == kAllLanes) {
    if (combine != nullptr) combine(deposits);
    warp.arrived = 0;
    warp.parity ^= 1;
    make_ready(w);
  }
  run_next(&self);
  self.waiting = Waiting::no;
  return deposits;
}

void BlockRunner::copy(ptx::HostLane* lane, void* shared, const u32x4* value) {
  const bool eager = launch_.copies == CopyTiming::eager || (launch_.copies == CopyTiming::random && (random() & 1u) != 0);
  if (eager) {
    std::memcpy(shared, value, sizeof *value);
  } else {
    Lane& self = lane_of(lane);
    self.copies.push_back({shared, *value, self.open_group});
  }
}

void BlockRunner::commit(ptx::HostLane* lane) { ++lane_of(lane).open_group; }

// Lands every copy of all committed groups but the last `pending`.
void BlockRunner::wait(ptx::HostLane* lane, int pending) {
  Lane& self = lane_of(lane);
  if (self.open_group < static_cast<std::uint32_t>(pending)) return;
  const std::uint32_t landed_groups = self.open_group - static_cast<std::uint32_t>(pending);
  std::size_t landed = 0;
  while (landed < self.copies.size() && self.copies[landed].group < landed_groups) {
    std::memcpy(self.copies[landed].shared, &self.copies[landed].value, sizeof(u32x4));
    ++landed;
  }
  self.copies.erase(self.copies.begin(), self.copies.begin() + static_cast<std::ptrdiff_t>(landed));
}

void BlockRunner::fault(ptx::HostLane* lane, const char* what, const void* address) {
  char text[32];
  std::snprintf(text, sizeof text, "%p", address);
  blame(std::string(what) + " at " + text + ", thread " + std::to_string(lane->thread_x));
  leave();
}

void BlockRunner::blame(const std::string& what) {
  error_ = "kernel " + launch_.function->name + ", block " + std::to_string(block_) + ": " + what;
}

// Leaves the lane's fiber for good; run() abandons them all. Nothing on the fiber's stack is destroyed: no string may be alive there.
void BlockRunner::leave() {
  fibers_.switch_to(fibers_.origin());
  __builtin_unreachable();
}

// Why no lane can run: for the first warp that waits, what its lanes do.
std::string BlockRunner::stuck() const {
  for (std::uint32_t w = 0; w < launch_.threads / kWarp; ++w) {
    std::uint32_t returned = 0, barrier = 0, collective = 0;
    for (std::uint32_t i = 0; i < kWarp; ++i) {
      const Lane& lane = lanes_[w * kWarp + i];
      if (lane.returned) ++returned;
      if (!lane.returned && lane.waiting == Waiting::barrier) ++barrier;
      if (!lane.returned && lane.waiting == Waiting::collective) ++collective;
    }
    const bool whole_block = barrier == kWarp;
    if (returned == kWarp || whole_block) continue;
    std::string what = collective > 0 ? "divergent warp collective" : "divergent barrier";
    what += ": of warp " + std::to_string(w) + " ";
    if (collective > 0) what += std::to_string(collective) + " lanes wait in " + name_of(warps_[w].collective) + ", ";
    return what + std::to_string(barrier) + " at a barrier, " + std::to_string(returned) + " have returned";
  }
  return "divergent barrier: " + std::to_string(at_barrier_) + " of " + std::to_string(launch_.threads) + " threads wait at a barrier, " +
         std::to_string(returned_) + " have returned";
}

}  // namespace quern::host

extern "C" {

quern::ptx::HostLane* quern_host_lane() { return quern::host::running_lane; }
void quern_host_barrier(quern::ptx::HostLane* lane) { quern::host::running_block->barrier(lane); }
void* quern_host_exchange(quern::ptx::HostLane* lane, quern::ptx::Collective collective, const void* deposit, quern::u32 bytes,
                          void (*combine)(void* deposits)) {
  return quern::host::running_block->exchange(lane, collective, deposit, bytes, combine);
}
void quern_host_copy(quern::ptx::HostLane* lane, void* shared, const quern::u32x4* value) {
  quern::host::running_block->copy(lane, shared, value);
}
void quern_host_copy_commit(quern::ptx::HostLane* lane) { quern::host::running_block->commit(lane); }
void quern_host_copy_wait(quern::ptx::HostLane* lane, int pending) { quern::host::running_block->wait(lane, pending); }
void quern_host_fault(quern::ptx::HostLane* lane, const char* what, const void* address) {
  quern::host::running_block->fault(lane, what, address);
}

}  // extern "C"

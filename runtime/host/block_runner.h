// Runs one block of a kernel on one OS thread: every CUDA thread is a lane, a lane that must wait is suspended on a fiber of its own, and
// barriers and warp collectives are the only points where another lane may run. Lanes that never wait share one fiber, one after the other.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "ptx/host_lane.h"
#include "runtime/host/fiber.h"
#include "runtime/host/kernel_module.h"
#include "templates/args.h"

namespace quern::host {

inline constexpr std::uint32_t kWarp = 32;
inline constexpr std::uint32_t kMaxThreads = 1024;

enum class Order : std::int32_t { forward, reverse, random };
enum class CopyTiming : std::int32_t { deferred, eager, random };

struct BlockLaunch {
  const KernelFunction* function = nullptr;
  const KernelArgs* args = nullptr;
  std::int64_t grid_x = 1;
  std::uint32_t threads = 0;
  std::uint32_t shared_bytes = 0;
  Order order = Order::forward;
  CopyTiming copies = CopyTiming::deferred;
  std::uint64_t seed = 0;
};

class BlockRunner {
 public:
  BlockRunner();
  ~BlockRunner();
  BlockRunner(const BlockRunner&) = delete;
  BlockRunner& operator=(const BlockRunner&) = delete;

  // `block` counts along x first, then y. False when the kernel broke a rule, which error() then tells. One launch's blocks may be spread
  // over runners; a runner runs one at a time.
  bool run(const BlockLaunch& launch, std::int64_t block);
  const std::string& error() const { return error_; }

  // The scheduling points (ptx/host_lane.h), called on the lane's fiber.
  void barrier(ptx::HostLane* lane);
  void* exchange(ptx::HostLane* lane, ptx::Collective collective, const void* deposit, std::uint32_t bytes, void (*combine)(void*));
  void copy(ptx::HostLane* lane, void* shared, const u32x4* value);
  void commit(ptx::HostLane* lane);
  void wait(ptx::HostLane* lane, int pending);
  [[noreturn]] void fault(ptx::HostLane* lane, const char* what, const void* address);

 private:
  struct Copy {
    void* shared;
    u32x4 value;
    std::uint32_t group;
  };
  enum class Waiting : std::uint8_t { no, barrier, collective };
  struct Lane : ptx::HostLane {
    Fiber* fiber = nullptr;  // null until the lane first runs
    Waiting waiting = Waiting::no;
    bool returned = false;
    std::uint32_t open_group = 0;
    std::vector<Copy> copies;
  };
  struct Warp {
    std::uint32_t ready = 0;    // lanes that may run
    std::uint32_t arrived = 0;  // lanes that have deposited for the current collective
    ptx::Collective collective{};
    std::uint32_t bytes = 0;
    std::uint32_t parity = 0;  // which of the two deposit buffers the current collective fills
    // Two buffers: lanes may deposit for the next collective while others still read the last one.
    alignas(64) std::uint8_t deposits[2][kWarp * ptx::kMaxDepositBytes];
  };

  static void run_lanes(void* self);
  bool prepare(const BlockLaunch& launch, std::int64_t block);
  Lane* next_lane();
  void run_next(Lane* self);
  void resume(Lane* lane);
  void make_ready(std::uint32_t warp);
  bool canary_intact() const;
  void blame(const std::string& what);
  [[noreturn]] void leave();
  std::string stuck() const;
  std::uint32_t random();
  Lane& lane_of(ptx::HostLane* lane) { return *static_cast<Lane*>(lane); }

  FiberPool fibers_;
  std::vector<Lane> lanes_;
  std::vector<Warp> warps_;
  BlockLaunch launch_;
  std::int64_t block_ = 0;
  std::uint32_t ready_warps_ = 0;  // warps with ready lanes
  std::uint32_t at_barrier_ = 0;
  std::uint32_t returned_ = 0;
  Lane* current_ = nullptr;  // the lane that the fiber being switched to runs
  std::uint64_t random_state_ = 1;
  std::uint8_t* shared_ = nullptr;
  std::size_t shared_capacity_ = 0;
  std::string error_;
};

}  // namespace quern::host

// Fibers: contexts with stacks of their own, switched without the operating system. A fiber lives on one OS thread and is never destroyed
// in the middle of a switch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace quern::host {

struct Fiber {
  void* context = nullptr;         // where it resumes; null until it first runs
  std::uint8_t* bottom = nullptr;  // lowest usable byte of its stack
  std::size_t size = 0;
  void* fake_stack = nullptr;  // AddressSanitizer's, kept across switches
};

// A pool of fibers with their stacks, and the one the OS thread came in on. `body` is entered once per fiber with `self` and must not
// return.
class FiberPool {
 public:
  using Body = void (*)(void* self);
  FiberPool(Body body, void* self) : body_(body), self_(self) {}
  ~FiberPool();
  FiberPool(const FiberPool&) = delete;
  FiberPool& operator=(const FiberPool&) = delete;

  // An idle fiber, or a new one; null when the system has no memory for its stack.
  Fiber* take();
  // Back to the pool: either parked inside `body` at a switch, to be resumed there, or about to switch away for good.
  void give(Fiber* fiber) { idle_.push_back(fiber); }
  // Leaves the active fiber for `next`; returns when something switches back.
  void switch_to(Fiber* next);
  // Forgets what every fiber was doing: their stacks are reused from the top. Only while the OS thread's own fiber is active.
  void abandon();

  Fiber* active() const { return active_; }
  Fiber* origin() { return &origin_; }

 private:
  struct Entry;
  void landed(void* context_left);
  void* fresh_context(const Fiber& fiber, std::size_t index);

  Body body_;
  void* self_;
  Fiber origin_;
  Fiber* active_ = &origin_;
  Fiber* previous_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
};

}  // namespace quern::host

#include "runtime/host/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <boost/context/detail/fcontext.hpp>

#if defined(__SANITIZE_ADDRESS__)
#define QUERN_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define QUERN_ADDRESS_SANITIZER 1
#endif
#endif

#ifdef QUERN_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace quern::host {
namespace {

namespace context = boost::context::detail;

#ifdef QUERN_ADDRESS_SANITIZER
constexpr std::size_t kStackBytes = 512 * 1024;  // instrumented frames hold every local in a fenced slot
#else
constexpr std::size_t kStackBytes = 128 * 1024;
#endif

}  // namespace

struct FiberPool::Entry {
  static void start(context::transfer_t from) {
    auto* pool = static_cast<FiberPool*>(from.data);
    pool->landed(from.fctx);
    pool->body_(pool->self_);
    __builtin_unreachable();
  }
};

FiberPool::~FiberPool() {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  for (const auto& fiber : fibers_) {
#ifdef QUERN_ADDRESS_SANITIZER
    // A pooled fiber never returns, so its frames are still fenced; the next mapping at this address would inherit the fences.
    __asan_unpoison_memory_region(fiber->bottom, fiber->size);
#endif
    munmap(fiber->bottom - page, fiber->size + page);
  }
}

// Stack tops are staggered: at equal page offsets all of them would fall into the same few cache sets.
void* FiberPool::fresh_context(const Fiber& fiber, std::size_t index) {
  const std::size_t stagger = index % 32 * 192;
  return context::make_fcontext(fiber.bottom + fiber.size - stagger, fiber.size - stagger, &Entry::start);
}

Fiber* FiberPool::take() {
  if (!idle_.empty()) {
    Fiber* fiber = idle_.back();
    idle_.pop_back();
    return fiber;
  }
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* mapping = mmap(nullptr, kStackBytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) return nullptr;
  if (mprotect(mapping, page, PROT_NONE) != 0) {
    munmap(mapping, kStackBytes + page);
    return nullptr;
  }
  auto fiber = std::make_unique<Fiber>();
  fiber->bottom = static_cast<std::uint8_t*>(mapping) + page;
  fiber->size = kStackBytes;
  fiber->context = fresh_context(*fiber, fibers_.size());
  fibers_.push_back(std::move(fiber));
  return fibers_.back().get();
}

void FiberPool::landed([[maybe_unused]] void* context_left) {
#ifdef QUERN_ADDRESS_SANITIZER
  const void* bottom = nullptr;
  std::size_t size = 0;
  __sanitizer_finish_switch_fiber(active_->fake_stack, &bottom, &size);
  if (previous_ == &origin_) {
    origin_.bottom = static_cast<std::uint8_t*>(const_cast<void*>(bottom));
    origin_.size = size;
  }
#endif
  previous_->context = context_left;
}

void FiberPool::switch_to(Fiber* next) {
  previous_ = active_;
  active_ = next;
#ifdef QUERN_ADDRESS_SANITIZER
  __sanitizer_start_switch_fiber(&previous_->fake_stack, next->bottom, next->size);
#endif
  const context::transfer_t from = context::jump_fcontext(next->context, this);
  landed(from.fctx);
}

void FiberPool::abandon() {
  idle_.clear();
  for (std::size_t i = 0; i < fibers_.size(); ++i) {
    Fiber& fiber = *fibers_[i];
#ifdef QUERN_ADDRESS_SANITIZER
    __asan_unpoison_memory_region(fiber.bottom, fiber.size);
    fiber.fake_stack = nullptr;
#endif
    fiber.context = fresh_context(fiber, i);
    idle_.push_back(&fiber);
  }
}

}  // namespace quern::host

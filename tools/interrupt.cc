#include "tools/interrupt.h"

#include <csignal>
#include <cstdint>
#include <ctime>

namespace quern::tools {
namespace {

std::atomic<bool> flag{false};
std::atomic<std::int64_t> first_ms{0};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free, "used in a signal handler");

// Whoever ends a process may say so twice in a row: timeout(1) signals the process and then its group. What follows within this time is the
// same request; what comes later means it.
constexpr std::int64_t kSameRequestMs = 1000;

std::int64_t now_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1000 + now.tv_nsec / 1000000;
}

void on_signal(int number) {
  if (!flag.exchange(true)) {
    first_ms.store(now_ms());
    return;
  }
  if (now_ms() - first_ms.load() < kSameRequestMs) return;
  std::signal(number, SIG_DFL);
  std::raise(number);
}

}  // namespace

const std::atomic<bool>& interrupted() {
  static const bool installed = [] {
    struct sigaction action {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
    return true;
  }();
  (void)installed;
  return flag;
}

}  // namespace quern::tools

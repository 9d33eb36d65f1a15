#include "tools/interrupt.h"

#include <csignal>

namespace quern::tools {
namespace {

std::atomic<bool> flag{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set in a signal handler");

void on_signal(int) { flag.store(true, std::memory_order_relaxed); }

}  // namespace

const std::atomic<bool>& interrupted() {
  static const bool installed = [] {
    struct sigaction action {};
    action.sa_handler = on_signal;
    action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
    return true;
  }();
  (void)installed;
  return flag;
}

}  // namespace quern::tools

#include "tuner/line_pipe.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>

#include <algorithm>

namespace quern {

// Sent as socket data with MSG_NOSIGNAL: a library must not change the process's signal dispositions.
Status LinePipe::write(const std::string& line) {
  const std::string text = line + "\n";
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t n = ::send(write_fd_, text.data() + done, text.size() - done, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Error{ErrorCode::kEnvironment, std::string("worker: write failed: ") + std::strerror(errno), {}};
    done += static_cast<std::size_t>(n);
  }
  return {};
}

Result<std::string> LinePipe::read(std::chrono::steady_clock::time_point deadline, const std::atomic<bool>* stop) {
  for (;;) {
    if (const auto end = buffered_.find('\n'); end != std::string::npos) {
      std::string line = buffered_.substr(0, end);
      buffered_.erase(0, end + 1);
      return line;
    }
    if (stop != nullptr && stop->load()) return Error{ErrorCode::kCancelled, "worker: asked to stop", {}};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    if (left <= 0) return Error{ErrorCode::kTimeout, "worker: no answer before the deadline", {}};
    pollfd fd{read_fd_, POLLIN, 0};
    const int ready = ::poll(&fd, 1, static_cast<int>(std::min<long long>(left, stop != nullptr ? 20 : 1000)));
    if (ready < 0 && errno != EINTR) return Error{ErrorCode::kEnvironment, std::string("worker: poll failed: ") + std::strerror(errno), {}};
    if (ready <= 0) continue;
    char chunk[4096];
    const ssize_t n = ::read(read_fd_, chunk, sizeof chunk);
    if (n > 0) buffered_.append(chunk, static_cast<std::size_t>(n));
    if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) return Error{ErrorCode::kEnvironment, "worker: the other side is gone", {}};
  }
}

}  // namespace quern

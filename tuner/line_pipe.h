// Lines over a pair of file descriptors, with a deadline.
#pragma once

#include <atomic>
#include <chrono>
#include <string>

#include "quern/result.h"

namespace quern {

class LinePipe {
 public:
  // Owns neither descriptor.
  LinePipe(int read_fd, int write_fd) : read_fd_(read_fd), write_fd_(write_fd) {}

  // Writes the line and a line feed; write_fd is a socket, so that a dead reader is an error and not a signal. Errors: kEnvironment when
  // the other side is gone.
  Status write(const std::string& line);
  // Errors: kTimeout at the deadline, kEnvironment at the end of the stream, kCancelled soon after *stop becomes true (null: never).
  Result<std::string> read(std::chrono::steady_clock::time_point deadline, const std::atomic<bool>* stop = nullptr);

 private:
  int read_fd_, write_fd_;
  std::string buffered_;
};

}  // namespace quern

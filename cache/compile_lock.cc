#include "cache/compile_lock.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace quern::cache {

CompileLock::CompileLock(const std::string& lock_file, const Key& key) {
  std::uint64_t offset = 0;
  for (int i = 0; i < 8; ++i) offset = offset << 8 | key.bytes[static_cast<std::size_t>(i)];
  offset_ = static_cast<std::int64_t>(offset >> 2);  // offset + length stays within off_t
  fd_ = ::open(lock_file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
}

CompileLock::~CompileLock() {
  if (owner_ == getpid()) set(F_UNLCK);  // by name, not by close alone: a child may still hold the description
  if (fd_ >= 0) ::close(fd_);
}

CompileLock::State CompileLock::try_lock() {
  if (fd_ < 0) return State::unavailable;
  if (set(F_WRLCK) == 0) {
    owner_ = getpid();
    return State::held;
  }
  return errno == EAGAIN || errno == EACCES || errno == EINTR ? State::busy : State::unavailable;
}

int CompileLock::set(short type) const {
  struct flock range {};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  range.l_start = offset_;
  range.l_len = 1;
  return ::fcntl(fd_, F_OFD_SETLK, &range);
}

}  // namespace quern::cache

// CompileLock: who may compile a key, across processes and threads.
//
// One byte of a lock file beside the store stands for a key: its offset is the first 62 bits of the key. The lock is an
// open-file-description record lock (F_OFD_SETLK): the kernel releases it when the owner dies, however it dies, so no owner has to be
// proved dead; two threads of one process exclude each other, since each opens the file for itself; nothing is left behind to be cleaned
// up. Two keys that share an offset (one pair in 2^62) merely wait for each other. A stopped owner keeps its lock: waiters have a time
// limit for that. Rejected: a lease table with pid and start time, which needs a guess about owners in other pid namespaces (containers
// that share a store) and a write to the database per compile; and one flock'd file per key, which leaves files or needs an
// unlink-and-recheck dance. Internal to cache/.
#pragma once

#include <cstdint>
#include <string>

#include "cache/key.h"

namespace quern::cache {

class CompileLock {
 public:
  CompileLock(const std::string& lock_file, const Key& key);
  CompileLock(const CompileLock&) = delete;
  ~CompileLock();

  enum class State { held, busy, unavailable };  // unavailable: no such locks here (missing folder, a file system without them)
  State try_lock();                              // never waits

 private:
  int set(short type) const;
  int fd_ = -1;
  std::int64_t offset_ = 0;
  int owner_ = 0;  // pid while held: a child forked meanwhile shares the description and must not release it
};

}  // namespace quern::cache

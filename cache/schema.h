// The store's file: its schema, how a fresh one comes to be, and how one is opened without touching what another version wrote.
// Internal to cache/.
#pragma once

#include <chrono>
#include <string>

#include "cache/sqlite.h"

namespace quern::cache {

inline constexpr int kSchemaVersion = 1;
inline constexpr const char* kStoreFile = "store-v1.sqlite";
inline constexpr const char* kLockFile = "store-v1.locks";  // see compile_lock.h

std::string store_path(const std::string& directory);

// Makes `path` with an empty schema; one that is there already is left alone, whatever it holds. The file is complete before it gets its
// name (a private file, synced, then linked), so that any number of processes may do this at once and none meets a half-made store.
// Errors: kEnvironment.
Status create_store_file(const std::string& path);

// write: reading and writing, WAL, every commit durable on return (synchronous=FULL: one sync per row is little beside the compile or the
//   timing that made it).
// read: whole and consistent, never creates a file beside a store that nobody has open for writing.
// inspect: reading beside writers of any kind, on a file that may be live; falls back to `read` where the file cannot be written.
enum class Access { read, write, inspect };

// Opens an existing file. Looks at its version first, without locks and without a write, and goes no further when it is not ours.
// Errors: kVersionMismatch (another schema version), kCorrupt (not a quern store), kTimeout, kEnvironment.
Result<sqlite::Connection> open_store_file(const std::string& path, Access access, std::chrono::milliseconds busy_timeout);

// Compares every table and index with the schema literal: a file from elsewhere may hold views and triggers.
// Errors: kCorrupt, naming the first object that differs.
Status check_schema(sqlite::Connection& db);

bool file_exists(const std::string& path);
// Whether a store's file is there. Errors: kEnvironment where that cannot be told (a folder that may not be looked into, a file in a
// folder's place, a link to nothing): it is no empty store.
Result<bool> store_is_there(const std::string& path);
// Whether rows can be written: the file and its folder (for the -wal file) are both writable.
bool is_writable(const std::string& path);

}  // namespace quern::cache

#include "cache/schema.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>
#include <vector>

namespace quern::cache {
namespace {

// Schema v1.
//   file         application_id 'qurn', user_version 1; WAL; page 4096; auto_vacuum incremental, so that eviction gives space back
//   artifacts    disposable: one compiled kernel. `key` is the SHA-256 of everything that decides the bytes; generator_version stands
//   beside it
//                in the primary key, so that two generators can never load or replace each other's rows, even if one forgot to hash
//                something. bad = 1: bytes did not match `digest` once; never loaded again, replaced by the next put.
//   measurements precious: what became of one config, one row per (problem, device, generator, compiler, config, artifact), any verdict.
//                A NaN is NULL. artifact: 64 hex digits, or '' when nothing was compiled.
//   winners      precious: the config to use per (problem, device, generator). dropped = 1: a mark that hides the winners of the read-only
//                layers below; config is '' then.
//   digest       SHA-256 over every other column of the row that never changes, tagged as in key.h, checked whenever a row is read: SQLite
//   checks
//                the form of its pages, not their contents.
//   times        seconds since 1970. config: to_string(Config).
// Rejected: a folder with one file per kernel and a JSON file of tunings. It needs its own answers to atomic writes, to many writers of the
// JSON, to sizes and last use, and to what a crash leaves behind; SQLite has one tested answer. Also rejected: artifacts in a second
// database, for there is then no single file to ship, and a winner and its kernel can part.
// Compile leases are kernel locks, not rows (compile_lock.h).
constexpr const char* kSchema = R"sql(
PRAGMA page_size = 4096;
PRAGMA auto_vacuum = INCREMENTAL;
BEGIN EXCLUSIVE;
PRAGMA application_id = 1903522414;
PRAGMA user_version = 1;
CREATE TABLE artifacts(
  key BLOB NOT NULL, generator_version TEXT NOT NULL, size INTEGER NOT NULL, digest BLOB NOT NULL,
  created INTEGER NOT NULL, last_used INTEGER NOT NULL, bad INTEGER NOT NULL,
  format TEXT NOT NULL, name TEXT NOT NULL, target TEXT NOT NULL, compiler TEXT NOT NULL, usage_json TEXT NOT NULL,
  compile_ms REAL, key_dump TEXT NOT NULL, log TEXT NOT NULL, bytes BLOB NOT NULL,
  PRIMARY KEY(key, generator_version)) STRICT;
CREATE INDEX artifacts_by_use ON artifacts(last_used, size);
CREATE TABLE measurements(
  problem TEXT NOT NULL, device TEXT NOT NULL, generator_version TEXT NOT NULL, compiler TEXT NOT NULL, config TEXT NOT NULL,
  artifact TEXT NOT NULL, digest BLOB NOT NULL, created INTEGER NOT NULL, verdict TEXT NOT NULL, reason TEXT NOT NULL,
  nmse REAL, max_error REAL, us REAL, spread REAL, us_l2_warm REAL, unstable INTEGER NOT NULL,
  PRIMARY KEY(problem, device, generator_version, compiler, config, artifact)) STRICT, WITHOUT ROWID;
CREATE TABLE winners(
  problem TEXT NOT NULL, device TEXT NOT NULL, generator_version TEXT NOT NULL, digest BLOB NOT NULL, created INTEGER NOT NULL,
  config TEXT NOT NULL, us REAL, artifact TEXT NOT NULL, dropped INTEGER NOT NULL,
  PRIMARY KEY(problem, device, generator_version)) STRICT, WITHOUT ROWID;
COMMIT;
)sql";
constexpr std::int64_t kApplicationId = 1903522414;  // 'qurn'

constexpr std::chrono::milliseconds kPrivateFileTimeout{1000};

std::int64_t wal_size(const std::string& path) {
  struct stat info {};
  return stat((path + "-wal").c_str(), &info) == 0 ? info.st_size : 0;
}

// create_store_file writes the version before the file gets its name, so a -wal file never holds another one.
Status check_version(const std::string& path) {
  QUERN_ASSIGN(const auto header, sqlite::read_file_header(path));
  if (header.application_id != kApplicationId)
    return Error{ErrorCode::kCorrupt, "store " + path + ": not a quern store (application id " + std::to_string(header.application_id) +
                                          ", need " + std::to_string(kApplicationId) + ")"};
  if (header.user_version != kSchemaVersion)
    return Error{ErrorCode::kVersionMismatch, "store " + path + ": schema version " + std::to_string(header.user_version) +
                                                  ", this quern reads version " + std::to_string(kSchemaVersion) + "; left untouched"};
  return {};
}

Status sync_folder_of(const std::string& path) {
  const auto folder = std::filesystem::path(path).parent_path().string();
  const int fd = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return Error{ErrorCode::kEnvironment, "store " + path + ": cannot open its folder: " + std::strerror(errno)};
  ::fsync(fd);  // not every file system can; the file itself is synced
  ::close(fd);
  return {};
}

struct SchemaObject {
  std::string type, name, sql;
  bool operator==(const SchemaObject&) const = default;
};

Result<std::vector<SchemaObject>> schema_objects(sqlite::Connection& db) {
  std::vector<SchemaObject> objects;
  auto rows = db.prepare("SELECT type, name, coalesce(sql, '') FROM sqlite_schema ORDER BY type, name");
  while (rows.row()) objects.push_back({rows.text(0), rows.text(1), rows.text(2)});
  QUERN_TRY(rows.status());
  return objects;
}

Status fill_private_file(const std::string& path) {
  QUERN_ASSIGN(auto db, sqlite::Connection::open(path, sqlite::Connection::Mode::create, kPrivateFileTimeout));
  QUERN_TRY(db.execute("PRAGMA synchronous = FULL"));
  QUERN_TRY(db.execute(kSchema));
  return db.execute("PRAGMA journal_mode = WAL");
}

}  // namespace

std::string store_path(const std::string& directory) { return (std::filesystem::path(directory) / kStoreFile).string(); }

bool file_exists(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0;
}

Result<bool> store_is_there(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) == 0) return true;
  const int why = errno;
  if (why == ENOENT && lstat(path.c_str(), &info) != 0) return false;
  return Error{ErrorCode::kEnvironment, "store " + path + ": cannot be looked at: " + std::strerror(why), {}};
}

bool is_writable(const std::string& path) {
  const auto folder = std::filesystem::path(path).parent_path().string();
  return access(path.c_str(), W_OK) == 0 && access(folder.empty() ? "." : folder.c_str(), W_OK) == 0;
}

Status create_store_file(const std::string& path) {
  if (file_exists(path)) return {};
  std::random_device random;
  const std::string draft = path + ".new-" + std::to_string(getpid()) + "-" + std::to_string(random());
  Status status = fill_private_file(draft);
  if (status && ::link(draft.c_str(), path.c_str()) != 0 && errno != EEXIST)
    status = Error{ErrorCode::kEnvironment, "store " + path + ": cannot be created: " + std::strerror(errno)};
  for (const char* suffix : {"", "-wal", "-shm", "-journal"}) ::unlink((draft + suffix).c_str());
  QUERN_TRY(std::move(status));
  return sync_folder_of(path);
}

Result<sqlite::Connection> open_store_file(const std::string& path, Access access, std::chrono::milliseconds busy_timeout) {
  using Mode = sqlite::Connection::Mode;
  QUERN_TRY(check_version(path));
  if (access == Access::inspect && is_writable(path)) {  // read_write, so that the last one out removes the -wal file
    QUERN_ASSIGN(auto live, sqlite::Connection::open(path, Mode::read_write, busy_timeout));
    QUERN_TRY(live.execute("PRAGMA query_only = ON"));
    return live;
  }
  if (access != Access::write) return sqlite::Connection::open(path, wal_size(path) > 0 ? Mode::read_only : Mode::immutable, busy_timeout);
  QUERN_ASSIGN(auto db, sqlite::Connection::open(path, Mode::read_write, busy_timeout));
  QUERN_TRY(db.execute("PRAGMA synchronous = FULL; PRAGMA journal_size_limit = 67108864"));
  (void)db.execute("PRAGMA journal_mode = WAL");  // an exported file starts without; where WAL cannot be had, the file works without
  return db;
}

Status check_schema(sqlite::Connection& db) {
  QUERN_ASSIGN(auto reference, sqlite::Connection::open(":memory:", sqlite::Connection::Mode::create, kPrivateFileTimeout));
  QUERN_TRY(reference.execute(kSchema));
  QUERN_ASSIGN(const auto needed, schema_objects(reference));
  QUERN_ASSIGN(const auto found, schema_objects(db));
  for (const auto& object : found)
    if (std::find(needed.begin(), needed.end(), object) == needed.end())
      return Error{ErrorCode::kCorrupt, "store " + db.path() + ": " + object.type + " " + object.name + " is not part of schema version 1"};
  if (found.size() != needed.size())
    return Error{ErrorCode::kCorrupt,
                 "store " + db.path() + ": " + std::to_string(found.size()) + " tables and indexes, need " + std::to_string(needed.size())};
  return {};
}

}  // namespace quern::cache

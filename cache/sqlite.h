// SQLite behind two RAII handles and a fluent statement. Errors come back as quern::Error whose message names the file and the kind of
// trouble, never the row, so that equal troubles have equal messages. Neither handle is thread-safe. Internal to cache/.
//
// Fork: SQLite keeps one table of file locks per process image, and fork copies that table but not the kernel's locks. A child that used
// or even closed a connection made before the fork could corrupt the file, and so could one that opened the same file anew, because the
// copied table tells SQLite that it holds locks which it does not. Hence: in the child a connection from before is dropped without a call
// into SQLite, and open() fails there while any such connection exists; exec gives a clean process.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "quern/result.h"

struct sqlite3;
struct sqlite3_stmt;

namespace quern::cache::sqlite {

// One prepared statement. Parameters are bound in order, columns are read by position while row() is true. An error sticks: row() is false
// from then on and status() tells it.
class Statement {
 public:
  Statement(sqlite3* db, const std::string& path, std::string_view sql);
  Statement(Statement&& other) noexcept;
  Statement& operator=(Statement&&) = delete;
  ~Statement();

  Statement& bind(std::string_view text);
  Statement& bind(std::span<const std::byte> blob);
  Statement& bind(std::span<const std::uint8_t> blob) { return bind(std::as_bytes(blob)); }
  Statement& bind_integer(std::int64_t value);
  Statement& bind_real(double value);  // a NaN is stored as NULL
  Statement& bind_null();

  bool row();    // steps; false at the end and on an error
  Status run();  // steps to the end
  Status status() const;
  Statement& rewind();  // ready to be bound and run again

  std::string text(int column) const;
  std::span<const std::byte> blob(int column) const;  // valid until the next step
  std::int64_t integer(int column) const;
  double real(int column) const;  // NULL reads as NaN

 private:
  Statement& check(int code);
  sqlite3* db_;
  std::string path_;
  sqlite3_stmt* statement_ = nullptr;
  int code_ = 0;
  int bound_ = 0;
};

// What the first page of a database file says, read without a lock and without looking at a log beside it.
struct FileHeader {
  std::int64_t application_id = 0;
  std::int64_t user_version = 0;
};
// Errors: kCorrupt when the file is no SQLite database, kEnvironment. The file is read through SQLite's own file layer: to open and close
// it by other means would drop the locks that this process's connections hold on it.
Result<FileHeader> read_file_header(const std::string& path);

class Connection {
 public:
  // immutable: no locks, no -wal or -shm file, for media that nobody writes meanwhile.
  enum class Mode { create, read_write, read_only, immutable };
  static Result<Connection> open(const std::string& path, Mode mode, std::chrono::milliseconds busy_timeout);
  Connection(Connection&& other) noexcept;
  Connection& operator=(Connection&& other) noexcept;
  ~Connection();

  Statement prepare(std::string_view sql) { return Statement(db_, path_, sql); }
  Status execute(const char* sql);                     // one or more statements without parameters
  Result<std::int64_t> integer(std::string_view sql);  // the first column of the first row; 0 without a row
  void set_busy_timeout(std::chrono::milliseconds timeout);
  std::int64_t changes() const;  // rows changed by the last INSERT, UPDATE or DELETE
  const std::string& path() const { return path_; }
  // Forgets the connection without closing it, to the end of the process: where its file was replaced, closing would remove the -wal file
  // of the new one, which has its name.
  void abandon() { owner_ = 0; }

 private:
  Connection(sqlite3* db, std::string path);
  void close();
  sqlite3* db_ = nullptr;
  std::string path_;
  pid_t owner_ = 0;
};

// BEGIN IMMEDIATE .. COMMIT; rolls back unless committed.
class Transaction {
 public:
  explicit Transaction(Connection& db) : db_(db), begun_(db.execute("BEGIN IMMEDIATE")), open_(static_cast<bool>(begun_)) {}
  Transaction(const Transaction&) = delete;
  ~Transaction();
  const Status& begun() const { return begun_; }
  Status commit();

 private:
  Connection& db_;
  Status begun_;
  bool open_;
};

}  // namespace quern::cache::sqlite

#include "cache/sqlite.h"

#include <sqlite3.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <limits>
#include <utility>
#include <vector>

namespace quern::cache::sqlite {
namespace {

constexpr int kMaxValueBytes = 1 << 29;  // no kernel comes near; keeps a hostile file from asking for more

// Mirrors what SQLite's own process-wide table knows: which process holds how many connections (see the fork rule in the header).
// High half: pid, low half: connections.
std::atomic<std::uint64_t> connections_of_process{0};

bool enter_process() {
  const auto pid = static_cast<std::uint64_t>(getpid());
  std::uint64_t seen = connections_of_process.load();
  for (;;) {
    if (seen >> 32 != pid && (seen & 0xffffffff) != 0) return false;
    const std::uint64_t count = seen & 0xffffffff;
    if (connections_of_process.compare_exchange_weak(seen, pid << 32 | (count + 1))) return true;
  }
}

void leave_process() { connections_of_process.fetch_sub(1); }

Error describe(sqlite3* db, int code, const std::string& path) {
  const std::string store = "store " + path;
  switch (code & 0xff) {
    case SQLITE_FULL:
      return {ErrorCode::kEnvironment, store + ": no space left to write a row"};
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return {ErrorCode::kTimeout, store + ": locked by another process for longer than the busy timeout"};
    case SQLITE_CORRUPT:
      return {ErrorCode::kCorrupt, store + ": damaged; `quern cache verify` tells what is left, a new file is made once it is moved away"};
    case SQLITE_NOTADB:
      return {ErrorCode::kCorrupt, store + ": not a SQLite database"};
    case SQLITE_READONLY:
      return {ErrorCode::kEnvironment, store + ": read-only, or moved while it was open"};
    case SQLITE_CANTOPEN:
      return {ErrorCode::kEnvironment, store + ": cannot be opened"};
    case SQLITE_IOERR: {
      const int number = db != nullptr ? sqlite3_system_errno(db) : 0;
      return {ErrorCode::kEnvironment, store + ": read or write failed" + (number != 0 ? std::string(": ") + std::strerror(number) : "")};
    }
    default:
      return {ErrorCode::kCorrupt, store + ": " + (db != nullptr ? sqlite3_errmsg(db) : sqlite3_errstr(code))};
  }
}

// A path as a URI, so that '?' and '%' in a directory's name are no options.
std::string uri(const std::string& path, const char* query) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  std::string text = "file:";
  if (path.starts_with("/")) text += "//";
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain =
        (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') || std::strchr("/._-", c);
    if (plain && c != '\0')
      text.push_back(c);
    else
      text.append({'%', kDigits[byte >> 4], kDigits[byte & 15]});
  }
  return text + query;
}

}  // namespace

Statement::Statement(sqlite3* db, const std::string& path, std::string_view sql) : db_(db), path_(path) {
  code_ = sqlite3_prepare_v2(db, sql.data(), static_cast<int>(sql.size()), &statement_, nullptr);
}
Statement::Statement(Statement&& other) noexcept
    : db_(other.db_),
      path_(std::move(other.path_)),
      statement_(std::exchange(other.statement_, nullptr)),
      code_(other.code_),
      bound_(other.bound_) {}
Statement::~Statement() { sqlite3_finalize(statement_); }

Statement& Statement::check(int code) {
  if (code_ == SQLITE_OK) code_ = code;
  return *this;
}
Statement& Statement::bind(std::string_view text) {
  const char* data = text.data() != nullptr ? text.data() : "";  // a null pointer would bind NULL
  return check(sqlite3_bind_text64(statement_, ++bound_, data, text.size(), SQLITE_TRANSIENT, SQLITE_UTF8));
}
Statement& Statement::bind(std::span<const std::byte> blob) {
  const void* data = blob.data() != nullptr ? static_cast<const void*>(blob.data()) : "";
  return check(sqlite3_bind_blob64(statement_, ++bound_, data, blob.size(), SQLITE_TRANSIENT));
}
Statement& Statement::bind_integer(std::int64_t value) { return check(sqlite3_bind_int64(statement_, ++bound_, value)); }
Statement& Statement::bind_real(double value) { return check(sqlite3_bind_double(statement_, ++bound_, value)); }
Statement& Statement::bind_null() { return check(sqlite3_bind_null(statement_, ++bound_)); }

bool Statement::row() {
  if (code_ != SQLITE_OK && code_ != SQLITE_ROW) return false;
  code_ = sqlite3_step(statement_);
  return code_ == SQLITE_ROW;
}
Status Statement::run() {
  while (row()) {
  }
  return status();
}
Status Statement::status() const {
  if (code_ == SQLITE_OK || code_ == SQLITE_ROW || code_ == SQLITE_DONE) return {};
  return describe(db_, code_, path_);
}
Statement& Statement::rewind() {
  sqlite3_reset(statement_);
  if (statement_ != nullptr) code_ = SQLITE_OK;
  bound_ = 0;
  return *this;
}

std::string Statement::text(int column) const {
  const auto* data = sqlite3_column_text(statement_, column);
  if (data == nullptr) return {};
  return {reinterpret_cast<const char*>(data), static_cast<std::size_t>(sqlite3_column_bytes(statement_, column))};
}
std::span<const std::byte> Statement::blob(int column) const {
  const auto* data = static_cast<const std::byte*>(sqlite3_column_blob(statement_, column));
  if (data == nullptr) return {};
  return {data, static_cast<std::size_t>(sqlite3_column_bytes(statement_, column))};
}
std::int64_t Statement::integer(int column) const { return sqlite3_column_int64(statement_, column); }
double Statement::real(int column) const {
  if (sqlite3_column_type(statement_, column) == SQLITE_NULL) return std::numeric_limits<double>::quiet_NaN();
  return sqlite3_column_double(statement_, column);
}

namespace {

Error forked_error(const std::string& path) {
  return {ErrorCode::kEnvironment, "store " + path + ": not usable in a process forked while a store was open; exec first"};
}

std::int64_t big_endian32(const unsigned char* bytes) {
  return static_cast<std::int64_t>(bytes[0]) << 24 | bytes[1] << 16 | bytes[2] << 8 | bytes[3];
}

// Reads the first `size` bytes. Returns an SQLite code; SQLITE_IOERR_SHORT_READ when the file is shorter.
int read_start(const std::string& path, unsigned char* bytes, int size) {
  sqlite3_vfs* vfs = sqlite3_vfs_find(nullptr);
  std::vector<std::max_align_t> memory(static_cast<std::size_t>(vfs->szOsFile) / sizeof(std::max_align_t) + 1);
  auto* file = reinterpret_cast<sqlite3_file*>(memory.data());
  const char* name = sqlite3_create_filename(path.c_str(), "", "", 0, nullptr);
  int flags = SQLITE_OPEN_READONLY | SQLITE_OPEN_MAIN_DB;
  int code = name == nullptr ? SQLITE_NOMEM : vfs->xOpen(vfs, name, file, flags, &flags);
  if (code == SQLITE_OK) code = file->pMethods->xRead(file, bytes, size, 0);
  if (file->pMethods != nullptr) file->pMethods->xClose(file);
  sqlite3_free_filename(const_cast<char*>(name));
  return code;
}

// Opening a pipe would wait for its other end.
Status check_kind(const std::string& path) {
  std::error_code ignored;
  const auto kind = std::filesystem::status(path, ignored).type();
  using enum std::filesystem::file_type;
  if (kind == regular || kind == not_found || kind == none || kind == unknown) return {};
  return Error{ErrorCode::kEnvironment, "store " + path + ": is not a regular file", {}};
}

}  // namespace

Result<FileHeader> read_file_header(const std::string& path) {
  QUERN_TRY(check_kind(path));
  static constexpr char kMagic[] = "SQLite format 3";  // the terminating zero belongs to it
  if (!enter_process()) return forked_error(path);
  unsigned char bytes[100] = {};
  const int code = sqlite3_initialize() == SQLITE_OK ? read_start(path, bytes, sizeof bytes) : SQLITE_ERROR;
  leave_process();
  if (code == SQLITE_IOERR_SHORT_READ || (code == SQLITE_OK && std::memcmp(bytes, kMagic, sizeof kMagic) != 0))
    return describe(nullptr, SQLITE_NOTADB, path);
  if (code != SQLITE_OK) return describe(nullptr, code, path);
  return FileHeader{big_endian32(bytes + 68), big_endian32(bytes + 60)};  // offsets: the file format's section 1.3
}

Result<Connection> Connection::open(const std::string& path, Mode mode, std::chrono::milliseconds busy_timeout) {
  QUERN_TRY(check_kind(path));
  if (!enter_process()) return forked_error(path);
  int flags = SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  flags |= mode == Mode::create       ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE
           : mode == Mode::read_write ? SQLITE_OPEN_READWRITE
                                      : SQLITE_OPEN_READONLY;
  sqlite3* raw = nullptr;
  const int code = sqlite3_open_v2(uri(path, mode == Mode::immutable ? "?immutable=1" : "").c_str(), &raw, flags, nullptr);
  Connection db(raw, path);
  if (code != SQLITE_OK) return describe(raw, code, path);
  sqlite3_limit(raw, SQLITE_LIMIT_LENGTH, kMaxValueBytes);
  sqlite3_db_config(raw, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(raw, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  db.set_busy_timeout(busy_timeout);
  QUERN_TRY(db.execute("PRAGMA cell_size_check = ON"));
  return db;
}

Connection::Connection(sqlite3* db, std::string path) : db_(db), path_(std::move(path)), owner_(getpid()) {}
Connection::Connection(Connection&& other) noexcept
    : db_(std::exchange(other.db_, nullptr)), path_(std::move(other.path_)), owner_(std::exchange(other.owner_, 0)) {}
Connection& Connection::operator=(Connection&& other) noexcept {
  if (this == &other) return *this;
  close();
  db_ = std::exchange(other.db_, nullptr);
  path_ = std::move(other.path_);
  owner_ = std::exchange(other.owner_, 0);
  return *this;
}
Connection::~Connection() { close(); }

void Connection::close() {
  if (owner_ != getpid()) return;  // moved from, or carried across a fork: the other process owns what db_ points to
  sqlite3_close_v2(db_);
  leave_process();
  owner_ = 0;
}

Status Connection::execute(const char* sql) {
  const int code = sqlite3_exec(db_, sql, nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) return describe(db_, code, path_);
  return {};
}
Result<std::int64_t> Connection::integer(std::string_view sql) {
  auto statement = prepare(sql);
  const std::int64_t value = statement.row() ? statement.integer(0) : 0;
  QUERN_TRY(statement.status());
  return value;
}
void Connection::set_busy_timeout(std::chrono::milliseconds timeout) { sqlite3_busy_timeout(db_, static_cast<int>(timeout.count())); }
std::int64_t Connection::changes() const { return sqlite3_changes64(db_); }

Transaction::~Transaction() {
  if (open_) (void)db_.execute("ROLLBACK");  // an error has already rolled back by itself in some cases
}
Status Transaction::commit() {
  QUERN_TRY(db_.execute("COMMIT"));
  open_ = false;
  return {};
}

}  // namespace quern::cache::sqlite

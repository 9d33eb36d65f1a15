#include "cache/store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>

#include "cache/compile_lock.h"
#include "cache/eviction.h"
#include "cache/rows.h"
#include "cache/schema.h"
#include "cache/single_flight.h"

namespace quern::cache {
namespace {

constexpr std::int64_t kTouchSeconds = 3600;  // last_used is kept to the hour, so that a hit seldom writes

std::int64_t now_unix() { return static_cast<std::int64_t>(std::time(nullptr)); }

// One warning per kind. Thread-safe.
class Warnings {
 public:
  explicit Warnings(std::function<void(const std::string&)> sink) : sink_(std::move(sink)) {}
  void once(const std::string& kind, const std::string& message) {
    {
      std::lock_guard lock(mutex_);
      if (!given_.insert(kind).second) return;
    }
    if (sink_) sink_(message);
  }
  void once(const Error& error) { once(error.message, error.message); }  // sqlite.h: equal troubles have equal messages

 private:
  std::function<void(const std::string&)> sink_;
  std::mutex mutex_;
  std::set<std::string> given_;
};

// A read-only layer. It is opened without locks, so a change on the disk is looked for before each use, and answered by opening it anew.
class Layer {
 public:
  Layer(std::string path, std::chrono::milliseconds busy_timeout) : path_(std::move(path)), busy_timeout_(busy_timeout) {}

  // Null when there is nothing to read; a failure is reported and not retried until the file changes.
  sqlite::Connection* connection(Warnings& warnings) {
    const Stamp stamp{stamp_of(path_), stamp_of(path_ + "-wal")};
    if (stamp != opened_) {
      opened_ = stamp;
      db_.reset();
      if (!std::get<0>(stamp.main)) return nullptr;
      auto opened = open_store_file(path_, Access::read, busy_timeout_);
      if (opened)
        db_.emplace(std::move(*opened));
      else
        warnings.once(opened.error());
    }
    return db_ ? &*db_ : nullptr;
  }

 private:
  using FileStamp = std::tuple<bool, dev_t, ino_t, off_t, time_t, long>;
  struct Stamp {
    FileStamp main, wal;
    bool operator==(const Stamp&) const = default;
  };
  static FileStamp stamp_of(const std::string& path) {
    struct stat s {};
    if (stat(path.c_str(), &s) != 0) return {};
    return {true, s.st_dev, s.st_ino, s.st_size, s.st_mtim.tv_sec, s.st_mtim.tv_nsec};
  }
  std::string path_;
  std::chrono::milliseconds busy_timeout_;
  Stamp opened_;
  std::optional<sqlite::Connection> db_;
};

class FileStore final : public Store {
 public:
  explicit FileStore(StoreOptions options);
  ~FileStore() override {
    if (getpid() == owner_ && is_replaced()) user_->abandon();
  }

  std::optional<Artifact> find_artifact(const Key& key) override;
  bool put_artifact(const Key& key, const Artifact& artifact) override;
  Result<Artifact> find_or_make(const Key& key, const std::function<Result<Artifact>()>& make, bool* made) override;
  std::vector<StoredMeasurement> measurements(const TuningKey& key) override;
  bool put_measurement(const StoredMeasurement& row) override;
  std::optional<Winner> find_winner(const TuningKey& key) override;
  bool put_winner(const Winner& winner) override;
  bool drop_winner(const TuningKey& key) override;
  std::vector<Winner> winners(std::string_view device, std::string_view generator_version) override;

 private:
  using Make = std::function<Result<Artifact>()>;
  void open_user_layer();
  bool is_replaced() const;  // whether the writable file is no longer the one that is open; mutex_ held
  void open_anew_if_replaced();
  bool forked();
  bool write(const std::function<Status(sqlite::Connection&)>& statement);
  template <class Visit>
  void each_layer(const Visit& visit);  // visit(connection, writable) -> false to stop; mutex_ held
  std::optional<Artifact> find_in(sqlite::Connection& db, const Key& key, bool writable);
  void touch(sqlite::Connection& db, const ArtifactRow& row);
  void evict_if_full(const Key& just_put);
  std::optional<Artifact> wait_for_lock(CompileLock& lock, const Key& key, SingleFlight::Deadline deadline);
  bool cancelled() const { return options_.cancelled && options_.cancelled(); }
  Result<Artifact> make_and_put(const Key& key, const Make& make, bool* made);
  void report_damage(const std::string& table, const std::string& row, const std::string& path);

  const StoreOptions options_;
  const pid_t owner_ = getpid();
  std::atomic<bool> fork_reported_{false};
  Warnings warnings_;
  SingleFlight flights_;
  std::mutex mutex_;                        // guards what follows
  std::optional<sqlite::Connection> user_;  // writable
  std::pair<dev_t, ino_t> user_file_{};     // what user_ has open
  std::vector<Layer> layers_;
  std::string why_unwritable_;  // why user_ is empty
};

FileStore::FileStore(StoreOptions options) : options_(std::move(options)), warnings_(options_.warn) {
  open_user_layer();
  for (const auto& directory : options_.system_directories) layers_.emplace_back(store_path(directory), options_.busy_timeout);
}

// A directory that cannot be written may still hold a store to read: it then becomes the first read-only layer.
void FileStore::open_user_layer() {
  if (options_.directory.empty()) {
    why_unwritable_ =
        "no store: no cache directory is set (QUERN_CACHE_DIR, XDG_CACHE_HOME and HOME are all unset or empty); results are not kept";
    return;
  }
  const std::string path = store_path(options_.directory);
  std::error_code failed;
  std::filesystem::create_directories(options_.directory, failed);
  if (failed) {
    why_unwritable_ = "store " + path + ": cannot make its folder: " + failed.message() + "; results are not kept";
    return warnings_.once(why_unwritable_, why_unwritable_);
  }
  if (file_exists(path) && !is_writable(path)) {
    why_unwritable_ = "store " + path + ": read-only; results are not kept";
    layers_.emplace_back(path, options_.busy_timeout);
    return;
  }
  const Status created = create_store_file(path);
  auto opened = created ? open_store_file(path, Access::write, options_.busy_timeout) : Result<sqlite::Connection>(created.error());
  if (opened) {
    struct stat s {};
    if (stat(path.c_str(), &s) == 0) user_file_ = {s.st_dev, s.st_ino};
    user_.emplace(std::move(*opened));
    return;
  }
  why_unwritable_ = opened.error().message;
  warnings_.once(opened.error());
}

bool FileStore::is_replaced() const {
  struct stat s {};
  return user_ && (stat(store_path(options_.directory).c_str(), &s) != 0 || std::pair{s.st_dev, s.st_ino} != user_file_);
}

// Somebody removed the file, or moved it away, as the message about a damaged one says: what is written from now on would be lost.
void FileStore::open_anew_if_replaced() {
  if (!is_replaced()) return;
  warnings_.once("replaced",
                 "store " + store_path(options_.directory) + ": was removed or replaced meanwhile; what follows is kept in a new one");
  user_->abandon();
  user_.reset();
  open_user_layer();
}

// No lock before this test: another thread of the parent may have held it at the fork.
bool FileStore::forked() {
  if (getpid() == owner_) return false;
  if (!fork_reported_.exchange(true) && options_.warn)
    options_.warn("store " + options_.directory +
                  ": opened before a fork, so not used in the child; exec first, or open the store after the fork");
  return true;
}

void FileStore::report_damage(const std::string& table, const std::string& row, const std::string& path) {
  warnings_.once("damaged " + table + path, "store " + path + ": " + table + " " + row +
                                                " does not match its hash; not used, `quern cache verify` lists every such row");
}

bool FileStore::write(const std::function<Status(sqlite::Connection&)>& statement) {
  if (forked()) return false;
  std::lock_guard lock(mutex_);
  open_anew_if_replaced();
  if (!user_) {
    warnings_.once(why_unwritable_, why_unwritable_);
    return false;
  }
  if (auto status = statement(*user_); !status) {
    warnings_.once(status.error());
    return false;
  }
  return true;
}

template <class Visit>
void FileStore::each_layer(const Visit& visit) {
  if (user_ && !visit(*user_, true)) return;
  for (auto& layer : layers_)
    if (auto* db = layer.connection(warnings_); db != nullptr && !visit(*db, false)) return;
}

std::optional<Artifact> FileStore::find_artifact(const Key& key) {
  if (forked()) return std::nullopt;
  std::lock_guard lock(mutex_);
  std::optional<Artifact> found;
  each_layer([&](sqlite::Connection& db, bool writable) {
    found = find_in(db, key, writable);
    return !found;
  });
  return found;
}

std::optional<Artifact> FileStore::find_in(sqlite::Connection& db, const Key& key, bool writable) {
  auto row = cache::find_artifact(db, key, options_.generator_version);
  if (!row) {
    warnings_.once(row.error());
    return std::nullopt;
  }
  if (!*row || (*row)->bad) return std::nullopt;
  if (!(*row)->intact) {
    report_damage("artifact", key.hex(), db.path());
    if (writable) (void)mark_bad(db, key, options_.generator_version);
    return std::nullopt;
  }
  if (writable) touch(db, **row);
  return std::move((*row)->artifact);
}

// Never waits and never warns: the hit matters, not its record.
void FileStore::touch(sqlite::Connection& db, const ArtifactRow& row) {
  const std::int64_t now = now_unix();
  if (now - row.last_used < kTouchSeconds) return;
  db.set_busy_timeout(std::chrono::milliseconds{0});
  (void)db.prepare("UPDATE artifacts SET last_used = ? WHERE key = ? AND generator_version = ?")
      .bind_integer(now)
      .bind(row.key.bytes)
      .bind(row.artifact.generator_version)
      .run();
  db.set_busy_timeout(options_.busy_timeout);
}

bool FileStore::put_artifact(const Key& key, const Artifact& artifact) {
  if (artifact.bytes.empty()) {
    warnings_.once("empty artifact", "store: artifact " + artifact.name + " has 0 bytes, need at least 1; not kept");
    return false;
  }
  ArtifactRow row{key, artifact, now_unix(), now_unix()};
  if (row.artifact.generator_version.empty()) row.artifact.generator_version = options_.generator_version;
  if (!write([&](sqlite::Connection& db) { return write_artifact(db, row); })) return false;
  evict_if_full(key);
  return true;
}

void FileStore::evict_if_full(const Key& just_put) {
  write([&](sqlite::Connection& db) -> Status {
    QUERN_ASSIGN(const std::int64_t bytes, artifact_bytes(db));
    if (bytes <= options_.max_bytes) return {};
    const GcOptions gc_options{options_.max_bytes / 10 * 9, false, options_.generator_version, now_unix()};
    if (auto report = evict(db, gc_options, &just_put); !report) return std::move(report.error());
    return {};
  });
}

// Returns the artifact if another maker put it meanwhile; else, unless it is cancelled, the caller makes it, with the lock or, after the
// deadline or without such locks, without.
std::optional<Artifact> FileStore::wait_for_lock(CompileLock& lock, const Key& key, SingleFlight::Deadline deadline) {
  auto pause = std::chrono::milliseconds{1};
  for (;;) {
    const auto state = lock.try_lock();
    if (auto hit = find_artifact(key)) return hit;
    if (state == CompileLock::State::held) return std::nullopt;
    if (state == CompileLock::State::unavailable) {
      warnings_.once("locks", "store " + options_.directory + ": " + kLockFile + " cannot be locked; each process compiles for itself");
      return std::nullopt;
    }
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline || cancelled()) return std::nullopt;
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(pause, deadline - now));
    pause = std::min(pause * 2, std::chrono::milliseconds{20});
  }
}

Result<Artifact> FileStore::make_and_put(const Key& key, const Make& make, bool* made) {
  *made = true;
  QUERN_ASSIGN(auto artifact, make());
  if (artifact.bytes.empty())
    return Error{ErrorCode::kCompileFailed, "artifact " + artifact.name + ": the compiler returned 0 bytes, need at least 1", artifact.log};
  put_artifact(key, artifact);
  return artifact;
}

Result<Artifact> FileStore::find_or_make(const Key& key, const Make& make, bool* made) {
  bool ran = false;
  if (made == nullptr) made = &ran;
  *made = false;
  if (forked()) return make_and_put(key, make, made);
  if (auto hit = find_artifact(key)) return std::move(*hit);
  const auto deadline = std::chrono::steady_clock::now() + options_.compile_wait;
  auto entry = flights_.enter(key, deadline);
  if (entry.artifact) return std::move(*entry.artifact);
  if (!entry.lead) return make_and_put(key, make, made);

  std::optional<CompileLock> lock;  // released after the artifact is in the store
  if (user_) {
    lock.emplace((std::filesystem::path(options_.directory) / kLockFile).string(), key);
    if (auto hit = wait_for_lock(*lock, key, deadline)) {
      entry.lead->land(*hit);
      return std::move(*hit);
    }
    if (cancelled()) return Error{ErrorCode::kCancelled, "interrupted while another process compiles it", {}};
  }
  auto artifact = make_and_put(key, make, made);
  if (artifact) entry.lead->land(*artifact);
  return artifact;
}

std::vector<StoredMeasurement> FileStore::measurements(const TuningKey& key) {
  std::vector<StoredMeasurement> all;
  if (forked()) return all;
  std::set<std::tuple<std::string, Config, std::string>> seen;
  std::lock_guard lock(mutex_);
  each_layer([&](sqlite::Connection& db, bool) {
    auto rows = select_measurements(db, "WHERE problem = ? AND device = ? AND generator_version = ?");
    rows.bind(key.problem).bind(key.device).bind(key.generator_version);
    while (rows.row()) {
      auto found = read_measurement(rows);
      if (!found.intact || found.row.key != key)
        report_damage("measurement of", key.problem, db.path());
      else if (seen.emplace(found.row.compiler, found.row.measurement.config, found.row.measurement.artifact).second)
        all.push_back(std::move(found.row));
    }
    if (auto status = rows.status(); !status) warnings_.once(status.error());
    return true;
  });
  return all;
}

bool FileStore::put_measurement(const StoredMeasurement& measurement) {
  StoredMeasurement row = measurement;
  if (row.created_unix == 0) row.created_unix = now_unix();
  const std::string config = to_string(row.measurement.config);
  if (config_from_text(config) != row.measurement.config) {
    warnings_.once("config", "store: config \"" + config + "\" does not read back as itself; its measurement is not kept");
    return false;
  }
  return write([&](sqlite::Connection& db) { return write_measurement(db, row); });
}

std::optional<Winner> FileStore::find_winner(const TuningKey& key) {
  if (forked()) return std::nullopt;
  std::optional<Winner> winner;
  std::lock_guard lock(mutex_);
  each_layer([&](sqlite::Connection& db, bool) {
    auto row = cache::find_winner(db, key);
    if (!row) {
      warnings_.once(row.error());
      return true;
    }
    if (!*row) return true;
    if (!(*row)->intact) {
      report_damage("winner of", key.problem, db.path());
      return true;
    }
    if (!(*row)->dropped) winner = std::move((*row)->row);
    return false;
  });
  return winner;
}

bool FileStore::put_winner(const Winner& winner) {
  Winner row = winner;
  if (row.created_unix == 0) row.created_unix = now_unix();
  const std::string config = to_string(row.config);
  if (config_from_text(config) != row.config) {
    warnings_.once("config", "store: config \"" + config + "\" does not read back as itself; the winner is not kept");
    return false;
  }
  return write([&](sqlite::Connection& db) { return write_winner(db, row, false); });
}

bool FileStore::drop_winner(const TuningKey& key) {
  Winner mark;
  mark.key = key;
  mark.created_unix = now_unix();
  return write([&](sqlite::Connection& db) { return write_winner(db, mark, true); });
}

std::vector<Winner> FileStore::winners(std::string_view device, std::string_view generator_version) {
  std::vector<Winner> all;
  if (forked()) return all;
  std::set<TuningKey> seen;
  std::lock_guard lock(mutex_);
  each_layer([&](sqlite::Connection& db, bool) {
    auto rows = select_winners(db, "WHERE (?1 = '' OR device = ?1) AND (?2 = '' OR generator_version = ?2)");
    rows.bind(device).bind(generator_version);
    while (rows.row()) {
      auto found = read_winner(rows);
      if (!found.intact)
        report_damage("winner of", found.row.key.problem, db.path());
      else if (seen.insert(found.row.key).second && !found.dropped)
        all.push_back(std::move(found.row));
    }
    if (auto status = rows.status(); !status) warnings_.once(status.error());
    return true;
  });
  return all;
}

}  // namespace

std::string default_directory(const char* quern_cache_dir, const char* xdg_cache_home, const char* home) {
  const auto absolute = [](const char* text) { return text != nullptr && text[0] == '/'; };
  if (quern_cache_dir != nullptr && quern_cache_dir[0] != '\0') return quern_cache_dir;
  if (absolute(xdg_cache_home)) return (std::filesystem::path(xdg_cache_home) / "quern").string();
  if (absolute(home)) return (std::filesystem::path(home) / ".cache" / "quern").string();
  return {};
}

std::unique_ptr<Store> Store::open(StoreOptions options) { return std::make_unique<FileStore>(std::move(options)); }

}  // namespace quern::cache

// The store: compiled kernels (disposable) and tunings (precious) in one SQLite file per schema version.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/key.h"
#include "quern/measurement.h"
#include "quern/result.h"
#include "quern/version.h"

namespace quern::cache {

// A compiled kernel and everything that made it; `key` elsewhere is SHA-256 over tagged fields (key.h): rendered source, options, target,
// compiler, generator version. `bytes` are loaded only when length and hash match what was stored.
struct Artifact {
  std::vector<std::byte> bytes;
  std::string format;    // "cubin", "ptx", "host_object"
  std::string name;      // family and type, for people
  std::string target;    // to_string(Target)
  std::string compiler;  // Compiler::identity()
  std::string generator_version;
  std::string usage_json;  // resource usage, opaque here
  std::string log;
  std::string key_dump;
  double compile_ms = 0;
};

// Who may be asked about a tuning: equal in every field, or not used.
struct TuningKey {
  std::string problem;  // to_string(Problem)
  std::string device;   // to_string(DeviceIdentity)
  std::string generator_version;
  auto operator<=>(const TuningKey&) const = default;
};

struct StoredMeasurement {
  TuningKey key;
  std::string compiler;
  Measurement measurement;
  std::int64_t created_unix = 0;
};

struct Winner {
  TuningKey key;
  Config config;
  double us = 0;
  std::string artifact;  // hex key of the binary that was measured
  std::int64_t created_unix = 0;
};

struct StoreOptions {
  std::string directory;  // where store-v1.sqlite lives, made if missing; empty: no store at all (every look-up misses)
  std::vector<std::string> system_directories;  // read-only layers below it, looked at in order; never written, absent ones are passed over
  std::string generator_version = kGeneratorVersion;  // artifacts of another one are not found, whatever their key
  std::int64_t max_bytes = std::int64_t{2} << 30;     // of artifacts; a put that exceeds it evicts down to nine tenths (eviction.h)
  std::chrono::milliseconds busy_timeout{5000};
  std::chrono::milliseconds compile_wait{60000};  // how long to wait for another maker of the same key, process or thread
  std::function<bool()> cancelled;                // asked while waiting for another process: true ends the wait with kCancelled
  // Called at most once per kind of trouble (and file), from the thread that met it; must not call the store back. An empty directory is
  // reported too, at the first row that is not kept.
  std::function<void(const std::string&)> warn;
};

// Resolves the writable directory: QUERN_CACHE_DIR, else XDG_CACHE_HOME/quern, else HOME/.cache/quern, else empty. Reads nothing but the
// strings passed in (null or "": unset). As the XDG specification says, relative XDG_CACHE_HOME and HOME count as unset.
std::string default_directory(const char* quern_cache_dir, const char* xdg_cache_home, const char* home);

// A failing store never fails the caller: reads miss, writes are dropped and return false, one warning is given. Thread-safe; other
// processes may use the same directory at the same time. A row is written whole or not at all, is on the disk when its put returns true,
// and is loaded only if it reads back exactly as it was written (length and SHA-256); otherwise it is a miss, and marked.
//
// A file that is removed, moved or replaced while it is open is opened anew at the next put, with one warning; the old connection stays
// open to the end of the process, which then counts as one with a store for the rule below.
//
// Fork: a store opened before a fork belongs to the parent. In the child every look-up misses, every put returns false, find_or_make runs
// `make` without waiting for anyone, one warning says so, and a Store opened in the child behaves in the same way as long as the parent's
// was open at the fork: SQLite cannot be used there (cache/sqlite.h). exec, or a fork before any store is opened, gives a process with a
// store of its own. The parent is not affected by anything the child does with the handle, destroying it included.
class Store {
 public:
  static std::unique_ptr<Store> open(StoreOptions options);
  virtual ~Store() = default;

  virtual std::optional<Artifact> find_artifact(const Key& key) = 0;
  // Replaces a row of the same key and generator version. Refuses an artifact without bytes. An empty generator_version means this store's.
  virtual bool put_artifact(const Key& key, const Artifact& artifact) = 0;
  // Finds the artifact, or makes it exactly once across threads and processes: one caller runs `make`, the others wait for its result, up
  // to compile_wait or until the maker dies, then make it themselves. `made` (may be null) tells whether `make` ran here. A failure of
  // `make` is returned, not stored; whoever waited for it then tries for itself. An artifact without bytes is a failure. `make` must not
  // ask for the same key again.
  virtual Result<Artifact> find_or_make(const Key& key, const std::function<Result<Artifact>()>& make, bool* made) = 0;

  // Every remembered measurement of the key, of all layers and compilers; the caller compares `compiler` and `artifact`. Order: by
  // compiler, config, artifact within a layer, the user's layer first; a row that an upper layer has as well is left out.
  virtual std::vector<StoredMeasurement> measurements(const TuningKey& key) = 0;
  // Any verdict. Durable on return. Replaces the row of the same key, compiler, config and artifact. created_unix 0 means now.
  virtual bool put_measurement(const StoredMeasurement& row) = 0;
  virtual std::optional<Winner> find_winner(const TuningKey& key) = 0;
  virtual bool put_winner(const Winner& winner) = 0;  // created_unix 0 means now
  // A winner that no longer compiles or loads: hides it, in the layers below too, until the next put_winner. Measurements stay.
  virtual bool drop_winner(const TuningKey& key) = 0;
  virtual std::vector<Winner> winners(std::string_view device, std::string_view generator_version) = 0;  // empty strings match all
};

}  // namespace quern::cache

// The store: compiled kernels (disposable) and tunings (precious) in one SQLite file per schema version.
#pragma once

#include <array>
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

#include "quern/measurement.h"
#include "quern/result.h"

namespace quern::cache {

// SHA-256 of tagged fields.
struct Key {
  std::array<std::uint8_t, 32> bytes{};
  auto operator<=>(const Key&) const = default;
  std::string hex() const;
  static std::optional<Key> from_hex(std::string_view text);
};

// Hashes (tag, length, bytes) triples, so that no two sequences of fields collide by concatenation. Keeps a readable dump of what was hashed.
class KeyBuilder {
 public:
  KeyBuilder& field(std::string_view tag, std::string_view value);
  Key finish() const;
  const std::string& dump() const;  // "tag: length sha256-prefix" per field, for `quern cache show`

 private:
  std::string hashed_;
  std::string dump_;
};

// A compiled kernel and everything that made it. `bytes` are loaded only when length and hash match what was stored.
struct Artifact {
  std::vector<std::byte> bytes;
  std::string format;             // "cubin", "ptx", "host_object"
  std::string name;               // family and type, for people
  std::string target;             // to_string(Target)
  std::string compiler;           // Compiler::identity()
  std::string generator_version;
  std::string usage_json;         // resource usage, opaque here
  std::string log;
  std::string key_dump;
  double compile_ms = 0;
};

// Who may be asked about a tuning: equal in every field, or not used.
struct TuningKey {
  std::string problem;            // to_string(Problem)
  std::string device;             // to_string(DeviceIdentity)
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
  std::string directory;                       // where store-v1.sqlite lives; empty: no store at all (every look-up misses)
  std::vector<std::string> system_directories; // read-only layers below it, looked at in order
  std::int64_t max_bytes = std::int64_t{2} << 30;  // gc target
  std::chrono::milliseconds busy_timeout{5000};
  std::chrono::milliseconds compile_wait{60000};   // how long to wait for another process's compile of the same key
  std::function<void(const std::string&)> warn;    // called at most once per kind of trouble
};

// Resolves the writable directory: QUERN_CACHE_DIR, else XDG_CACHE_HOME/quern, else HOME/.cache/quern, else empty. Reads nothing but the
// strings passed in (null: unset).
std::string default_directory(const char* quern_cache_dir, const char* xdg_cache_home, const char* home);

// A failing store never fails the caller: reads miss, writes are dropped, one warning is given. Thread-safe.
class Store {
 public:
  static std::unique_ptr<Store> open(StoreOptions options);
  virtual ~Store() = default;

  virtual std::optional<Artifact> find_artifact(const Key& key) = 0;
  virtual bool put_artifact(const Key& key, const Artifact& artifact) = 0;
  // Finds the artifact, or makes it exactly once across threads and processes: one caller runs `make`, the others wait for its result, up to
  // compile_wait or until the maker dies, then make it themselves. `made` tells whether `make` ran here. A failure of `make` is returned, not stored.
  virtual Result<Artifact> find_or_make(const Key& key, const std::function<Result<Artifact>()>& make, bool* made) = 0;

  virtual std::vector<StoredMeasurement> measurements(const TuningKey& key) = 0;
  virtual bool put_measurement(const StoredMeasurement& row) = 0;  // durable on return
  virtual std::optional<Winner> find_winner(const TuningKey& key) = 0;
  virtual bool put_winner(const Winner& winner) = 0;
  virtual bool drop_winner(const TuningKey& key) = 0;  // a winner that no longer compiles or loads; measurements stay
  virtual std::vector<Winner> winners(std::string_view device, std::string_view generator_version) = 0;  // empty strings match all
};

}  // namespace quern::cache

// What people do with a store: look, verify, trim, ship. Functions over a directory (or, for the read-only ones, any layer's directory),
// for `quern cache`. They may run while other processes use the store. Unlike Store they report failure, as Result. A directory without a
// store reads as an empty one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/store.h"

namespace quern::cache {

// Who asks: rows are usable by it or not. An empty list stands for "unknown here" and rules nothing out.
struct Running {
  std::string generator_version = kGeneratorVersion;
  std::vector<std::string> compilers;  // Compiler::identity()
  std::vector<std::string> targets;    // to_string(Target)
  std::vector<std::string> devices;    // to_string(DeviceIdentity)
};

struct ArtifactInfo {
  std::string key;  // 64 hex digits
  std::string name;
  std::string format;
  std::string target;
  std::string compiler;
  std::string generator_version;
  std::int64_t bytes = 0;
  std::int64_t created_unix = 0;
  std::int64_t last_used_unix = 0;  // to the hour
  bool bad = false;                 // failed its hash once
  bool usable = false;
  std::string why_not;  // empty when usable; else what was found and what is needed
};

struct TuningInfo {
  TuningKey key;
  std::int64_t measured = 0;  // rows, any verdict
  std::int64_t failed = 0;    // of these, not ok
  std::int64_t unstable = 0;  // of these, timed on a busy device
  std::optional<Winner> winner;
  bool usable = false;
  std::string why_not;
};

struct ArtifactDetail {
  ArtifactInfo info;
  double compile_ms = 0;
  std::string usage_json;
  std::string log;
  std::string key_dump;
  bool intact = false;                         // rehashed now
  std::vector<StoredMeasurement> measured_as;  // measurements of this binary
};

// store-v1.sqlite inside `directory`; the file need not exist.
std::string store_file(const std::string& directory);

Result<std::vector<ArtifactInfo>> list_artifacts(const std::string& directory, const Running& running);  // by name, target, key
Result<std::vector<TuningInfo>> list_tunings(const std::string& directory, const Running& running);      // by device, problem
// The rows whose key begins with `prefix` (hex): one key, once per generator version that has it. Errors: kInvalidArgument when the
// prefix is no hex, matches nothing, or matches several keys.
Result<std::vector<ArtifactDetail>> show(const std::string& directory, std::string_view prefix, const Running& running);

struct BadRow {
  std::string table;  // "artifacts", "measurements", "winners", or "file"
  std::string row;    // its key, for people
  std::string reason;
};
struct VerifyReport {
  std::int64_t artifacts = 0;
  std::int64_t measurements = 0;
  std::int64_t winners = 0;
  std::vector<BadRow> bad;
  bool ok() const { return bad.empty(); }
};
// Checks the file's structure and rehashes every row; a file that cannot be read at all is one bad row of table "file". Artifacts that fail
// are marked and never loaded again, where the store is writable.
Result<VerifyReport> verify(const std::string& directory);

struct GcOptions {
  std::int64_t max_bytes = std::int64_t{2} << 30;
  bool dry_run = false;
  std::string generator_version = kGeneratorVersion;
  std::int64_t now_unix = 0;  // 0: the clock
};
struct GcReport {
  struct Removed {
    std::string key;
    std::string generator_version;
    std::string name;
    std::string target;
    std::int64_t bytes = 0;
    std::int64_t last_used_unix = 0;
    bool live = false;  // see eviction.h
  };
  std::int64_t bytes_before = 0;
  std::int64_t bytes_after = 0;
  std::vector<Removed> removed;  // in order; with dry_run: what would be
};
Result<GcReport> gc(const std::string& directory, const GcOptions& options);

struct ExchangeReport {
  std::int64_t artifacts = 0;  // rows written to the other side
  std::int64_t measurements = 0;
  std::int64_t winners = 0;
  std::int64_t kept = 0;  // import: rows of the store that stayed as they were; export: 0
  std::int64_t left = 0;  // rows of the source not taken along: drop marks, marked artifacts and, in an export, damaged rows
};
// Writes every intact row, of every version, to one new file that is itself a store (usable as a layer under the name store-v1.sqlite).
// `file` appears complete or not at all. Errors: kInvalidArgument when it exists, kEnvironment.
Result<ExchangeReport> export_store(const std::string& directory, const std::string& file);
// Merges a file made by export_store (or any store file). An artifact already here and unmarked stays; a measurement is replaced only by a
// newer one that is not less stable; a winner only by one that is both newer and faster, and a dropped one by a newer one.
// All or nothing: a file of another schema, with foreign tables, garbage, or with one row that fails its hash is refused with one error
// (kVersionMismatch, kCorrupt, kInvalidArgument, kEnvironment) and the store is as it was. The hash proves that a row is whole, not who
// made it: import kernels only from those whose code you would run.
Result<ExchangeReport> import_store(const std::string& directory, const std::string& file);

}  // namespace quern::cache

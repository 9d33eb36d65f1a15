// Rows of the three tables as structs, in and out, with their digests. No policy: what is loaded, kept or dropped is decided by the
// callers. Internal to cache/.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cache/sqlite.h"
#include "cache/store.h"

namespace quern::cache {

struct ArtifactRow {
  Key key;
  Artifact artifact;
  std::int64_t created = 0;
  std::int64_t last_used = 0;
  bool bad = false;     // marked earlier
  bool intact = false;  // read back exactly as written: digest and length match
};

struct MeasurementRow {
  StoredMeasurement row;
  bool intact = false;
};

struct WinnerRow {
  Winner row;
  bool dropped = false;
  bool intact = false;
};

// Each select_ returns a statement whose rows the read_ of the same name decodes; `rest` is what follows FROM <table>.
sqlite::Statement select_artifacts(sqlite::Connection& db, std::string_view rest);
ArtifactRow read_artifact(const sqlite::Statement& statement);
sqlite::Statement select_measurements(sqlite::Connection& db, std::string_view rest);
MeasurementRow read_measurement(const sqlite::Statement& statement);
sqlite::Statement select_winners(sqlite::Connection& db, std::string_view rest);
WinnerRow read_winner(const sqlite::Statement& statement);

// Look-ups by primary key. A row that a damaged index brings up under a key that is not its own counts as not intact.
Result<std::optional<ArtifactRow>> find_artifact(sqlite::Connection& db, const Key& key, const std::string& generator_version);
Result<std::optional<MeasurementRow>> find_measurement(sqlite::Connection& db, const StoredMeasurement& like);
Result<std::optional<WinnerRow>> find_winner(sqlite::Connection& db, const TuningKey& key);

// Insert, or replace the row with the same primary key. One statement each, hence atomic.
Status write_artifact(sqlite::Connection& db, const ArtifactRow& row);
Status write_measurement(sqlite::Connection& db, const StoredMeasurement& row);
Status write_winner(sqlite::Connection& db, const Winner& row, bool dropped);

// Sets `bad`, so that the row is never loaded again.
Status mark_bad(sqlite::Connection& db, const Key& key, const std::string& generator_version);

// Reads to_string(Config) back. Nothing when the text is no config; then the row is not usable.
std::optional<Config> config_from_text(std::string_view text);

}  // namespace quern::cache

#include "cache/admin.h"

#include <algorithm>
#include <ctime>
#include <map>
#include <tuple>

#include "cache/eviction.h"
#include "cache/rows.h"
#include "cache/schema.h"

namespace quern::cache {
namespace {

constexpr std::chrono::milliseconds kBusyTimeout{5000};
constexpr int kMaxStructureReports = 10;

using MaybeStore = std::optional<sqlite::Connection>;

Result<MaybeStore> open_existing(const std::string& directory, Access access) {
  const std::string path = store_path(directory);
  QUERN_ASSIGN(const bool there, store_is_there(path));
  if (!there) return MaybeStore{};
  QUERN_ASSIGN(auto db, open_store_file(path, access, kBusyTimeout));
  return MaybeStore{std::move(db)};
}

bool admits(const std::vector<std::string>& known, const std::string& value) {
  return known.empty() || std::find(known.begin(), known.end(), value) != known.end();
}

std::string joined(const std::vector<std::string>& values) {
  std::string text;
  for (const auto& value : values) text += (text.empty() ? "" : " or ") + value;
  return text;
}

std::string why_not(const std::string& generator_version, const Running& running) {
  if (generator_version == running.generator_version) return {};
  return "made by generator " + generator_version + ", this is generator " + running.generator_version;
}

void judge(ArtifactInfo& info, const Running& running) {
  info.why_not = why_not(info.generator_version, running);
  if (info.bad)
    info.why_not = "does not match its hash; replaced at the next compile";
  else if (info.why_not.empty() && !admits(running.compilers, info.compiler))
    info.why_not = "compiled by " + info.compiler + ", here is " + joined(running.compilers);
  else if (info.why_not.empty() && !admits(running.targets, info.target))
    info.why_not = "for " + info.target + ", here is " + joined(running.targets);
  info.usable = info.why_not.empty();
}

void judge(TuningInfo& info, const Running& running) {
  info.why_not = why_not(info.key.generator_version, running);
  if (info.why_not.empty() && !admits(running.devices, info.key.device))
    info.why_not = "measured on " + info.key.device + ", here is " + joined(running.devices);
  info.usable = info.why_not.empty();
}

ArtifactInfo info_of(const ArtifactRow& row) {
  const Artifact& a = row.artifact;
  return {row.key.hex(), a.name,        a.format, a.target, a.compiler, a.generator_version, static_cast<std::int64_t>(a.bytes.size()),
          row.created,   row.last_used, row.bad};
}

Result<std::vector<StoredMeasurement>> measurements_of(sqlite::Connection& db, const std::string& artifact) {
  std::vector<StoredMeasurement> all;
  auto rows = select_measurements(db, "WHERE artifact = ?");
  rows.bind(artifact);
  while (rows.row())
    if (auto found = read_measurement(rows); found.intact) all.push_back(std::move(found.row));
  QUERN_TRY(rows.status());
  return all;
}

Result<std::vector<ArtifactDetail>> details_by_prefix(sqlite::Connection& db, const std::string& prefix, const Running& running) {
  std::vector<ArtifactDetail> details;
  auto rows = select_artifacts(db, "WHERE substr(lower(hex(key)), 1, ?) = ? ORDER BY key, generator_version");
  rows.bind_integer(static_cast<std::int64_t>(prefix.size())).bind(prefix);
  while (rows.row()) {
    const ArtifactRow row = read_artifact(rows);
    ArtifactDetail detail{
        info_of(row), row.artifact.compile_ms, row.artifact.usage_json, row.artifact.log, row.artifact.key_dump, row.intact, {}};
    detail.info.bad = detail.info.bad || !row.intact;
    judge(detail.info, running);
    details.push_back(std::move(detail));
  }
  QUERN_TRY(rows.status());
  return details;
}

void check_structure(sqlite::Connection& db, VerifyReport& report) {
  auto rows = db.prepare("PRAGMA integrity_check(" + std::to_string(kMaxStructureReports) + ")");
  while (rows.row())
    if (const std::string found = rows.text(0); found != "ok") report.bad.push_back({"file", db.path(), found});
  if (auto status = rows.status(); !status) report.bad.push_back({"file", db.path(), status.error().message});
}

// Reads every row of a table; `name(row)` prints the key of one that is not intact. Returns how many rows there were.
template <class Read, class Name>
std::int64_t check_rows(sqlite::Statement rows, const char* table, VerifyReport& report, const Read& read, const Name& name) {
  std::int64_t count = 0;
  for (; rows.row(); ++count)
    if (const auto row = read(rows); !row.intact) report.bad.push_back({table, name(row), "does not match its hash"});
  if (auto status = rows.status(); !status) report.bad.push_back({table, "", status.error().message});
  return count;
}

}  // namespace

std::string store_file(const std::string& directory) { return store_path(directory); }

Result<std::vector<ArtifactInfo>> list_artifacts(const std::string& directory, const Running& running) {
  QUERN_ASSIGN(auto store, open_existing(directory, Access::inspect));
  std::vector<ArtifactInfo> list;
  if (!store) return list;
  auto rows = store->prepare(
      "SELECT lower(hex(key)), name, format, target, compiler, generator_version, size, created, last_used, bad FROM artifacts "
      "ORDER BY name, target, key, generator_version");
  while (rows.row()) {
    ArtifactInfo info{rows.text(0), rows.text(1),    rows.text(2),    rows.text(3),    rows.text(4),
                      rows.text(5), rows.integer(6), rows.integer(7), rows.integer(8), rows.integer(9) != 0};
    judge(info, running);
    list.push_back(std::move(info));
  }
  QUERN_TRY(rows.status());
  return list;
}

Result<std::vector<TuningInfo>> list_tunings(const std::string& directory, const Running& running) {
  QUERN_ASSIGN(auto store, open_existing(directory, Access::inspect));
  std::map<std::tuple<std::string, std::string, std::string>, TuningInfo> by_device;
  const auto entry = [&](const TuningKey& key) -> TuningInfo& {
    auto& info = by_device[{key.device, key.problem, key.generator_version}];
    info.key = key;
    return info;
  };
  std::vector<TuningInfo> list;
  if (!store) return list;
  auto rows = store->prepare(
      "SELECT problem, device, generator_version, count(*), sum(verdict <> 'ok'), sum(unstable) FROM measurements GROUP BY 1, 2, 3");
  while (rows.row()) {
    auto& info = entry({rows.text(0), rows.text(1), rows.text(2)});
    std::tie(info.measured, info.failed, info.unstable) = std::tuple(rows.integer(3), rows.integer(4), rows.integer(5));
  }
  QUERN_TRY(rows.status());
  auto winners = select_winners(*store, "");
  while (winners.row())
    if (auto found = read_winner(winners); found.intact && !found.dropped) entry(found.row.key).winner = found.row;
  QUERN_TRY(winners.status());
  for (auto& [key, info] : by_device) {
    judge(info, running);
    list.push_back(std::move(info));
  }
  return list;
}

Result<std::vector<ArtifactDetail>> show(const std::string& directory, std::string_view prefix, const Running& running) {
  std::string lower;
  for (const char c : prefix) lower.push_back(c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c);
  if (lower.empty() || lower.size() > 64 || lower.find_first_not_of("0123456789abcdef") != std::string::npos)
    return Error{ErrorCode::kInvalidArgument, "key \"" + std::string(prefix) + "\": need 1 to 64 hex digits"};
  QUERN_ASSIGN(auto store, open_existing(directory, Access::inspect));
  std::vector<ArtifactDetail> details;
  if (store) {
    QUERN_ASSIGN(details, details_by_prefix(*store, lower, running));
  }
  if (details.empty())
    return Error{ErrorCode::kInvalidArgument, "key " + lower + ": no artifact in " + store_path(directory) + " begins with it"};
  if (details.front().info.key != details.back().info.key)
    return Error{ErrorCode::kInvalidArgument, "key " + lower + ": several artifacts begin with it, " + details.front().info.key + " and " +
                                                  details.back().info.key + " among them; need more digits"};
  for (auto& detail : details) {
    QUERN_ASSIGN(detail.measured_as, measurements_of(*store, detail.info.key));
  }
  return details;
}

Result<VerifyReport> verify(const std::string& directory) {
  const bool writable = is_writable(store_path(directory));
  VerifyReport report;
  auto opened = open_existing(directory, writable ? Access::write : Access::read);
  if (!opened && opened.error().code != ErrorCode::kCorrupt) return std::move(opened.error());
  if (!opened) report.bad.push_back({"file", store_path(directory), opened.error().message});
  if (!opened || !*opened) return report;
  MaybeStore& store = *opened;
  check_structure(*store, report);
  std::vector<std::pair<Key, std::string>> damaged;
  const auto artifact_name = [&](const ArtifactRow& row) {
    damaged.emplace_back(row.key, row.artifact.generator_version);
    return row.key.hex();
  };
  report.artifacts = check_rows(select_artifacts(*store, ""), "artifacts", report, read_artifact, artifact_name);
  report.measurements = check_rows(select_measurements(*store, ""), "measurements", report, read_measurement, [](const MeasurementRow& m) {
    return m.row.key.problem + " | " + m.row.key.device + " | " + to_string(m.row.measurement.config);
  });
  report.winners = check_rows(select_winners(*store, ""), "winners", report, read_winner,
                              [](const WinnerRow& w) { return w.row.key.problem + " | " + w.row.key.device; });
  if (writable)
    for (const auto& [key, generator_version] : damaged) (void)mark_bad(*store, key, generator_version);  // reported all the same
  return report;
}

Result<GcReport> gc(const std::string& directory, const GcOptions& options) {
  if (options.max_bytes < 0)
    return Error{ErrorCode::kInvalidArgument, "gc: max_bytes is " + std::to_string(options.max_bytes) + ", need 0 or more"};
  GcOptions dated = options;
  if (dated.now_unix == 0) dated.now_unix = static_cast<std::int64_t>(std::time(nullptr));
  QUERN_ASSIGN(auto store, open_existing(directory, Access::write));
  if (!store) return GcReport{};
  QUERN_ASSIGN(auto report, evict(*store, dated, nullptr));
  if (!options.dry_run) (void)store->execute("PRAGMA wal_checkpoint(TRUNCATE)");  // gives the space back now, if no reader is in the way
  return report;
}

}  // namespace quern::cache

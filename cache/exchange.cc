// export_store and import_store of admin.h.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "cache/admin.h"
#include "cache/rows.h"
#include "cache/schema.h"

namespace quern::cache {
namespace {

constexpr std::chrono::milliseconds kBusyTimeout{30000};  // an import may wait for a tuner's writes, and the other way round

template <class Read, class Visit>
Status for_each(sqlite::Statement rows, const Read& read, const Visit& visit) {
  while (rows.row()) QUERN_TRY(visit(read(rows)));
  return rows.status();
}

Status copy_intact_rows(sqlite::Connection& from, sqlite::Connection& to, ExchangeReport& report) {
  const auto copy = [&](bool take, std::int64_t& count, const auto& write) -> Status {
    if (take) QUERN_TRY(write());
    ++(take ? count : report.left);
    return {};
  };
  QUERN_TRY(for_each(select_artifacts(from, ""), read_artifact, [&](const ArtifactRow& row) {
    return copy(row.intact && !row.bad, report.artifacts, [&] { return write_artifact(to, row); });
  }));
  QUERN_TRY(for_each(select_measurements(from, ""), read_measurement, [&](const MeasurementRow& m) {
    return copy(m.intact, report.measurements, [&] { return write_measurement(to, m.row); });
  }));
  return for_each(select_winners(from, ""), read_winner, [&](const WinnerRow& w) {
    return copy(w.intact && !w.dropped, report.winners, [&] { return write_winner(to, w.row, false); });
  });
}

Status write_draft(const std::string& directory, const std::string& draft, ExchangeReport& report) {
  QUERN_TRY(create_store_file(draft));
  QUERN_ASSIGN(auto to, open_store_file(draft, Access::write, kBusyTimeout));
  sqlite::Transaction transaction(to);
  QUERN_TRY(transaction.begun());
  QUERN_ASSIGN(auto from, open_store_file(store_path(directory), Access::inspect, kBusyTimeout));
  QUERN_TRY(from.execute("BEGIN"));  // one snapshot of all three tables
  QUERN_TRY(copy_intact_rows(from, to, report));
  QUERN_TRY(transaction.commit());
  return to.execute("PRAGMA journal_mode = DELETE");  // one file, complete by itself
}

// Merges row by row; see the rules at import_store.
class Merge {
 public:
  Merge(sqlite::Connection& to, const std::string& source, ExchangeReport& report) : to_(to), source_(source), report_(report) {}

  Status artifact(ArtifactRow row) {
    if (row.bad) return leave();
    if (!row.intact) return damaged("artifact " + row.key.hex());
    QUERN_ASSIGN(const auto here, find_artifact(to_, row.key, row.artifact.generator_version));
    if (here && here->intact && !here->bad) return keep();
    row.last_used = std::min(row.last_used, now_);
    ++report_.artifacts;
    return write_artifact(to_, row);
  }
  Status measurement(const MeasurementRow& m) {
    if (!m.intact) return damaged("measurement of " + m.row.key.problem);
    QUERN_ASSIGN(const auto here, find_measurement(to_, m.row));
    const bool better = !here || !here->intact ||
                        (m.row.created_unix > here->row.created_unix && (!m.row.measurement.unstable || here->row.measurement.unstable));
    if (!better) return keep();
    ++report_.measurements;
    return write_measurement(to_, m.row);
  }
  Status winner(const WinnerRow& w) {
    if (!w.intact) return damaged("winner of " + w.row.key.problem);
    if (w.dropped) return leave();
    QUERN_ASSIGN(const auto here, find_winner(to_, w.row.key));
    const bool better =
        !here || !here->intact || (w.row.created_unix > here->row.created_unix && (here->dropped || w.row.us < here->row.us));
    if (!better) return keep();
    ++report_.winners;
    return write_winner(to_, w.row, false);
  }

 private:
  Status keep() { return ++report_.kept, Status{}; }
  Status leave() { return ++report_.left, Status{}; }
  Error damaged(const std::string& row) const {
    return {ErrorCode::kCorrupt, "import " + source_ + ": " + row + " does not match its hash; nothing was imported"};
  }
  sqlite::Connection& to_;
  const std::string& source_;
  ExchangeReport& report_;
  const std::int64_t now_ = static_cast<std::int64_t>(std::time(nullptr));
};

Status merge_all(sqlite::Connection& from, Merge& merge) {
  QUERN_TRY(for_each(select_artifacts(from, ""), read_artifact, [&](ArtifactRow row) { return merge.artifact(std::move(row)); }));
  QUERN_TRY(for_each(select_measurements(from, ""), read_measurement, [&](const MeasurementRow& m) { return merge.measurement(m); }));
  return for_each(select_winners(from, ""), read_winner, [&](const WinnerRow& w) { return merge.winner(w); });
}

bool same_file(const std::string& a, const std::string& b) {
  std::error_code absent;
  return std::filesystem::equivalent(a, b, absent);
}

}  // namespace

Result<ExchangeReport> export_store(const std::string& directory, const std::string& file) {
  if (file_exists(file)) return Error{ErrorCode::kInvalidArgument, "export " + file + ": exists; need a new name"};
  QUERN_ASSIGN(const bool there, store_is_there(store_path(directory)));
  if (!there) return Error{ErrorCode::kEnvironment, "export: no store is at " + store_path(directory), {}};
  const std::string draft = file + ".part-" + std::to_string(getpid());
  ExchangeReport report;
  Status status = write_draft(directory, draft, report);
  if (status && ::link(draft.c_str(), file.c_str()) != 0)
    status = Error{ErrorCode::kEnvironment, "export " + file + ": cannot be written: " + std::strerror(errno)};
  for (const char* suffix : {"", "-wal", "-shm", "-journal"}) ::unlink((draft + suffix).c_str());
  QUERN_TRY(std::move(status));
  return report;
}

Result<ExchangeReport> import_store(const std::string& directory, const std::string& file) {
  const std::string path = store_path(directory);
  if (!file_exists(file)) return Error{ErrorCode::kInvalidArgument, "import " + file + ": no such file"};
  if (!std::filesystem::is_regular_file(file))  // opening a pipe would wait for a writer
    return Error{ErrorCode::kInvalidArgument, "import " + file + ": is not a regular file"};
  if (same_file(path, file)) return Error{ErrorCode::kInvalidArgument, "import " + file + ": is the store itself"};
  QUERN_ASSIGN(auto from, open_store_file(file, Access::read, kBusyTimeout));
  QUERN_TRY(check_schema(from));
  QUERN_TRY(from.execute("BEGIN"));
  std::error_code failed;
  std::filesystem::create_directories(directory, failed);
  if (failed) return Error{ErrorCode::kEnvironment, "store " + path + ": cannot make its folder: " + failed.message()};
  QUERN_TRY(create_store_file(path));
  QUERN_ASSIGN(auto to, open_store_file(path, Access::write, kBusyTimeout));
  sqlite::Transaction transaction(to);
  QUERN_TRY(transaction.begun());
  ExchangeReport report;
  Merge merge(to, file, report);
  QUERN_TRY(merge_all(from, merge));
  QUERN_TRY(transaction.commit());
  return report;
}

}  // namespace quern::cache

#include "cache/eviction.h"

#include <algorithm>

namespace quern::cache {
namespace {

constexpr std::int64_t kLiveSeconds = 24 * 3600;

struct Candidate {
  Key key;
  GcReport::Removed removed;
};

Result<std::vector<Candidate>> by_expendability(sqlite::Connection& db, const GcOptions& options) {
  auto rows = db.prepare(
      "SELECT key, generator_version, name, target, size, last_used, generator_version = ?1 AND (last_used >= ?2 OR lower(hex(key)) IN "
      "(SELECT artifact FROM winners WHERE generator_version = ?1 AND dropped = 0)) AS live FROM artifacts ORDER BY live, last_used, size "
      "DESC, key");
  rows.bind(options.generator_version).bind_integer(options.now_unix - kLiveSeconds);
  std::vector<Candidate> candidates;
  while (rows.row()) {
    const auto blob = rows.blob(0);
    Candidate c;
    if (blob.size() != c.key.bytes.size()) continue;
    std::ranges::copy(blob, std::as_writable_bytes(std::span(c.key.bytes)).begin());
    c.removed = {c.key.hex(), rows.text(1), rows.text(2), rows.text(3), rows.integer(4), rows.integer(5), rows.integer(6) != 0};
    candidates.push_back(std::move(c));
  }
  QUERN_TRY(rows.status());
  return candidates;
}

}  // namespace

Result<std::int64_t> artifact_bytes(sqlite::Connection& db) { return db.integer("SELECT coalesce(sum(size), 0) FROM artifacts"); }

Result<GcReport> evict(sqlite::Connection& db, const GcOptions& options, const Key* spare) {
  sqlite::Transaction transaction(db);
  QUERN_TRY(transaction.begun());
  GcReport report;
  QUERN_ASSIGN(report.bytes_before, artifact_bytes(db));
  report.bytes_after = report.bytes_before;
  QUERN_ASSIGN(auto candidates, by_expendability(db, options));
  auto remove = db.prepare("DELETE FROM artifacts WHERE key = ? AND generator_version = ?");
  for (auto& c : candidates) {
    if (report.bytes_after <= options.max_bytes) break;
    if (spare != nullptr && c.key == *spare) continue;
    if (!options.dry_run) QUERN_TRY(remove.rewind().bind(c.key.bytes).bind(c.removed.generator_version).run());
    report.bytes_after -= c.removed.bytes;
    report.removed.push_back(std::move(c.removed));
  }
  QUERN_TRY(transaction.commit());
  if (!report.removed.empty() && !options.dry_run)
    (void)db.execute("PRAGMA incremental_vacuum");  // the rows are gone; space may follow later
  return report;
}

}  // namespace quern::cache

#include "cache/rows.h"

#include <algorithm>
#include <charconv>

#include "cache/digest.h"

namespace quern::cache {
namespace {

Key digest_of(const Key& key, const Artifact& a, std::int64_t created) {
  return Digest()
      .bytes("key", std::as_bytes(std::span(key.bytes)))
      .text("generator_version", a.generator_version)
      .integer("created", created)
      .text("format", a.format)
      .text("name", a.name)
      .text("target", a.target)
      .text("compiler", a.compiler)
      .text("usage_json", a.usage_json)
      .real("compile_ms", a.compile_ms)
      .text("key_dump", a.key_dump)
      .text("log", a.log)
      .bytes("bytes", a.bytes)
      .finish();
}

Key digest_of(const StoredMeasurement& r, std::string_view config, std::string_view verdict) {
  const Measurement& m = r.measurement;
  return Digest()
      .text("problem", r.key.problem)
      .text("device", r.key.device)
      .text("generator_version", r.key.generator_version)
      .text("compiler", r.compiler)
      .text("config", config)
      .text("artifact", m.artifact)
      .integer("created", r.created_unix)
      .text("verdict", verdict)
      .text("reason", m.reason)
      .real("nmse", m.nmse)
      .real("max_error", m.max_error)
      .real("us", m.us)
      .real("spread", m.spread)
      .real("us_l2_warm", m.us_l2_warm)
      .integer("unstable", m.unstable ? 1 : 0)
      .finish();
}

Key digest_of(const Winner& w, std::string_view config, bool dropped) {
  return Digest()
      .text("problem", w.key.problem)
      .text("device", w.key.device)
      .text("generator_version", w.key.generator_version)
      .integer("created", w.created_unix)
      .text("config", config)
      .real("us", w.us)
      .text("artifact", w.artifact)
      .integer("dropped", dropped ? 1 : 0)
      .finish();
}

bool equal(std::span<const std::byte> stored, const Key& digest) {
  return std::ranges::equal(stored, std::as_bytes(std::span(digest.bytes)));
}

constexpr Verdict kVerdicts[] = {Verdict::ok,
                                 Verdict::wrong_output,
                                 Verdict::incomplete_output,
                                 Verdict::out_of_bounds_write,
                                 Verdict::compile_failed,
                                 Verdict::launch_failed,
                                 Verdict::crashed,
                                 Verdict::timed_out,
                                 Verdict::out_of_memory,
                                 Verdict::rejected};

std::optional<Verdict> verdict_from_text(std::string_view text) {
  for (const Verdict v : kVerdicts)
    if (text == to_string(v)) return v;
  return std::nullopt;
}

std::optional<Config::Value> value_from_text(std::string_view text) {
  const auto equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0) return std::nullopt;
  Config::Value value{std::string(text.substr(0, equals)), 0};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + equals + 1, end, value.value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

}  // namespace

std::optional<Config> config_from_text(std::string_view text) {
  const auto colon = text.find(':');
  Config config{std::string(text.substr(0, colon)), {}};
  if (config.family.empty()) return std::nullopt;
  if (colon == std::string_view::npos) return config;
  for (std::size_t begin = colon + 1;;) {
    const auto comma = text.find(',', begin);
    auto value = value_from_text(text.substr(begin, comma == std::string_view::npos ? comma : comma - begin));
    if (!value) return std::nullopt;
    config.values.push_back(std::move(*value));
    if (comma == std::string_view::npos) return config;
    begin = comma + 1;
  }
}

sqlite::Statement select_artifacts(sqlite::Connection& db, std::string_view rest) {
  return db.prepare(
      "SELECT key, generator_version, size, digest, created, last_used, bad, format, name, target, compiler, usage_json, compile_ms, "
      "key_dump, log, bytes FROM artifacts " +
      std::string(rest));
}

ArtifactRow read_artifact(const sqlite::Statement& s) {
  ArtifactRow row;
  const auto key = s.blob(0);
  const bool whole_key = key.size() == row.key.bytes.size();
  if (whole_key) std::ranges::copy(key, std::as_writable_bytes(std::span(row.key.bytes)).begin());
  Artifact& a = row.artifact;
  a.generator_version = s.text(1);
  row.created = s.integer(4);
  row.last_used = s.integer(5);
  row.bad = s.integer(6) != 0;
  a.format = s.text(7);
  a.name = s.text(8);
  a.target = s.text(9);
  a.compiler = s.text(10);
  a.usage_json = s.text(11);
  a.compile_ms = s.real(12);
  a.key_dump = s.text(13);
  a.log = s.text(14);
  const auto bytes = s.blob(15);
  a.bytes.assign(bytes.begin(), bytes.end());
  row.intact = whole_key && !bytes.empty() && static_cast<std::int64_t>(bytes.size()) == s.integer(2) &&
               equal(s.blob(3), digest_of(row.key, a, row.created));
  return row;
}

sqlite::Statement select_measurements(sqlite::Connection& db, std::string_view rest) {
  return db.prepare(
      "SELECT problem, device, generator_version, compiler, config, artifact, digest, created, verdict, reason, nmse, max_error, us, "
      "spread, us_l2_warm, unstable FROM measurements " +
      std::string(rest));
}

MeasurementRow read_measurement(const sqlite::Statement& s) {
  MeasurementRow out;
  StoredMeasurement& r = out.row;
  r.key = {s.text(0), s.text(1), s.text(2)};
  r.compiler = s.text(3);
  const std::string config_text = s.text(4), verdict_text = s.text(8);
  const auto config = config_from_text(config_text);
  const auto verdict = verdict_from_text(verdict_text);
  r.created_unix = s.integer(7);
  r.measurement = {config.value_or(Config{}),
                   verdict.value_or(Verdict::rejected),
                   s.text(9),
                   s.real(10),
                   s.real(11),
                   s.real(12),
                   s.real(13),
                   s.real(14),
                   s.integer(15) != 0,
                   s.text(5)};
  out.intact = config && verdict && equal(s.blob(6), digest_of(r, config_text, verdict_text));
  return out;
}

sqlite::Statement select_winners(sqlite::Connection& db, std::string_view rest) {
  return db.prepare("SELECT problem, device, generator_version, digest, created, config, us, artifact, dropped FROM winners " +
                    std::string(rest));
}

WinnerRow read_winner(const sqlite::Statement& s) {
  WinnerRow out;
  const std::string config_text = s.text(5);
  const auto config = config_from_text(config_text);
  out.row = {{s.text(0), s.text(1), s.text(2)}, config.value_or(Config{}), s.real(6), s.text(7), s.integer(4)};
  out.dropped = s.integer(8) != 0;
  out.intact = (config || out.dropped) && equal(s.blob(3), digest_of(out.row, config_text, out.dropped));
  return out;
}

Result<std::optional<ArtifactRow>> find_artifact(sqlite::Connection& db, const Key& key, const std::string& generator_version) {
  auto statement = select_artifacts(db, "WHERE key = ? AND generator_version = ?");
  std::optional<ArtifactRow> found;
  if (statement.bind(key.bytes).bind(generator_version).row()) {
    found = read_artifact(statement);
    found->intact = found->intact && found->key == key && found->artifact.generator_version == generator_version;
  }
  QUERN_TRY(statement.status());
  return found;
}

Result<std::optional<MeasurementRow>> find_measurement(sqlite::Connection& db, const StoredMeasurement& like) {
  auto statement = select_measurements(
      db, "WHERE problem = ? AND device = ? AND generator_version = ? AND compiler = ? AND config = ? AND artifact = ?");
  statement.bind(like.key.problem).bind(like.key.device).bind(like.key.generator_version).bind(like.compiler);
  statement.bind(to_string(like.measurement.config)).bind(like.measurement.artifact);
  std::optional<MeasurementRow> found;
  if (statement.row()) {
    found = read_measurement(statement);
    found->intact = found->intact && found->row.key == like.key;
  }
  QUERN_TRY(statement.status());
  return found;
}

Result<std::optional<WinnerRow>> find_winner(sqlite::Connection& db, const TuningKey& key) {
  auto statement = select_winners(db, "WHERE problem = ? AND device = ? AND generator_version = ?");
  std::optional<WinnerRow> found;
  if (statement.bind(key.problem).bind(key.device).bind(key.generator_version).row()) {
    found = read_winner(statement);
    found->intact = found->intact && found->row.key == key;
  }
  QUERN_TRY(statement.status());
  return found;
}

Status write_artifact(sqlite::Connection& db, const ArtifactRow& row) {
  const Artifact& a = row.artifact;
  auto s = db.prepare(
      "INSERT OR REPLACE INTO artifacts(key, generator_version, size, digest, created, last_used, bad, format, name, target, compiler, "
      "usage_json, compile_ms, key_dump, log, bytes) VALUES(?,?,?,?,?,?,0,?,?,?,?,?,?,?,?,?)");
  s.bind(row.key.bytes).bind(a.generator_version).bind_integer(static_cast<std::int64_t>(a.bytes.size()));
  s.bind(digest_of(row.key, a, row.created).bytes).bind_integer(row.created).bind_integer(row.last_used);
  s.bind(a.format).bind(a.name).bind(a.target).bind(a.compiler).bind(a.usage_json).bind_real(a.compile_ms).bind(a.key_dump).bind(a.log);
  return s.bind(std::span<const std::byte>(a.bytes)).run();
}

Status write_measurement(sqlite::Connection& db, const StoredMeasurement& row) {
  const Measurement& m = row.measurement;
  const std::string config = to_string(m.config);
  auto s = db.prepare(
      "INSERT OR REPLACE INTO measurements(problem, device, generator_version, compiler, config, artifact, digest, created, verdict, "
      "reason, nmse, max_error, us, spread, us_l2_warm, unstable) VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
  s.bind(row.key.problem).bind(row.key.device).bind(row.key.generator_version).bind(row.compiler).bind(config).bind(m.artifact);
  s.bind(digest_of(row, config, to_string(m.verdict)).bytes).bind_integer(row.created_unix).bind(to_string(m.verdict)).bind(m.reason);
  s.bind_real(m.nmse).bind_real(m.max_error).bind_real(m.us).bind_real(m.spread).bind_real(m.us_l2_warm);
  return s.bind_integer(m.unstable ? 1 : 0).run();
}

Status write_winner(sqlite::Connection& db, const Winner& row, bool dropped) {
  const std::string config = dropped ? "" : to_string(row.config);
  auto s = db.prepare(
      "INSERT OR REPLACE INTO winners(problem, device, generator_version, digest, created, config, us, artifact, dropped) "
      "VALUES(?,?,?,?,?,?,?,?,?)");
  s.bind(row.key.problem).bind(row.key.device).bind(row.key.generator_version).bind(digest_of(row, config, dropped).bytes);
  return s.bind_integer(row.created_unix).bind(config).bind_real(row.us).bind(row.artifact).bind_integer(dropped ? 1 : 0).run();
}

Status mark_bad(sqlite::Connection& db, const Key& key, const std::string& generator_version) {
  return db.prepare("UPDATE artifacts SET bad = 1 WHERE key = ? AND generator_version = ?").bind(key.bytes).bind(generator_version).run();
}

}  // namespace quern::cache

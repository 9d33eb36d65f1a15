// quern cache: look at the store, verify, trim and ship it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>

#include "cache/admin.h"
#include "runtime/context_parts.h"
#include "tools/command.h"
#include "tools/installed.h"
#include "tools/interrupt.h"
#include "tools/json_output.h"
#include "tools/table.h"

namespace quern::tools {
namespace {

struct CacheOptions {
  std::string directory;  // empty: the user's store
  bool json = false;
  std::string key;
  std::string file;
  std::optional<std::uint64_t> max_bytes;
  bool dry_run = false;
};

constexpr int kShortKey = 12;

std::string short_key(const std::string& hex) { return hex.substr(0, kShortKey); }

Json artifact_json(const cache::ArtifactInfo& a) {
  return {{"key", a.key},
          {"name", a.name},
          {"format", a.format},
          {"target", a.target},
          {"compiler", a.compiler},
          {"generator", a.generator_version},
          {"bytes", a.bytes},
          {"created", a.created_unix},
          {"last_used", a.last_used_unix},
          {"usable", a.usable},
          {"why_not", a.why_not}};
}

Json winner_json(const cache::Winner& w) {
  return {{"config", to_string(w.config)}, {"us", w.us}, {"artifact", w.artifact}, {"created", w.created_unix}};
}

Json tuning_json(const cache::TuningInfo& t) {
  return {{"problem", t.key.problem},
          {"device", t.key.device},
          {"generator", t.key.generator_version},
          {"measured", t.measured},
          {"failed", t.failed},
          {"unstable", t.unstable},
          {"winner", t.winner ? winner_json(*t.winner) : Json(nullptr)},
          {"usable", t.usable},
          {"why_not", t.why_not}};
}

void print_artifacts(const std::vector<cache::ArtifactInfo>& artifacts, int columns) {
  Table table({{"key"},
               {"kernel", Table::Align::left, true},
               {"target"},
               {"compiler"},
               {"size", Table::Align::right},
               {"state", Table::Align::left, true}});
  double bytes = 0;
  for (const auto& a : artifacts) {
    bytes += static_cast<double>(a.bytes);
    table.add({short_key(a.key), a.name, a.target, a.compiler, human_bytes(static_cast<double>(a.bytes)), a.usable ? "ok" : a.why_not});
  }
  fmt::print("{} kernels, {}\n", artifacts.size(), human_bytes(bytes));
  if (!table.empty()) fmt::print("{}", table.render(columns));
}

void print_tunings(const std::vector<cache::TuningInfo>& tunings, int columns) {
  fmt::print("{} tuned problems\n", tunings.size());
  std::string device;
  Table table({{"problem", Table::Align::left, true},
               {"us", Table::Align::right},
               {"tried", Table::Align::right},
               {"failed", Table::Align::right},
               {"winner", Table::Align::left, true}});
  const auto flush = [&] {
    if (!table.empty()) fmt::print("on {}\n{}", device, table.render(columns));
    table.clear();
  };
  for (const auto& t : tunings) {
    if (t.key.device != device) flush();
    device = t.key.device;
    std::string winner = t.winner ? to_string(t.winner->config) : "none";
    if (!t.usable) winner = t.why_not;
    table.add({t.key.problem, t.winner ? human_us(t.winner->us) : "-", std::to_string(t.measured), std::to_string(t.failed), winner});
  }
  flush();
}

int list(const Environment& environment, const CacheOptions& options) {
  const cache::Running running = running_here(look_around(library_paths(environment.context)));
  const auto artifacts = cache::list_artifacts(options.directory, running);
  if (!artifacts) return fail(artifacts.error());
  const auto tunings = cache::list_tunings(options.directory, running);
  if (!tunings) return fail(tunings.error());
  if (!options.json) {
    if (artifacts->empty() && tunings->empty()) {
      std::error_code ignored;
      const bool there = std::filesystem::exists(options.directory, ignored);
      fmt::print("{}: no kernels and no tunings{}\n", options.directory, there ? "" : ", there is no such folder");
      return kDone;
    }
    print_artifacts(*artifacts, environment.columns);
    print_tunings(*tunings, environment.columns);
    return kDone;
  }
  Json object{{"directory", options.directory}, {"artifacts", Json::array()}, {"tunings", Json::array()}};
  for (const auto& a : *artifacts) object["artifacts"].push_back(artifact_json(a));
  for (const auto& t : *tunings) object["tunings"].push_back(tuning_json(t));
  print_json(object);
  return kDone;
}

Json measured_json(const cache::StoredMeasurement& row) {
  const auto& m = row.measurement;
  return {{"problem", row.key.problem},      {"device", row.key.device}, {"config", to_string(m.config)},
          {"verdict", to_string(m.verdict)}, {"reason", m.reason},       {"us", m.us},
          {"us_l2_warm", m.us_l2_warm},      {"spread", m.spread},       {"nmse", m.nmse},
          {"unstable", m.unstable}};
}

void print_detail(const cache::ArtifactDetail& d) {
  const auto& a = d.info;
  fmt::print("key        {}\nkernel     {}\nformat     {}, {}\ntarget     {}\ncompiler   {}, {:.1f} ms\ngenerator  {}\n", a.key, a.name,
             a.format, human_bytes(static_cast<double>(a.bytes)), a.target, a.compiler, d.compile_ms, a.generator_version);
  fmt::print("created    {}\nlast used  {}\nintact     {}\nusable     {}\n", human_time(a.created_unix), human_time(a.last_used_unix),
             d.intact ? "yes" : "no: its bytes do not match its hash", a.usable ? "yes" : "no: " + a.why_not);
  fmt::print("usage      {}\nhashed\n", d.usage_json);
  for (std::size_t at = 0; at < d.key_dump.size();) {
    const std::size_t end = std::min(d.key_dump.find('\n', at), d.key_dump.size());
    fmt::print("  {}\n", d.key_dump.substr(at, end - at));
    at = end + 1;
  }
  for (const auto& row : d.measured_as)
    fmt::print("measured   {} us, {}: {} on {}\n", human_us(row.measurement.us), to_string(row.measurement.verdict), row.key.problem,
               row.key.device);
}

int show(const Environment& environment, const CacheOptions& options) {
  const cache::Running running = running_here(look_around(library_paths(environment.context)));
  const auto details = cache::show(options.directory, options.key, running);
  if (!details) return fail(details.error());
  if (!options.json) {
    for (const auto& detail : *details) print_detail(detail);
    return kDone;
  }
  Json object{{"directory", options.directory}, {"artifacts", Json::array()}};
  for (const auto& d : *details) {
    Json artifact = artifact_json(d.info);
    artifact.update({{"compile_ms", d.compile_ms}, {"usage", d.usage_json}, {"log", d.log}, {"hashed", d.key_dump}, {"intact", d.intact}});
    artifact["measured"] = Json::array();
    for (const auto& row : d.measured_as) artifact["measured"].push_back(measured_json(row));
    object["artifacts"].push_back(artifact);
  }
  print_json(object);
  return kDone;
}

int verify(const CacheOptions& options) {
  const auto report = cache::verify(options.directory);
  if (!report) return fail(report.error());
  if (options.json) {
    Json object{{"directory", options.directory},
                {"artifacts", report->artifacts},
                {"measurements", report->measurements},
                {"winners", report->winners},
                {"bad", Json::array()}};
    for (const auto& row : report->bad) object["bad"].push_back({{"table", row.table}, {"row", row.row}, {"reason", row.reason}});
    print_json(object);
  } else {
    for (const auto& row : report->bad) fmt::print("bad: {} {}: {}\n", row.table, row.row, row.reason);
    fmt::print("{} kernels, {} measurements, {} winners checked, {} bad\n", report->artifacts, report->measurements, report->winners,
               report->bad.size());
  }
  return report->ok() ? kDone : kFailedCheck;
}

int collect(const Environment& environment, const CacheOptions& options) {
  cache::GcOptions gc;
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (options.max_bytes.value_or(0) > kMost) return fail(kUsage, fmt::format("--max-size: needed at most {} bytes", kMost));
  gc.max_bytes = options.max_bytes ? static_cast<std::int64_t>(*options.max_bytes) : environment.context.cache_max_bytes;
  gc.dry_run = options.dry_run;
  const auto report = cache::gc(options.directory, gc);
  if (!report) return fail(report.error());
  if (options.json) {
    Json object{{"directory", options.directory},
                {"bytes_before", report->bytes_before},
                {"bytes_after", report->bytes_after},
                {"dry_run", options.dry_run},
                {"removed", Json::array()}};
    for (const auto& r : report->removed)
      object["removed"].push_back({{"key", r.key},
                                   {"generator", r.generator_version},
                                   {"name", r.name},
                                   {"target", r.target},
                                   {"bytes", r.bytes},
                                   {"live", r.live}});
    print_json(object);
  } else {
    fmt::print("{} {} kernels: {} before, {} after\n", options.dry_run ? "would remove" : "removed", report->removed.size(),
               human_bytes(static_cast<double>(report->bytes_before)), human_bytes(static_cast<double>(report->bytes_after)));
  }
  return kDone;
}

int exchange(const CacheOptions& options, bool import) {
  (void)interrupted();  // a signal does not end it in the middle: temporary files would stay
  const auto report = import ? cache::import_store(options.directory, options.file) : cache::export_store(options.directory, options.file);
  if (!report) return fail(report.error());
  if (options.json)
    print_json({{"directory", options.directory},
                {"file", options.file},
                {"artifacts", report->artifacts},
                {"measurements", report->measurements},
                {"winners", report->winners},
                {"kept", report->kept},
                {"left", report->left}});
  else
    fmt::print("{} {}: {} kernels, {} measurements, {} winners, {} {}\n", import ? "imported from" : "exported to", options.file,
               report->artifacts, report->measurements, report->winners, import ? report->kept : report->left,
               import ? "rows kept as they were" : "damaged rows left behind");
  return kDone;
}

int print_path(const CacheOptions& options) {
  const std::string file = cache::store_file(options.directory);
  if (options.json)
    print_json({{"directory", options.directory}, {"file", file}});
  else
    fmt::print("{}\n", file);
  return kDone;
}

}  // namespace

void add_cache(CLI::App& app, Session& session) {
  auto* sub = app.add_subcommand("cache", "Look at the store, verify, trim and ship it");
  sub->require_subcommand(1);
  auto options = std::make_shared<CacheOptions>();
  const auto action = [&](const char* name, const char* description, std::function<int()> run) {
    auto* one = sub->add_subcommand(name, description);
    one->add_flag("--json", options->json, "One JSON object on stdout");
    one->add_option("--directory", options->directory, "Another store than the user's")->check(not_empty);
    one->callback([&session, options, run = std::move(run)] {
      if (options->directory.empty()) options->directory = session.environment.context.cache_directory;
      if (options->directory.empty())
        session.exit_code = fail(kNoEnvironment, "no store: none of QUERN_CACHE_DIR, XDG_CACHE_HOME and HOME names a directory");
      else
        session.exit_code = run();
    });
    return one;
  };
  action("ls", "Every kernel and every tuned problem", [&session, options] { return list(session.environment, *options); });
  action("show", "One kernel: what made it, and what was measured with it",
         [&session, options] { return show(session.environment, *options); })
      ->add_option("KEY", options->key, "The beginning of a key")
      ->required();
  action("verify", "Check the file and every row's hash; exits 1 when one is bad", [options] { return verify(*options); });
  auto* gc = action("gc", "Delete the least recently used kernels; tunings stay",
                    [&session, options] { return collect(session.environment, *options); });
  gc->add_option("--max-size", options->max_bytes, "What may stay, e.g. 500MB (default: 2 GiB)")->transform(CLI::AsSizeValue(false));
  gc->add_flag("--dry-run", options->dry_run, "Say what would go");
  action("export", "Write the whole store into one new file", [options] { return exchange(*options, false); })
      ->add_option("FILE", options->file, "The file, which must not exist")
      ->required();
  action("import", "Merge a file made by export, all of it or nothing", [options] { return exchange(*options, true); })
      ->add_option("FILE", options->file, "The file")
      ->required();
  action("path", "Where the store is", [options] { return print_path(*options); });
}

}  // namespace quern::tools

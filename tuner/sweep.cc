#include "tuner/sweep.h"

#include <chrono>
#include <mutex>
#include <thread>

namespace quern {
namespace {

using Outcome = SweepResult::Outcome;

SweepResult skipped(const SweepCase& at, const std::string& reason) {
  SweepResult r;
  r.at = at;
  r.outcome = Outcome::skipped;
  r.verdict = Verdict::rejected;
  r.reason = reason;
  return r;
}

SweepResult run_case(const SweepCase& at, Measurer& measurer) {
  const auto start = std::chrono::steady_clock::now();
  SweepResult r;
  r.at = at;
  MeasureSettings settings;
  settings.time = false;
  settings.keep_spilling = true;
  auto prepared = measurer.prepare(at.problem, at.data);
  auto measured = prepared ? measurer.measure(at.config, settings) : Result<Measurement>(prepared.error());
  if (!measured) {
    r.outcome = measured.error().code == ErrorCode::kCancelled ? Outcome::skipped : Outcome::failed;
    r.verdict = Verdict::launch_failed;
    r.reason = measured.error().message;
  } else {
    r.verdict = measured->verdict;
    r.reason = measured->reason;
    r.nmse = measured->nmse;
    r.max_error = measured->max_error;
    r.outcome = r.verdict == Verdict::ok ? Outcome::passed : Outcome::failed;
    // A config that needs more of this device than it has is not wrong.
    if (r.verdict == Verdict::out_of_memory || r.verdict == Verdict::rejected) r.outcome = Outcome::skipped;
  }
  r.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return r;
}

std::string xml(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else
      out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out;
}

}  // namespace

std::vector<SweepResult> sweep(const std::vector<SweepCase>& cases, const std::vector<Measurer*>& measurers, const std::atomic<bool>* stop,
                               const std::function<void(const SweepResult&)>& done) {
  std::vector<SweepResult> results(cases.size());
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  auto work = [&](Measurer& measurer) {
    for (std::size_t i = next++; i < cases.size(); i = next++) {
      if (stop != nullptr && stop->load())
        results[i] = skipped(cases[i], "stopped");
      else if (!cases[i].unsupported.empty())
        results[i] = skipped(cases[i], cases[i].unsupported);
      else
        results[i] = run_case(cases[i], measurer);
      if (done) {
        const std::lock_guard lock(mutex);
        done(results[i]);
      }
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t t = 1; t < measurers.size(); ++t) threads.emplace_back([&, t] { work(*measurers[t]); });
  if (!measurers.empty()) work(*measurers.front());
  for (auto& thread : threads) thread.join();
  return results;
}

SweepTotals totals(const std::vector<SweepResult>& results) {
  SweepTotals t;
  for (const auto& r : results) ++(r.outcome == Outcome::passed ? t.passed : r.outcome == Outcome::failed ? t.failed : t.skipped);
  return t;
}

std::string sweep_junit(const std::vector<SweepResult>& results, const std::string& suite) {
  const SweepTotals t = totals(results);
  double seconds = 0;
  for (const auto& r : results) seconds += r.seconds;
  std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"" + xml(suite) + "\" tests=\"" +
                    std::to_string(results.size()) + "\" failures=\"" + std::to_string(t.failed) + "\" skipped=\"" +
                    std::to_string(t.skipped) + "\" time=\"" + std::to_string(seconds) + "\">\n";
  for (const auto& r : results) {
    std::string name = to_string(r.at.problem) + " " + to_string(r.at.config);
    if (!r.at.data.tensor.empty()) name += " " + r.at.data.tensor + " row " + std::to_string(r.at.data.first_row);
    out +=
        "  <testcase classname=\"" + xml(r.at.config.family) + "\" name=\"" + xml(name) + "\" time=\"" + std::to_string(r.seconds) + "\"";
    if (r.outcome == Outcome::passed) {
      out += "/>\n";
      continue;
    }
    const std::string what = xml(std::string(to_string(r.verdict)) + ": " + r.reason);
    out += r.outcome == Outcome::failed ? "><failure message=\"" + what + "\"/></testcase>\n"
                                        : "><skipped message=\"" + what + "\"/></testcase>\n";
  }
  return out + "</testsuite>\n";
}

}  // namespace quern

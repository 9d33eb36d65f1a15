// Progress on stderr: one bar that redraws itself, with the time that is left, on a terminal; elsewhere plain lines, not more than one in
// ten seconds. Not thread-safe: calls come from the thread that runs the work.
#pragma once

#include <chrono>
#include <cstdio>
#include <functional>
#include <string>

namespace quern::tools {

class Progress {
 public:
  using Clock = std::function<double()>;  // seconds, monotonic

  // `what` begins every line: "tune".
  Progress(std::string what, std::FILE* out, bool bar, int columns, Clock clock = steady_seconds);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `total` may change from call to call. `label` says what is being worked on. `seconds_left`, when above 0, replaces the estimate from
  // the pace.
  void update(double done, double total, const std::string& label, double seconds_left = 0);
  // A line that stays, whatever kind of output this is.
  void note(const std::string& line);
  // Removes the bar.
  void clear();

  static double steady_seconds();

 private:
  std::string line(double done, double total, const std::string& label, double seconds_left) const;

  std::string what_;
  std::FILE* out_;
  bool bar_;
  int columns_;
  Clock clock_;
  double start_;
  double last_drawn_ = -1e9;
  bool drawn_ = false;
};

}  // namespace quern::tools

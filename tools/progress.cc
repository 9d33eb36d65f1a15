#include "tools/progress.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/table.h"

namespace quern::tools {
namespace {

constexpr double kRedrawSeconds = 0.1;
constexpr double kLineSeconds = 10;
constexpr int kBarWidth = 20;
// Below this share the time that is left is a guess that changes by the second.
constexpr double kEtaFrom = 0.02;

}  // namespace

Progress::Progress(std::string what, std::FILE* out, bool bar, int columns, Clock clock)
    : what_(std::move(what)), out_(out), bar_(bar), columns_(columns), clock_(std::move(clock)), start_(clock_()) {}

double Progress::steady_seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::string Progress::line(double done, double total, const std::string& label, double seconds_left) const {
  const double share = total > 0 ? std::clamp(done / total, 0.0, 1.0) : 0;
  std::string eta;
  if (seconds_left <= 0 && share >= kEtaFrom) seconds_left = (clock_() - start_) * (1 - share) / share;
  if (seconds_left > 0 && share < 1) eta = ", " + human_seconds(seconds_left) + " left";
  const std::string counts = fmt::format("{:.0f}/{:.0f}{}", done, total, eta);
  if (!bar_) return fmt::format("{}: {:3.0f}% {}  {}", what_, share * 100, counts, label);
  const int filled = static_cast<int>(share * kBarWidth);
  std::string text = fmt::format("{} [{}{}] {}  {}", what_, std::string(filled, '#'), std::string(kBarWidth - filled, '.'), counts, label);
  if (static_cast<int>(text.size()) > columns_ - 1) text.resize(std::max(columns_ - 1, 1));
  return text;
}

void Progress::update(double done, double total, const std::string& label, double seconds_left) {
  const double now = clock_();
  if (now - last_drawn_ < (bar_ ? kRedrawSeconds : kLineSeconds)) return;
  last_drawn_ = now;
  const std::string text = line(done, total, label, seconds_left);
  std::fprintf(out_, bar_ ? "\r\x1b[2K%s" : "%s\n", text.c_str());
  std::fflush(out_);
  drawn_ = true;
}

void Progress::note(const std::string& text) {
  clear();
  std::fprintf(out_, "%s\n", text.c_str());
  std::fflush(out_);
}

void Progress::clear() {
  if (bar_ && drawn_) {
    std::fprintf(out_, "\r\x1b[2K");
    std::fflush(out_);
    last_drawn_ = -1e9;
  }
  drawn_ = false;
}

}  // namespace quern::tools

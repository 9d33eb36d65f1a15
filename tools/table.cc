#include "tools/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <ctime>

namespace quern::tools {
namespace {

constexpr int kGap = 2;
constexpr int kNarrowest = 8;

std::string fit(const std::string& text, int width) {
  if (static_cast<int>(text.size()) <= width) return text;
  return text.substr(0, static_cast<std::size_t>(width - 1)) + "~";
}

int total(const std::vector<int>& widths) {
  int sum = -kGap;
  for (int w : widths) sum += w + kGap;
  return sum;
}

}  // namespace

void Table::add(std::vector<std::string> cells) {
  assert(cells.size() <= columns_.size());
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::render(int width) const {
  if (!rows_.empty())
    for (std::size_t c = 0; c < columns_.size(); ++c)
      if (std::all_of(rows_.begin(), rows_.end(), [&](const auto& row) { return row[c] == "-"; })) return without(c).render(width);
  std::vector<int> widths;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    std::size_t widest = columns_[c].title.size();
    for (const auto& row : rows_) widest = std::max(widest, row[c].size());
    widths.push_back(static_cast<int>(widest));
  }
  for (std::size_t c = columns_.size(); c-- > 0;)
    if (const int excess = total(widths) - width; excess > 0 && columns_[c].flexible)
      widths[c] = std::max(std::min(kNarrowest, widths[c]), widths[c] - excess);

  std::string out;
  const auto line = [&](const auto& cell) {
    std::string text;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      if (c > 0) text.append(kGap, ' ');
      const std::string fitted = fit(cell(c), widths[c]);
      text += columns_[c].align == Align::left ? fmt::format("{:<{}}", fitted, widths[c]) : fmt::format("{:>{}}", fitted, widths[c]);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + "\n";
  };
  line([&](std::size_t c) { return columns_[c].title; });
  line([&](std::size_t c) { return std::string(static_cast<std::size_t>(widths[c]), '-'); });
  for (const auto& row : rows_) line([&](std::size_t c) { return row[c]; });
  return out;
}

Table Table::without(std::size_t column) const {
  Table rest = *this;
  rest.columns_.erase(rest.columns_.begin() + static_cast<std::ptrdiff_t>(column));
  for (auto& row : rest.rows_) row.erase(row.begin() + static_cast<std::ptrdiff_t>(column));
  return rest;
}

std::string human_bytes(double bytes) {
  const char* unit = "B";
  for (const char* next : {"KiB", "MiB", "GiB", "TiB"}) {
    if (bytes < 1024) break;
    bytes /= 1024;
    unit = next;
  }
  const int decimals = bytes < 10 && *unit != 'B' ? 1 : 0;
  return fmt::format("{:.{}f} {}", bytes, decimals, unit);
}

std::string human_seconds(double seconds) {
  if (seconds < 1) return fmt::format("{:.0f} ms", seconds * 1e3);
  if (seconds < 100) return fmt::format("{:.0f} s", seconds);
  const auto whole = static_cast<long long>(seconds + 0.5);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

std::string human_us(double us) {
  if (us < 10) return fmt::format("{:.2f}", us);
  if (us < 1000) return fmt::format("{:.1f}", us);
  return fmt::format("{:.0f}", us);
}

std::string human_time(long long unix_seconds) {
  const std::time_t t = static_cast<std::time_t>(unix_seconds);
  std::tm parts{};
  if (gmtime_r(&t, &parts) == nullptr) return "?";
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &parts);
  return text;
}

}  // namespace quern::tools

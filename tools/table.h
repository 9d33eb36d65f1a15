// A table for people: columns as wide as their widest cell, the whole as wide as the terminal allows.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

namespace quern::tools {

class Table {
 public:
  enum class Align { left, right };
  struct Column {
    std::string title;
    Align align = Align::left;
    bool flexible = false;  // may be cut, with "~" at its end, when the table is too wide
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // Missing cells are empty, extra ones are a bug.
  void add(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }
  void clear() { rows_.clear(); }
  // Header, rule, rows; each line ends without trailing spaces and is at most `width` bytes long when the flexible columns can give so
  // much. A column of nothing but "-" is left out.
  std::string render(int width) const;

 private:
  Table without(std::size_t column) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// "1.2 KiB", "34 MiB".
std::string human_bytes(double bytes);
// "850 ms", "12 s", "3 min 05 s", "2 h 10 min".
std::string human_seconds(double seconds);
// Four significant digits at most: "9.12", "123.4", "1168".
std::string human_us(double us);
// "2026-07-11 09:15", in UTC.
std::string human_time(long long unix_seconds);

}  // namespace quern::tools

#include "tools/table.h"

#include <gtest/gtest.h>

#include <sstream>

namespace quern::tools {
namespace {

TEST(Table, AlignsAndLeavesNoTrailingSpaces) {
  Table table({{"name"}, {"n", Table::Align::right}, {"note"}});
  table.add({"a", "1", "x"});
  table.add({"long", "1000"});
  EXPECT_EQ(table.render(80),
            "name     n  note\n"
            "----  ----  ----\n"
            "a        1  x\n"
            "long  1000\n");
}

TEST(Table, AColumnOfDashesIsLeftOut) {
  Table table({{"name"}, {"read", Table::Align::right}, {"us", Table::Align::right}});
  table.add({"a", "-", "1"});
  table.add({"b", "-", "-"});
  EXPECT_EQ(table.render(80), "name  us\n----  --\na      1\nb      -\n");
}

TEST(Table, FlexibleColumnsGiveWayToTheWidth) {
  Table table({{"key"}, {"text", Table::Align::left, true}});
  table.add({"123456", std::string(200, 'x')});
  std::istringstream lines(table.render(40));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 40u) << line;
  EXPECT_NE(table.render(40).find("x~"), std::string::npos);
  EXPECT_NE(table.render(300).find(std::string(200, 'x')), std::string::npos);
}

TEST(Human, Bytes) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1536), "1.5 KiB");
  EXPECT_EQ(human_bytes(34.0 * (1 << 20)), "34 MiB");
}

TEST(Human, Times) {
  EXPECT_EQ(human_seconds(0.25), "250 ms");
  EXPECT_EQ(human_seconds(12.2), "12 s");
  EXPECT_EQ(human_seconds(185), "3 min 05 s");
  EXPECT_EQ(human_seconds(7800), "2 h 10 min");
  EXPECT_EQ(human_us(9.119), "9.12");
  EXPECT_EQ(human_us(123.44), "123.4");
  EXPECT_EQ(human_us(1167.6), "1168");
  EXPECT_EQ(human_time(0), "1970-01-01 00:00");
}

}  // namespace
}  // namespace quern::tools

#include "tools/progress.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <memory>

namespace quern::tools {
namespace {

// A file in memory and a clock that the test sets.
class ProgressTest : public testing::Test {
 protected:
  ~ProgressTest() override {
    std::fclose(out_);
    free(data_);
  }
  std::string written() {
    std::fflush(out_);
    return {data_, size_};
  }
  Progress::Clock clock() {
    return [this] { return now_; };
  }

  char* data_ = nullptr;
  std::size_t size_ = 0;
  std::FILE* out_ = open_memstream(&data_, &size_);
  double now_ = 100;
};

TEST_F(ProgressTest, PlainLinesComeAtMostEveryTenSecondsAndTellTheTimeLeft) {
  Progress progress("tune", out_, false, 80, clock());
  progress.update(0, 4, "first");
  now_ += 5;
  progress.update(1, 4, "too soon");
  now_ += 15;
  progress.update(2, 4, "half");
  EXPECT_EQ(written(),
            "tune:   0% 0/4  first\n"
            "tune:  50% 2/4, 20 s left  half\n");
}

TEST_F(ProgressTest, TheBarStaysWithinTheTerminalAndIsRemoved) {
  {
    Progress progress("sweep", out_, true, 60, clock());
    progress.update(1, 2, std::string(200, 'x'));
    const std::string bar = written();
    EXPECT_TRUE(bar.starts_with("\r\x1b[2Ksweep [##########..........] 1/2")) << bar;
    EXPECT_LE(bar.size(), 5u + 59u);
  }
  EXPECT_TRUE(written().ends_with("\r\x1b[2K"));
}

TEST_F(ProgressTest, ANoteStaysAndTheBarComesBackAfterIt) {
  Progress progress("sweep", out_, true, 80, clock());
  progress.update(1, 2, "a");
  progress.note("FAILED b");
  progress.update(2, 2, "c");
  const std::string text = written();
  EXPECT_NE(text.find("\r\x1b[2KFAILED b\n"), std::string::npos) << text;
  EXPECT_NE(text.find("2/2  c"), std::string::npos) << text;
}

TEST_F(ProgressTest, AnUnknownTotalIsNoDivisionByZero) {
  Progress progress("tune", out_, false, 80, clock());
  progress.update(0, 0, "x");
  EXPECT_EQ(written(), "tune:   0% 0/0  x\n");
}

}  // namespace
}  // namespace quern::tools

#include "tools/problem_source.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace quern::tools {
namespace {

class ProblemSource : public testing::Test {
 protected:
  ProblemSource() { std::filesystem::create_directories(directory_); }
  ~ProblemSource() override { std::filesystem::remove_all(directory_); }
  std::string file(const std::string& name, const std::string& text) {
    std::ofstream(directory_ + "/" + name, std::ios::binary) << text;
    return directory_ + "/" + name;
  }
  std::string directory_ = testing::TempDir() + "quern_problem_source_" + std::to_string(getpid());
};

constexpr const char* kThree = R"([{"op":"mul_mat","type":"q4_0","n":64,"k":32,"m":1},
  {"op":"mul_mat","type":"q8_0","n":64,"k":32,"m":8}, {"op":"dequantize","type":"q8_0","n":64,"k":32}])";

TEST_F(ProblemSource, OptionsNarrowAProblemFile) {
  ProblemSelection selection{.file = file("three.json", kThree)};
  EXPECT_EQ(select_problems(selection)->problems.size(), 3u);
  selection.types = {"q8_0"};
  EXPECT_EQ(select_problems(selection)->problems.size(), 2u);
  selection.ops = {"mul_mat"};
  const auto left = select_problems(selection);
  ASSERT_EQ(left->problems.size(), 1u);
  EXPECT_EQ(left->problems[0].m, 8);
  selection.ms = {1};
  EXPECT_EQ(select_problems(selection).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(ProblemSource, TheClassIsThatOfTheOptionWhenItIsGiven) {
  ProblemSelection selection{.file = file("three.json", kThree)};
  selection.accuracy = "tight";
  EXPECT_EQ(select_problems(selection)->problems[0].accuracy, Accuracy::tight);
}

// A tuning under a key with fields that mean nothing to its op would be found by no plan.
TEST_F(ProblemSource, OptionsLeaveTheKeysOfIntegerOpsAlone) {
  const std::string text = R"([{"op":"w4a4","type":"code4","m":1,"n":64,"k":64,"y_dtype":"bf16"},
    {"op":"rpbh_quantize","type":"i8","m":1,"k":64,"x_dtype":"bf16"}])";
  ProblemSelection selection{.file = file("codes.json", text)};
  const auto plain = select_problems(selection)->problems;
  selection.accuracy = "loose", selection.x_dtype = "bf16", selection.y_dtype = "bf16";
  EXPECT_EQ(select_problems(selection)->problems, plain);
}

TEST_F(ProblemSource, NamesWhatIsWrongWithTheFile) {
  EXPECT_NE(select_problems({.file = directory_}).error().message.find("is a directory"), std::string::npos);
  EXPECT_NE(select_problems({.file = directory_ + "/none"}).error().message.find("No such file"), std::string::npos);
  EXPECT_NE(select_problems({.file = file("empty.json", "[]")}).error().message.find("nothing to tune"), std::string::npos);
}

TEST(ProblemText, ReadsTextAndJson) {
  const auto text = problem_from_text("mul_mat q4_0 m=1 n=64 k=32");
  const auto json = problem_from_text(R"({"op":"mul_mat","type":"q4_0","m":1,"n":64,"k":32})");
  ASSERT_TRUE(text && json);
  EXPECT_EQ(*text, *json);
  EXPECT_FALSE(problem_from_text("mul_mat q4_0 m=1 n=64 k=33"));
  EXPECT_FALSE(problem_from_text(""));
  EXPECT_FALSE(problem_from_text("[]"));
}

TEST(ProblemText, ShortFormShowsOnlyWhatIsNotTheDefault) {
  EXPECT_EQ(short_text({.type = WeightType::q4_0, .m = 8, .n = 64, .k = 32}), "mul_mat q4_0 64x32 m=8");
  EXPECT_EQ(short_text({.op = Op::dequantize,
                        .type = WeightType::q6_k,
                        .layout = Layout::gguf,
                        .n = 2,
                        .k = 256,
                        .y_type = DType::f16,
                        .accuracy = Accuracy::exact}),
            "dequantize q6_k 2x256 gguf y=f16");
  EXPECT_EQ(short_text({.type = WeightType::q4_0, .n = 64, .k = 32, .bias = true, .accuracy = Accuracy::tight}),
            "mul_mat q4_0 64x32 m=1 bias tight");
}

}  // namespace
}  // namespace quern::tools

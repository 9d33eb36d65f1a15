#include "tuner/problems_json.h"

#include <gtest/gtest.h>

namespace quern {
namespace {

Problem one(std::string_view text) {
  auto problems = parse_problems_json(text);
  EXPECT_TRUE(problems) << problems.error().message;
  return problems && problems->size() == 1 ? problems->front() : Problem{};
}

std::string error_of(std::string_view text) {
  auto problems = parse_problems_json(text);
  if (problems) return "accepted";
  EXPECT_EQ(problems.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(problems.error().message.find('\n'), std::string::npos);
  return problems.error().message;
}

TEST(ProblemsJson, DefaultsAreThoseOfTheHeader) {
  Problem p;
  p.type = WeightType::q4_k;
  p.n = 96;
  p.k = 512;
  p.m = 8;
  EXPECT_EQ(one(R"([{"op": "mul_mat", "type": "q4_k", "n": 96, "k": 512, "m": 8}])"), p);
  const Problem repack = one(R"([{"op": "to_planar", "type": "q4_k", "n": 96, "k": 512}])");
  EXPECT_EQ(repack.layout, Layout::gguf);
  EXPECT_EQ(repack.accuracy, Accuracy::exact);
  EXPECT_EQ(repack.m, 1);
}

TEST(ProblemsJson, EveryFieldIsRead) {
  Problem p;
  p.type = WeightType::q8_0;
  p.layout = Layout::gguf;
  p.n = 5;
  p.k = 64;
  p.m = 3;
  p.x_type = DType::f16;
  p.y_type = DType::bf16;
  p.bias = true;
  p.accuracy = Accuracy::tight;
  p.batch2 = 4;
  p.batch3 = 2;
  p.ratio2 = 2;
  EXPECT_EQ(one(R"([{"op": "mul_mat", "type": "q8_0", "n": 5, "k": 64, "m": 3, "layout": "gguf", "x_dtype": "f16", "y_dtype": "bf16",
                     "bias": true, "class": "tight", "batch": [4, 2], "ratio": 2, "epilogue": "none"}])"),
            p);
  EXPECT_TRUE(parse_problems_json("[]")->empty());
}

TEST(ProblemsJson, WhatIsWrittenIsReadBack) {
  std::vector<Problem> all;
  for (const Op op : kWeightOps)
    for (const Layout layout : {Layout::gguf, Layout::planar})
      for (const Accuracy accuracy : {Accuracy::exact, Accuracy::normal, Accuracy::loose}) {
        Problem p;
        p.op = op;
        p.layout = layout;
        p.accuracy = accuracy;
        p.n = 7;
        p.k = 32;
        p.x_type = DType::bf16;
        p.bias = layout == Layout::gguf && (op == Op::mul_mat || op == Op::mul_mat_id);
        p.scale = layout == Layout::planar && !is_repack(op);
        p.x_transposed = op == Op::out_prod && accuracy == Accuracy::normal;
        if (op == Op::mul_mat_id) {
          p.experts = 128, p.used = 8, p.x_broadcast = accuracy == Accuracy::loose;
        } else {
          p.batch2 = 6, p.ratio2 = 3;
          p.batch3 = accuracy == Accuracy::loose ? 2 : 1;
        }
        all.push_back(p);
      }
  all.push_back({.op = Op::matmul_int8_rows, .type = WeightType::i8, .n = 777, .k = 2046, .y_type = DType::bf16, .bias = true});
  all.push_back({.op = Op::quantize_rows_int8, .type = WeightType::i8, .m = 3, .n = 0, .k = 2048, .x_type = DType::f16});
  all.push_back({.op = Op::rpbh_quantize, .type = WeightType::code4, .m = 3, .n = 0, .k = 2048, .x_type = DType::bf16, .block = 128});
  for (auto& p : all)
    if (is_integer(p.op)) p.accuracy = Accuracy::exact;
  auto back = parse_problems_json(problems_to_json(all));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(*back, all);
}

// triton#11072: a negative, zero or not-a-number argument is a usage error that names itself.
TEST(ProblemsJson, ErrorsNameTheEntryTheFieldAndTheValue) {
  const std::string good = R"({"op": "mul_mat", "type": "q4_0", "n": 32, "k": 32, "m": 1})";
  auto second = [&](const std::string& entry) { return error_of("[" + good + ", " + entry + "]"); };
  const struct {
    const char* entry;
    std::vector<const char*> needed;
  } cases[] = {
      {R"({"op": "mul_mat", "type": "q4_0", "n": -5, "k": 32, "m": 1})", {"problem 1", "\"n\"", "-5"}},
      {R"({"op": "mul_mat", "type": "q4_0", "n": 32, "k": 32, "m": 0})", {"problem 1", "\"m\"", "found 0", "at least 1"}},
      {R"({"op": "mul_mat", "type": "q4_0", "n": 1.5, "k": 32, "m": 1})", {"problem 1", "\"n\"", "1.5", "integer"}},
      {R"({"op": "mul_mat", "type": "q4_0", "n": "32", "k": 32, "m": 1})", {"problem 1", "\"n\""}},
      {R"({"op": "mul_mat", "type": "q4_0", "n": 18446744073709551615, "k": 32, "m": 1})", {"problem 1", "\"n\"", "18446744073709551615"}},
      {R"({"op": "mul_mat", "type": "q4_0", "n": 32, "k": 33, "m": 1})", {"problem 1", "33", "32"}},
      {R"({"op": "mul_mat", "type": "q9_9", "n": 32, "k": 32, "m": 1})", {"problem 1", "\"type\"", "q9_9"}},
      {R"({"op": "mulmat", "type": "q4_0", "n": 32, "k": 32, "m": 1})", {"problem 1", "\"op\"", "mulmat", "mul_mat"}},
      {R"({"op": "mul_mat", "type": "q4_0", "n": 32, "k": 32, "m": 1, "layuot": "gguf"})", {"problem 1", "layuot", "unknown"}},
      {R"({"op": "mul_mat", "type": "q4_0", "n": 32, "k": 32})", {"problem 1", "\"m\"", "nothing"}},
      {R"({"op": "mul_mat", "type": "q4_0", "k": 32, "m": 1})", {"problem 1", "\"n\"", "nothing"}},
      {R"({"op": "mul_mat", "type": "q4_0", "n": 32, "k": 32, "m": 1, "bias": 1})", {"problem 1", "\"bias\"", "true or false"}},
      {R"({"op": "mul_mat", "type": "q4_0", "n": 32, "k": 32, "m": 1, "batch": [1, 2, 3]})", {"problem 1", "\"batch\""}},
      {R"({"op": "mul_mat", "type": "q4_0", "n": 32, "k": 32, "m": 1, "epilogue": "gelu"})", {"problem 1", "\"epilogue\"", "gelu"}},
      {R"(7)", {"problem 1", "7", "object"}},
  };
  for (const auto& c : cases) {
    const std::string message = second(c.entry);
    for (const char* piece : c.needed) EXPECT_NE(message.find(piece), std::string::npos) << c.entry << "\n  " << message;
  }
  EXPECT_NE(error_of(R"([{"op": "mul_mat", "n": NaN}])").find("not JSON"), std::string::npos);
  EXPECT_NE(error_of(R"({"op": "mul_mat"})").find("array"), std::string::npos);
  const std::string needed = R"(, needed an array of problems such as [{"op": "mul_mat", "type": "q4_0", "n": 64, "k": 32, "m": 1}])";
  EXPECT_EQ(error_of("[{...}]"), "problem list: not JSON: at byte 2 found \"...}]\"" + needed);
  EXPECT_EQ(error_of("[{"), "problem list: not JSON: at byte 2 found its end" + needed);
  EXPECT_EQ(error_of(R"([{"n": 1e999}])"), "problem list: not JSON: a number is too large");
  EXPECT_NE(error_of("").find("not JSON"), std::string::npos);
  auto missing = read_problems_file("/nonexistent/problems.json");
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("/nonexistent/problems.json"), std::string::npos);
}

TEST(ProblemsJson, AModelGivesItsMatricesTimesTheRowsOfX) {
  Model model;
  model.matrices = {{WeightType::q4_k, 640, 2048, {"a", "b"}}, {WeightType::q6_k, 2048, 512, {"c"}}};
  ModelProblemOptions options;
  options.ms = {1, 8};
  const auto problems = problems_of_model(model, options);
  ASSERT_EQ(problems.size(), 4u);
  EXPECT_EQ(problems[1].m, 8);
  EXPECT_EQ(problems[1].n, 640);
  EXPECT_EQ(problems[2].type, WeightType::q6_k);
  options.ops = {Op::mul_mat, Op::dequantize, Op::to_planar};
  options.layouts = {Layout::gguf, Layout::planar};
  // 2 matrices x (2 layouts x 2 ms + 2 layouts + 1)
  const auto all = problems_of_model(model, options);
  EXPECT_EQ(all.size(), 14u);
  for (const Problem& p : all) EXPECT_TRUE(validate(p));
  auto back = parse_problems_json(problems_to_json(all));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(*back, all);
}

TEST(ProblemsJson, ExpertsGiveRoutedProductsAndPlainMatricesPlainOnes) {
  Model model;
  model.matrices = {{WeightType::q4_k, 640, 2048, {"q"}},
                    {WeightType::q6_k, 2048, 768, {"down"}, 128, false},
                    {WeightType::q4_k, 768, 2048, {"gate", "up"}, 128, true}};
  model.experts_used = 8;
  ModelProblemOptions options;
  options.ms = {1, 512};
  const auto problems = problems_of_model(model, options);
  ASSERT_EQ(problems.size(), 6u);
  EXPECT_EQ(problems[1].op, Op::mul_mat);
  const Problem& down = problems[3];
  const Problem& up = problems[5];
  for (const Problem& p : {down, up}) {
    EXPECT_TRUE(validate(p));
    EXPECT_EQ(p.op, Op::mul_mat_id);
    EXPECT_EQ(p.experts, 128);
    EXPECT_EQ(p.used, 8);
    EXPECT_EQ(p.m, 512);
  }
  EXPECT_FALSE(down.x_broadcast);
  EXPECT_TRUE(up.x_broadcast);
  auto back = parse_problems_json(problems_to_json(problems));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(*back, problems);

  options.ops = {Op::mul_mat_id};
  EXPECT_EQ(problems_of_model(model, options).size(), 4u);
  options.ops = {Op::mul_mat, Op::out_prod};
  for (const Problem& p : problems_of_model(model, options)) EXPECT_EQ(p.n, 640);
  // One expert at a time.
  options.ops = {Op::to_planar};
  for (const Problem& p : problems_of_model(model, options)) EXPECT_EQ(p.experts, 1);
  EXPECT_EQ(problems_of_model(model, options).size(), 3u);
}

TEST(ProblemsJson, AFieldIsGivenOnce) {
  const auto twice = parse_problems_json(R"([{"op":"mul_mat","type":"q4_0","m":1,"n":5,"k":64,"k":32}])");
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().message, "problem list: k is given already");
  EXPECT_TRUE(
      parse_problems_json(R"([{"op":"mul_mat","type":"q4_0","m":1,"n":5,"k":64},{"op":"mul_mat","type":"q4_0","m":1,"n":5,"k":32}])"))
      << "one each";
}

}  // namespace
}  // namespace quern

#include "quern/problem.h"

#include <gtest/gtest.h>

#include <set>

namespace quern {
namespace {

const Problem kBase{
    .op = Op::mul_mat, .type = WeightType::q4_0, .layout = Layout::planar, .m = 4, .n = 8, .k = 256, .batch2 = 2, .batch3 = 2};

// The base and every problem that differs from it in one field; each is legal.
std::vector<Problem> single_changes() {
  std::vector<Problem> all{kBase};
  auto with = [&](auto change) {
    Problem p = kBase;
    change(p);
    all.push_back(p);
  };
  for (Op op : {Op::dequantize, Op::to_planar, Op::to_gguf}) with([&](Problem& p) { p.op = op; });
  for (const auto& type : kWeightTypes)
    if (type.type != kBase.type) with([&](Problem& p) { p.type = type.type; });
  with([](Problem& p) { p.layout = Layout::gguf; });
  with([](Problem& p) { p.m = 0; });
  with([](Problem& p) { p.n = 9; });
  with([](Problem& p) { p.k = 512; });
  for (DType t : {DType::f16, DType::bf16}) {
    with([&](Problem& p) { p.x_type = t; });
    with([&](Problem& p) { p.y_type = t; });
  }
  with([](Problem& p) { p.bias = true; });
  for (Accuracy a : {Accuracy::exact, Accuracy::f32, Accuracy::tight, Accuracy::loose}) with([&](Problem& p) { p.accuracy = a; });
  with([](Problem& p) { p.batch2 = 4; });
  with([](Problem& p) { p.batch3 = 4; });
  with([](Problem& p) { p.ratio2 = 2; });
  with([](Problem& p) { p.ratio3 = 2; });
  return all;
}

std::string error_of(std::string_view text) {
  const auto problem = parse_problem(text);
  if (problem) return "";
  EXPECT_EQ(problem.error().code, ErrorCode::kInvalidArgument) << text;
  EXPECT_EQ(problem.error().message.find('\n'), std::string::npos) << text;
  return problem.error().message;
}

std::string invalid(const Problem& problem) {
  const Status status = validate(problem);
  if (status) return "";
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  return status.error().message;
}

TEST(ProblemText, IsOneLineOfEveryFieldInAFixedOrder) {
  Problem p{.op = Op::mul_mat, .type = WeightType::q6_k, .layout = Layout::gguf, .m = 3, .n = 40, .k = 512};
  p.x_type = DType::f16, p.y_type = DType::bf16, p.bias = true, p.accuracy = Accuracy::tight;
  p.batch2 = 6, p.batch3 = 8, p.ratio2 = 3, p.ratio3 = 4;
  EXPECT_EQ(to_string(p), "mul_mat q6_k gguf m=3 n=40 k=512 x=f16 y=bf16 bias=1 class=tight batch=6,8 ratio=3,4");
}

TEST(ProblemText, ReadsBackEveryField) {
  for (const Problem& p : single_changes()) {
    const auto back = parse_problem(to_string(p));
    ASSERT_TRUE(back) << to_string(p) << ": " << back.error().message;
    EXPECT_EQ(*back, p) << to_string(p);
  }
}

// Field case 32: the text is the store's key.
TEST(ProblemText, EveryFieldChangedSinglyGivesAnotherTextAndAnotherProblem) {
  const auto all = single_changes();
  std::set<std::string> texts;
  std::set<Problem> problems;
  for (const Problem& p : all) {
    EXPECT_TRUE(texts.insert(to_string(p)).second) << to_string(p);
    EXPECT_TRUE(problems.insert(p).second) << to_string(p);
  }
  EXPECT_GT(all.size(), 40u);
}

TEST(ProblemText, FieldsMayComeInAnyOrderAndDefaultAsInTheStruct) {
  const auto p = parse_problem("mul_mat  q8_0\tk=64 layout=gguf ratio=2,1 batch=4,1 n=7\n");
  ASSERT_TRUE(p) << p.error().message;
  Problem expected{.op = Op::mul_mat, .type = WeightType::q8_0, .layout = Layout::gguf, .m = 1, .n = 7, .k = 64};
  expected.batch2 = 4, expected.ratio2 = 2;
  EXPECT_EQ(*p, expected);
  EXPECT_EQ(expected.accuracy, Accuracy::normal);
  const auto short_form = parse_problem("dequantize f16 n=0 k=5");
  ASSERT_TRUE(short_form) << short_form.error().message;
  EXPECT_EQ(short_form->layout, Layout::planar);
  EXPECT_EQ(short_form->n, 0);
}

// What a message must offer instead.
std::string legal_values(const std::string& field) {
  if (field == "x" || field == "y") return "f32, f16 or bf16";
  if (field == "bias") return "0 or 1";
  if (field == "class") return "exact, f32, tight, normal or loose";
  if (field == "layout") return "gguf or planar";
  return field == "batch" || field == "ratio" ? "an integer, or two such as 6,2" : "an integer below 2^63";
}

TEST(ParseProblem, NamesTheFieldAndTheTextFound) {
  EXPECT_EQ(error_of(""), "problem: found '', needed 'OP TYPE [LAYOUT] n=N k=K [...]'");
  EXPECT_EQ(error_of("mul_mat"), "problem: found 'mul_mat', needed 'OP TYPE [LAYOUT] n=N k=K [...]'");
  EXPECT_EQ(error_of("matmul q4_0 k=32"),
            "problem: found op 'matmul', needed one of dequantize mul_mat to_planar to_gguf out_prod mul_mat_id quantize_rows_int8 "
            "matmul_int8_rows w4a4 rpbh_quantize");
  EXPECT_EQ(error_of("mul_mat q4_9 k=32"), "problem: found weight type 'q4_9', needed a GGUF type name such as q4_0");
  EXPECT_EQ(error_of("mul_mat q4_0 row k=32"), "problem: found 'row', needed name=value, gguf or planar");
  EXPECT_EQ(error_of("mul_mat q4_0 z=1 k=32"),
            "problem: found 'z=1', needed one of m n k x y bias class layout batch ratio transposed scale experts used broadcast "
            "k_major fused block");
  for (const char* field : {"m=one", "m=", "n=1.5", "n=0x10", "k=32k", "k= 32", "x=f64", "y=int8", "bias=2", "bias=true", "class=best",
                            "layout=row", "batch=2,", "batch=,2", "ratio=1;1", "ratio=1,1,1", "m=99999999999999999999"}) {
    const std::string found = std::string(field).substr(0, std::string(field).find(' '));
    EXPECT_EQ(error_of("mul_mat q4_0 " + std::string(field)),
              "problem: found '" + found + "', needed " + legal_values(found.substr(0, found.find('='))));
  }
  EXPECT_EQ(error_of("mul_mat q4_0 k_major=x"), "problem: found 'k_major=x', needed 0 or 1");
}

TEST(ParseProblem, TakesEveryFieldOnce) {
  EXPECT_EQ(error_of("mul_mat q4_0 n=1 k=32 n=2"), "problem: found 'n=2', n is given already");
  EXPECT_EQ(error_of("mul_mat q4_0 planar n=1 k=32 layout=gguf"), "problem: found 'layout=gguf', layout is given already");
  EXPECT_EQ(error_of("mul_mat q4_0 gguf planar n=1 k=32"), "problem: found 'planar', layout is given already");
}

TEST(ParseProblem, NeedsN) {
  EXPECT_EQ(error_of("mul_mat q4_0 m=1 k=32"), "problem: found no n in 'mul_mat q4_0 m=1 k=32', needed n=N");
  EXPECT_TRUE(parse_problem("mul_mat q4_0 n=0 k=32")) << "none is a number, too";
  EXPECT_TRUE(parse_problem("quantize_rows_int8 i8 m=1 k=32")) << "it has no weights";
}

TEST(ParseProblem, ChecksWhatItRead) {
  EXPECT_EQ(error_of("mul_mat q4_0 n=1 k=33"), "problem: k is 33, needed a multiple of q4_0's block of 32");
  EXPECT_EQ(error_of("mul_mat q4_0 n=1"), "problem: found no k in 'mul_mat q4_0 n=1', needed k=K");
}

// Field case 27: rows of 896 are no rows of Q4_K.
TEST(ValidateProblem, NamesTheLengthAndTheBlock) {
  Problem p = kBase;
  p.type = WeightType::q4_k, p.k = 896;
  EXPECT_EQ(invalid(p), "problem: k is 896, needed a multiple of q4_k's block of 256");
  for (const auto& type : kWeightTypes) {
    p.type = type.type;
    p.k = 3 * type.block_elements;
    EXPECT_EQ(invalid(p), "") << type.name;
    p.k += 1;
    EXPECT_EQ(invalid(p).empty(), type.block_elements == 1) << type.name;
  }
}

TEST(ValidateProblem, NamesEverySizeBelowItsLeast) {
  auto with = [](std::int64_t Problem::*field, std::int64_t value) {
    Problem p = kBase;
    p.*field = value;
    return invalid(p);
  };
  EXPECT_EQ(with(&Problem::m, -1), "problem: m is -1, needed at least 0");
  EXPECT_EQ(with(&Problem::n, -8), "problem: n is -8, needed at least 0");
  EXPECT_EQ(with(&Problem::k, 0), "problem: k is 0, needed at least 1");
  EXPECT_EQ(with(&Problem::k, -256), "problem: k is -256, needed at least 1");
  EXPECT_EQ(with(&Problem::batch2, 0), "problem: batch dim 2 is 0, needed at least 1");
  EXPECT_EQ(with(&Problem::batch3, -1), "problem: batch dim 3 is -1, needed at least 1");
  EXPECT_EQ(with(&Problem::ratio2, 0), "problem: ratio of dim 2 is 0, needed at least 1");
  EXPECT_EQ(with(&Problem::ratio3, 0), "problem: ratio of dim 3 is 0, needed at least 1");
  EXPECT_EQ(with(&Problem::m, 0), "");  // zero tokens are legal: nothing is launched
  EXPECT_EQ(with(&Problem::n, 0), "");
}

TEST(ValidateProblem, RatiosDivideTheirBatchDimension) {
  Problem p = kBase;
  p.batch2 = 6, p.ratio2 = 4;
  EXPECT_EQ(invalid(p), "problem: batch dim 2 is 6, needed a multiple of its ratio 4");
  p.ratio2 = 3, p.batch3 = 4, p.ratio3 = 8;
  EXPECT_EQ(invalid(p), "problem: batch dim 3 is 4, needed a multiple of its ratio 8");
  p.ratio3 = 4;
  EXPECT_EQ(invalid(p), "");
}

TEST(ValidateProblem, ARowIsAtMost2To25Long) {
  Problem p = kBase;
  p.batch2 = p.batch3 = 1;
  p.k = 33554432;
  EXPECT_EQ(invalid(p), "");
  p.k += 32;
  EXPECT_EQ(invalid(p), "problem: k is 33554464, needed at most 33554432");
}

TEST(ValidateProblem, EveryMatrixHasFewerThan2To62Bytes) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  Problem p = kBase;
  p.n = kHuge;
  EXPECT_EQ(invalid(p), "problem: a matrix of 4611686018427387904 x 256 elements has more bytes than 2^62");
  p = kBase, p.m = kHuge;
  EXPECT_NE(invalid(p), "");
  // W and X fit, Y does not.
  p = kBase, p.k = 32, p.m = std::int64_t{1} << 32, p.n = std::int64_t{1} << 32;
  EXPECT_EQ(invalid(p), "problem: a matrix of 4294967296 x 4294967296 elements has more bytes than 2^62");
  // The wrap is to a small positive number.
  p = kBase, p.batch2 = std::int64_t{1} << 61;
  EXPECT_NE(invalid(p), "");
  // Counted as eight bytes an element: 2^49 * 256 * 2 * 2 elements are the most.
  p = kBase, p.n = std::int64_t{1} << 49;
  EXPECT_EQ(invalid(p), "");
  p.n += 1;
  EXPECT_NE(invalid(p), "");
}

TEST(Validate, FieldsThatAnOpDoesNotHaveAreRefusedByName) {
  auto error_of_problem = [](Problem p) {
    p.n = 32, p.k = 32;
    const auto status = validate(p);
    return status ? std::string() : status.error().message;
  };
  EXPECT_EQ(error_of_problem({.op = Op::out_prod, .bias = true}), "problem: a bias is asked for, which out_prod does not have");
  EXPECT_EQ(error_of_problem({.op = Op::to_planar, .scale = true}), "problem: a weight scale is asked for, which to_planar does not have");
  EXPECT_EQ(error_of_problem({.op = Op::mul_mat_id, .x_transposed = true}),
            "problem: a transposed X is asked for, which mul_mat_id does not have");
  EXPECT_EQ(error_of_problem({.op = Op::mul_mat, .experts = 2}), "problem: experts, used or broadcast is set, which mul_mat does not have");
  EXPECT_EQ(error_of_problem({.op = Op::mul_mat_id, .batch2 = 2}), "problem: batch is 2,1, mul_mat_id needs 1,1");
  EXPECT_EQ(error_of_problem({.op = Op::mul_mat_id, .experts = 0}), "problem: experts is 0, needed at least 1");
  EXPECT_EQ(error_of_problem({.op = Op::mul_mat_id, .used = 0}), "problem: used is 0, needed at least 1");
  EXPECT_EQ(error_of_problem({.op = Op::out_prod, .x_transposed = true, .scale = true}), "");
}

TEST(ProblemText, FieldsOfTheNewerOpsStandBehindTheOthers) {
  Problem p{.op = Op::mul_mat_id, .m = 3, .n = 32, .k = 32, .scale = true, .experts = 128, .used = 8, .x_broadcast = true};
  const std::string text = to_string(p);
  EXPECT_NE(text.find("ratio=1,1 scale=1 experts=128 used=8 broadcast=1"), std::string::npos) << text;
  EXPECT_EQ(*parse_problem(text), p);
  // The text of a plain problem is the key of stored tunings: it must not change.
  EXPECT_EQ(to_string(Problem{.m = 1, .n = 32, .k = 32}),
            "mul_mat q4_0 planar m=1 n=32 k=32 x=f32 y=f32 bias=0 class=normal batch=1,1 ratio=1,1");
}

TEST(Problem, IntegerOpsTakeCodesAndNothingElse) {
  const auto error_of_problem = [](const Problem& p) {
    const auto status = validate(p);
    return status ? std::string() : status.error().message;
  };
  const Problem rows{.op = Op::matmul_int8_rows, .type = WeightType::i8, .n = 777, .k = 2046, .y_type = DType::bf16, .bias = true};
  EXPECT_EQ(error_of_problem(rows), "");
  EXPECT_EQ(parse_problem(to_string(rows)).value(), canonical(rows));
  const Problem quantize{.op = Op::quantize_rows_int8, .type = WeightType::i8, .m = 3, .n = 0, .k = 2048};
  EXPECT_EQ(error_of_problem(quantize), "");
  EXPECT_EQ(parse_problem(to_string(quantize)).value(), canonical(quantize));

  // What means nothing to an op is no part of its key.
  EXPECT_EQ(parse_problem("matmul_int8_rows i8 gguf n=777 k=2046 m=1 x=f16 y=bf16 bias=1 class=loose").value(), canonical(rows));
  EXPECT_EQ(parse_problem("quantize_rows_int8 i8 m=3 n=0 k=2048 y=bf16").value(), canonical(quantize));

  const auto changed = [&](Problem p, auto change) {
    change(p);
    return error_of_problem(p);
  };
  EXPECT_EQ(changed(rows, [](Problem& p) { p.type = WeightType::q8_0, p.k = 2048; }), "problem: type is q8_0, matmul_int8_rows needs i8");
  EXPECT_EQ(changed(rows, [](Problem& p) { p.k = 131072; }), "problem: k is 131072, matmul_int8_rows needs at most 131071");
  EXPECT_EQ(changed(rows, [](Problem& p) { p.k = 131071; }), "");
  EXPECT_EQ(changed(rows, [](Problem& p) { p.batch2 = 2; }), "problem: batch is 2,1, matmul_int8_rows needs 1,1");
  EXPECT_EQ(changed(rows, [](Problem& p) { p.scale = true; }),
            "problem: a weight scale is asked for, which matmul_int8_rows does not have");
  EXPECT_EQ(changed(quantize, [](Problem& p) { p.k = 2046; }), "problem: k is 2046, quantize_rows_int8 needs a multiple of 4");
  EXPECT_EQ(changed(quantize, [](Problem& p) { p.n = 5; }), "problem: n is 5, quantize_rows_int8 has no weights and needs 0");
  EXPECT_EQ(changed(rows, [](Problem& p) { p.op = Op::mul_mat; }),
            "problem: type is i8, bare codes without a scale, which mul_mat does not take");
}

TEST(Problem, PackedCodesHaveTheirOwnFields) {
  const auto error_of_problem = [](const Problem& p) {
    const auto status = validate(p);
    return status ? std::string() : status.error().message;
  };
  const Problem w4a4{.op = Op::w4a4,
                     .type = WeightType::code4,
                     .m = 3,
                     .n = 129,
                     .k = 128,
                     .y_type = DType::f16,
                     .bias = true,
                     .k_major = true,
                     .fused = true};
  EXPECT_EQ(error_of_problem(w4a4), "");
  EXPECT_EQ(parse_problem(to_string(w4a4)).value(), canonical(w4a4));
  // One rounding and two are the same where nothing is added.
  EXPECT_EQ(parse_problem("w4a4 code4 m=1 n=3 k=64 fused=1").value(), parse_problem("w4a4 code4 m=1 n=3 k=64").value());

  const auto changed = [&](Problem p, auto change) {
    change(p);
    return error_of_problem(p);
  };
  EXPECT_EQ(changed(w4a4, [](Problem& p) { p.type = WeightType::i8; }), "problem: type is i8, w4a4 needs code4");
  EXPECT_EQ(changed(w4a4, [](Problem& p) { p.k = 96; }), "problem: k is 96, w4a4 needs a multiple of 64");
  EXPECT_EQ(changed(w4a4, [](Problem& p) { p.k = 131072; }), "problem: k is 131072, w4a4 needs at most 131008");
  EXPECT_EQ(changed(w4a4, [](Problem& p) { p.k = 131008; }), "");
  EXPECT_EQ(changed(w4a4, [](Problem& p) { p.batch3 = 2; }), "problem: batch is 1,2, w4a4 needs 1,1");
  EXPECT_EQ(changed(w4a4, [](Problem& p) { p.block = 64; }), "problem: a block is asked for, which w4a4 does not have");
  EXPECT_EQ(error_of_problem({.op = Op::mul_mat, .k = 32, .k_major = true}),
            "problem: a k-major W is asked for, which mul_mat does not have");
  EXPECT_EQ(error_of_problem({.op = Op::mul_mat, .k = 32, .fused = true}),
            "problem: a fused epilogue is asked for, which mul_mat does not have");
}

TEST(Problem, RotatedRowsComeInBlocks) {
  const auto changed = [](auto change) {
    Problem p{.op = Op::rpbh_quantize, .type = WeightType::code4, .m = 3, .n = 0, .k = 192, .x_type = DType::bf16, .block = 64};
    change(p);
    const auto status = validate(p);
    return status ? std::string() : status.error().message;
  };
  EXPECT_EQ(changed([](Problem&) {}), "");
  EXPECT_EQ(changed([](Problem& p) { p.type = WeightType::i8, p.k = 7, p.block = 1; }), "");
  EXPECT_EQ(changed([](Problem& p) { p.block = 0; }), "problem: block is 0, needed a power of two");
  EXPECT_EQ(changed([](Problem& p) { p.block = 48; }), "problem: block is 48, needed a power of two");
  EXPECT_EQ(changed([](Problem& p) { p.block = -64; }), "problem: block is -64, needed a power of two");
  EXPECT_EQ(changed([](Problem& p) { p.block = 128; }), "problem: k is 192, needed a multiple of the block of 128");
  EXPECT_EQ(changed([](Problem& p) { p.k = 7, p.block = 1; }), "problem: k is 7, needed a multiple of code4's block of 2");
  EXPECT_EQ(changed([](Problem& p) { p.type = WeightType::q8_0; }), "problem: type is q8_0, rpbh_quantize needs i8 or code4");
  EXPECT_EQ(changed([](Problem& p) { p.n = 5; }), "problem: n is 5, rpbh_quantize has no weights and needs 0");
  EXPECT_EQ(changed([](Problem& p) { p.batch3 = 2; }), "problem: batch is 1,2, rpbh_quantize needs 1,1");
  EXPECT_EQ(changed([](Problem& p) { p.bias = true; }), "problem: a bias is asked for, which rpbh_quantize does not have");
  EXPECT_EQ(changed([](Problem& p) { p.op = Op::quantize_rows_int8, p.type = WeightType::i8; }),
            "problem: a block is asked for, which quantize_rows_int8 does not have");
  const Problem p{.op = Op::rpbh_quantize, .type = WeightType::code4, .m = 3, .n = 0, .k = 192, .x_type = DType::bf16, .block = 64};
  EXPECT_EQ(to_string(canonical(p)),
            "rpbh_quantize code4 planar m=3 n=0 k=192 x=bf16 y=f32 bias=0 class=exact batch=1,1 ratio=1,1 block=64");
  EXPECT_EQ(parse_problem("rpbh_quantize code4 block=64 m=3 k=192 x=bf16 y=f16").value(), canonical(p));
}

}  // namespace
}  // namespace quern

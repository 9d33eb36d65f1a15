#include "runtime/launch_args.h"

#include <gtest/gtest.h>

namespace quern {
namespace {

constexpr Problem kProblem{.op = Op::mul_mat, .type = WeightType::q4_k, .layout = Layout::gguf, .m = 3, .n = 40, .k = 512};

alignas(256) std::byte memory[8192];

LaunchArgs good() { return {.w = {.data = memory}, .x = {.data = memory}, .y = {.data = memory}}; }

std::string error_of(const Problem& problem, const LaunchArgs& args, std::size_t workspace = 0) {
  KernelArgs out;
  const auto status = fill_kernel_args(problem, workspace, args, &out);
  return status ? "" : status.error().message;
}

TEST(FillKernelArgs, MakesStridesDense) {
  KernelArgs out;
  Problem p = kProblem;
  p.batch2 = 6, p.batch3 = 2, p.ratio2 = 3, p.ratio3 = 2;
  ASSERT_TRUE(fill_kernel_args(p, 0, good(), &out));
  EXPECT_EQ(out.m, 3);
  EXPECT_EQ(out.n, 40);
  EXPECT_EQ(out.k, 512);
  EXPECT_EQ(out.ldx, 512);
  EXPECT_EQ(out.ldy, 40);
  EXPECT_EQ(out.w_row_bytes, 288);
  EXPECT_EQ(out.x_stride2, 3 * 512);
  EXPECT_EQ(out.x_stride3, 6 * 3 * 512);
  EXPECT_EQ(out.y_stride2, 3 * 40);
  EXPECT_EQ(out.y_stride3, 6 * 3 * 40);
  EXPECT_EQ(out.w_stride2, 40 * 288);
  EXPECT_EQ(out.w_stride3, 2 * 40 * 288);
  EXPECT_EQ(out.batch2, 6);
  EXPECT_EQ(out.batch3, 2);
  EXPECT_EQ(out.ratio2, 3);
  EXPECT_EQ(out.ratio3, 2);
}

TEST(FillKernelArgs, PassesGivenStridesOn) {
  KernelArgs out;
  LaunchArgs args = good();
  args.x.row_stride = 600, args.y.row_stride = 64, args.w.row_bytes = 320;
  ASSERT_TRUE(fill_kernel_args(kProblem, 0, args, &out));
  EXPECT_EQ(out.ldx, 600);
  EXPECT_EQ(out.ldy, 64);
  EXPECT_EQ(out.w_row_bytes, 320);
  EXPECT_EQ(out.x_stride2, 3 * 600);
  EXPECT_EQ(out.w_stride2, 40 * 320);
}

// Field case 16.
TEST(FillKernelArgs, NamesBothDimensionsOfASwappedActivation) {
  LaunchArgs args = good();
  args.x.rows = 3, args.x.columns = 40;
  EXPECT_EQ(error_of(kProblem, args), "mul_mat: X has rows of length 40, the plan needs K = 512 (N = 40, K = 512)");
}

TEST(FillKernelArgs, ChecksEveryStatedShape) {
  LaunchArgs args = good();
  args.x.rows = 4;
  EXPECT_EQ(error_of(kProblem, args), "mul_mat: X has 4 rows, the plan needs M = 3");
  args = good(), args.w.columns = 256;
  EXPECT_EQ(error_of(kProblem, args), "mul_mat: W has rows of length 256, the plan needs K = 512 (N = 40, K = 512)");
  args = good(), args.w.rows = 41;
  EXPECT_EQ(error_of(kProblem, args), "mul_mat: W has 41 rows, the plan needs N = 40");
  args = good(), args.y.columns = 512;
  EXPECT_EQ(error_of(kProblem, args), "mul_mat: Y has rows of length 512, the plan needs N = 40 (N = 40, K = 512)");
  args = good(), args.y.rows = 2;
  EXPECT_EQ(error_of(kProblem, args), "mul_mat: Y has 2 rows, the plan needs M = 3");
  Problem dequantize = kProblem;
  dequantize.op = Op::dequantize, dequantize.m = 1;
  args = good(), args.x = {}, args.y.rows = 40, args.y.columns = 512;
  EXPECT_EQ(error_of(dequantize, args), "");
  args.y.rows = 1;
  EXPECT_EQ(error_of(dequantize, args), "dequantize: Y has 1 rows, the plan needs N = 40");
}

TEST(FillKernelArgs, ChecksEveryStride) {
  LaunchArgs args = good();
  args.x.row_stride = 500;
  EXPECT_EQ(error_of(kProblem, args), "mul_mat: X's row_stride is 500 elements, at least 512 are needed");
  args = good(), args.y.row_stride = 39;
  EXPECT_EQ(error_of(kProblem, args), "mul_mat: Y's row_stride is 39 elements, at least 40 are needed");
  args = good(), args.w.row_bytes = 256;
  EXPECT_EQ(error_of(kProblem, args), "mul_mat: W's row_bytes is 256 bytes, at least 288 are needed");
  args = good(), args.w.row_bytes = 290;
  EXPECT_EQ(error_of(kProblem, args), "mul_mat: W's row_bytes is 290, a multiple of 16 is needed");
  args = good(), args.w.row_bytes = 304;
  Problem planar = kProblem;
  planar.layout = Layout::planar;
  EXPECT_EQ(error_of(planar, args), "mul_mat: W's row_bytes is 304, planar and repacked weights are dense: 288");
  args = good(), args.x.row_stride = -512;
  EXPECT_NE(error_of(kProblem, args), "");
}

// Three rows of 18 bytes: the second matrix of a dense batch would start 54 bytes in, where a 16-byte load faults.
TEST(FillKernelArgs, PlanarBatchesStartAligned) {
  Problem p{.op = Op::mul_mat, .type = WeightType::q4_0, .layout = Layout::planar, .m = 1, .n = 3, .k = 32, .batch2 = 2};
  LaunchArgs args = good();
  EXPECT_EQ(error_of(p, args), "mul_mat: W's stride2 is 54 bytes, batches of planar weights need a multiple of 16");
  args.w.stride2 = 72;
  EXPECT_EQ(error_of(p, args), "mul_mat: W's stride2 is 72 bytes, batches of planar weights need a multiple of 16");
  args.w.stride2 = 64;
  EXPECT_EQ(error_of(p, args), "");
  p.batch2 = 1, p.batch3 = 2;
  args = good();
  EXPECT_EQ(error_of(p, args), "mul_mat: W's stride3 is 54 bytes, batches of planar weights need a multiple of 16");
  args.w.stride3 = 56;
  EXPECT_EQ(error_of(p, args), "mul_mat: W's stride3 is 56 bytes, batches of planar weights need a multiple of 16");
  args.w.stride3 = 64;
  EXPECT_EQ(error_of(p, args), "");
  p.n = 16;
  EXPECT_EQ(error_of(p, good()), "");  // 288 bytes
}

TEST(FillKernelArgs, AStrideThatNoBatchOfWUsesMayBeAnything) {
  Problem p{.op = Op::mul_mat, .type = WeightType::q4_0, .layout = Layout::planar, .m = 1, .n = 3, .k = 32};
  EXPECT_EQ(error_of(p, good()), "");
  p.batch2 = 4, p.ratio2 = 4, p.batch3 = 2, p.ratio3 = 2;  // X and Y are batched, W is one matrix
  EXPECT_EQ(error_of(p, good()), "");
  p.ratio2 = 2;
  EXPECT_NE(error_of(p, good()), "");
}

TEST(FillKernelArgs, GgufBatchesStartAsAlignedAsTheirBlocks) {
  Problem p{.op = Op::mul_mat, .type = WeightType::q4_0, .layout = Layout::gguf, .m = 1, .n = 3, .k = 32, .batch2 = 2};
  LaunchArgs args = good();
  EXPECT_EQ(error_of(p, args), "");
  args.w.stride2 = 55;
  EXPECT_EQ(error_of(p, args), "mul_mat: W's stride2 is 55 bytes, batches of gguf weights need a multiple of 2");
}

TEST(FillKernelArgs, ChecksEveryPointer) {
  LaunchArgs args = good();
  args.w.data = nullptr;
  EXPECT_EQ(error_of(kProblem, args), "mul_mat: W is null, device memory is needed");
  args = good(), args.x.data = nullptr;
  EXPECT_EQ(error_of(kProblem, args), "mul_mat: X is null, device memory is needed");
  args = good(), args.y.data = nullptr;
  EXPECT_EQ(error_of(kProblem, args), "mul_mat: Y is null, device memory is needed");
  args = good(), args.w.data = memory + 8;
  EXPECT_EQ(error_of(kProblem, args), "mul_mat: W starts 8 bytes past a multiple of 16, it must start at one");
  args = good(), args.x.data = memory + 2;
  EXPECT_EQ(error_of(kProblem, args), "mul_mat: X starts 2 bytes past a multiple of 4, it must start at one");
}

TEST(FillKernelArgs, WantsABiasExactlyWhenTheProblemHasOne) {
  LaunchArgs args = good();
  args.bias = memory;
  EXPECT_EQ(error_of(kProblem, args), "mul_mat: a bias is given, the problem was planned without one (Problem::bias)");
  Problem biased = kProblem;
  biased.bias = true;
  EXPECT_EQ(error_of(biased, args), "");
  args.bias = nullptr;
  EXPECT_EQ(error_of(biased, args), "mul_mat: bias is null, device memory is needed");
}

TEST(FillKernelArgs, ChecksTheWorkspace) {
  LaunchArgs args = good();
  EXPECT_EQ(error_of(kProblem, args, 512), "mul_mat: workspace is null, this plan needs 512 bytes");
  args.workspace = memory, args.workspace_bytes = 511;
  EXPECT_EQ(error_of(kProblem, args, 512), "mul_mat: workspace has 511 bytes, this plan needs 512");
  args.workspace = memory + 64, args.workspace_bytes = 512;
  EXPECT_EQ(error_of(kProblem, args, 512), "mul_mat: workspace starts 64 bytes past a multiple of 256, it must start at one");
  args.workspace = memory;
  EXPECT_EQ(error_of(kProblem, args, 512), "");
}

// Codes may start at any byte; the scales of their rows are f32, given exactly where the op has codes.
TEST(FillKernelArgs, RowsOfCodesComeWithTheirScales) {
  const Problem rows{.op = Op::matmul_int8_rows, .type = WeightType::i8, .m = 3, .n = 40, .k = 512, .y_type = DType::bf16};
  const auto* scales = reinterpret_cast<const float*>(memory);
  LaunchArgs args{
      .w = {.data = memory + 1, .row_scales = scales}, .x = {.data = memory + 3, .row_scales = scales + 64}, .y = {.data = memory}};
  KernelArgs out;
  ASSERT_TRUE(fill_kernel_args(rows, 0, args, &out));
  EXPECT_EQ(out.w_row_bytes, 512);
  EXPECT_EQ(out.w_scales, scales);
  EXPECT_EQ(out.x_scales, scales + 64);
  args.w.row_bytes = 515, args.x.row_stride = 513;
  EXPECT_EQ(error_of(rows, args), "");
  args.w.row_bytes = 511;
  EXPECT_EQ(error_of(rows, args), "matmul_int8_rows: W's row_bytes is 511 bytes, at least 512 are needed");
  args.w.row_bytes = 0, args.x.row_scales = nullptr;
  EXPECT_EQ(error_of(rows, args), "matmul_int8_rows: X's row_scales is null, device memory is needed");
  args.x.row_scales = scales, args.w.row_scales = reinterpret_cast<const float*>(memory + 2);
  EXPECT_EQ(error_of(rows, args), "matmul_int8_rows: W's row_scales starts 2 bytes past a multiple of 4, it must start at one");

  const Problem quantize{.op = Op::quantize_rows_int8, .type = WeightType::i8, .m = 3, .n = 0, .k = 512, .x_type = DType::f16};
  LaunchArgs codes{.x = {.data = memory}, .y = {.data = memory + 1, .row_scales = reinterpret_cast<float*>(memory)}};
  EXPECT_EQ(error_of(quantize, codes), "");
  codes.y.row_scales = nullptr;
  EXPECT_EQ(error_of(quantize, codes), "quantize_rows_int8: Y's row_scales is null, device memory is needed");
  LaunchArgs plain = good();
  plain.x.row_scales = scales;
  EXPECT_EQ(error_of(kProblem, plain), "mul_mat: X's row_scales are given, this op has none");
}

// Signs, codebook and codes may start at any byte; a codebook is given exactly where codes are asked for.
TEST(FillKernelArgs, RotatedRowsComeWithTheirOperands) {
  Problem p{.op = Op::rpbh_quantize, .type = WeightType::i8, .m = 3, .n = 0, .k = 512, .x_type = DType::bf16, .block = 64};
  const auto* bytes = reinterpret_cast<const std::int8_t*>(memory);
  const LaunchArgs good{.x = {.data = memory},
                        .y = {.data = memory + 1, .row_scales = reinterpret_cast<float*>(memory)},
                        .rotation = {.permutation = reinterpret_cast<const std::int32_t*>(memory + 4),
                                     .signs = bytes + 5,
                                     .boundaries = reinterpret_cast<const float*>(memory + 8),
                                     .codebook = bytes + 7,
                                     .epsilon = 0.5f}};
  KernelArgs out;
  ASSERT_TRUE(fill_kernel_args(p, 0, good, &out));
  EXPECT_EQ(out.permutation, good.rotation.permutation);
  EXPECT_EQ(static_cast<const void*>(out.signs), bytes + 5);
  EXPECT_EQ(out.boundaries, good.rotation.boundaries);
  EXPECT_EQ(static_cast<const void*>(out.x_codebook), bytes + 7);
  EXPECT_EQ(out.epsilon, 0.5f);
  EXPECT_EQ(out.ldy, 512);
  const auto refused = [&](auto change) {
    LaunchArgs args = good;
    change(args);
    return error_of(p, args);
  };
  EXPECT_EQ(refused([](LaunchArgs& a) { a.rotation.permutation = nullptr; }),
            "rpbh_quantize: permutation is null, device memory is needed");
  EXPECT_EQ(refused([](LaunchArgs& a) { a.rotation.signs = nullptr; }), "rpbh_quantize: signs is null, device memory is needed");
  EXPECT_EQ(refused([](LaunchArgs& a) { a.rotation.boundaries = reinterpret_cast<const float*>(memory + 2); }),
            "rpbh_quantize: boundaries starts 2 bytes past a multiple of 4, it must start at one");
  EXPECT_EQ(refused([](LaunchArgs& a) { a.rotation.codebook = nullptr; }), "rpbh_quantize: codebook is null, device memory is needed");
  EXPECT_EQ(refused([](LaunchArgs& a) { a.y.row_scales = nullptr; }), "rpbh_quantize: Y's row_scales is null, device memory is needed");
  p.type = WeightType::code4;
  EXPECT_EQ(error_of(p, good), "rpbh_quantize: codebook is given, which this plan does not have");
  EXPECT_EQ(refused([](LaunchArgs& a) { a.rotation.codebook = nullptr, a.y.columns = 512; }),
            "rpbh_quantize: Y has rows of length 512, the plan needs K/2 = 256 (N = 0, K = 512)");
}

TEST(WeightAlignment, IsWhatABlocksSizeGuarantees) {
  EXPECT_EQ(weight_alignment(WeightType::q4_k, Layout::gguf), 16);
  EXPECT_EQ(weight_alignment(WeightType::q4_0, Layout::gguf), 2);
  EXPECT_EQ(weight_alignment(WeightType::q6_k, Layout::gguf), 2);
  EXPECT_EQ(weight_alignment(WeightType::f32, Layout::gguf), 4);
  EXPECT_EQ(weight_alignment(WeightType::q4_0, Layout::planar), 16);
}

}  // namespace
}  // namespace quern

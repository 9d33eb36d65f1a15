// Rendered text, as it was when someone last looked at it. QUERN_UPDATE_GOLDENS=1 writes the files anew; the test then skips, so that a run
// that wrote them never counts as one that checked them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "generator/family.h"
#include "tests/generator/problem_grid.h"

namespace quern {
namespace {

struct Golden {
  const char* file;
  const char* problem;
  Target target;
  const char* config;
};

const Golden kGoldens[] = {
    {"generic_bf16_batch", "mul_mat bf16 gguf m=3 n=40 k=37 x=bf16 y=f16 bias=1 class=f32 batch=4,2 ratio=2,1", test::cuda(75),
     "generic:threads=128"},
    {"dequantize_q6_k", "dequantize q6_k gguf n=17 k=512 y=f16 class=exact", test::cuda(75), "dequantize:threads=256"},
    {"repack_q5_0_workspace", "to_planar q5_0 gguf n=50 k=8192 class=exact", test::cuda(80), "repack:threads=256,blocks=264"},
    {"gemv_f32_q8_0", "mul_mat q8_0 planar m=1 n=4096 k=4096 class=f32", test::cuda(86),
     "gemv_f32:warps=8,warps_k=1,lanes=32,rows=2,unroll=1,passes=1,stage=1,min_warps=0"},
    {"gemv_q8_q4_k", "mul_mat q4_k planar m=1 n=14336 k=4096", test::cuda(90, true),
     "gemv_q8:warps=8,warps_k=2,lanes=16,rows=2,unroll=1,passes=4,stage=0,min_warps=32,prefetch=1,fuse=0"},
    {"gemv_q8_q4_0_fused", "mul_mat q4_0 planar m=4 n=4096 k=4096 x=f16 y=f16 bias=1", test::cuda(90, true),
     "gemv_q8:warps=4,warps_k=1,lanes=32,rows=2,unroll=2,passes=1,stage=1,min_warps=0,prefetch=0,fuse=1"},
    {"gemm_q4_0_split", "mul_mat q4_0 planar m=16 n=4096 k=4096 x=f16 class=tight", test::cuda(80),
     "gemm:warps_n=2,warps_m=1,warps_k=2,frags_n=2,frags_m=2,stages=3,split_k=4,bf16=0"},
    {"gemm_q4_k_routed", "mul_mat_id q4_k planar m=512 n=768 k=2048 bias=1 scale=1 experts=128 used=8 broadcast=1", test::cuda(90, true),
     "gemm:warps_n=4,warps_m=1,warps_k=1,frags_n=2,frags_m=8,stages=3,split_k=1,bf16=1"},
    {"wgmma_q4_k", "mul_mat q4_k planar m=512 n=14336 k=4096 x=f16 y=f16", test::cuda(90, true),
     "wgmma:groups=2,tile_m=256,stages=3,bf16=1"},
};

std::string describe(const Golden& golden) {
  const auto problem = parse_problem(golden.problem);
  if (!problem) return problem.error().message;
  const auto config = parse_config(golden.config);
  if (!config) return config.error().message;
  const auto source = render(*problem, golden.target, *config);
  if (!source) return source.error().message;
  std::ostringstream out;
  out << "problem: " << to_string(*problem) << "\ntarget: " << to_string(golden.target) << "\nconfig: " << to_string(*config)
      << "\nclass: " << to_string(source->accuracy) << "\nworkspace: " << source->workspace_bytes << "\n";
  for (const LaunchStep& step : source->steps)
    out << "step: " << step.entry << " grid " << step.grid.x << " block " << step.block.x << " shared " << step.shared_bytes
        << (step.overlaps_previous ? " overlaps" : "") << "\n";
  for (const auto& header : source->headers) out << "header: " << header.name << "\n";
  for (const auto& option : source->options) out << "option: " << option << "\n";
  out << "\n" << source->text;
  return out.str();
}

class RenderedText : public testing::TestWithParam<Golden> {};

TEST_P(RenderedText, IsTheGolden) {
  const auto path = std::filesystem::path(QUERN_GOLDENS) / (std::string(GetParam().file) + ".txt");
  const std::string text = describe(GetParam());
  const char* update = std::getenv("QUERN_UPDATE_GOLDENS");
  if (update != nullptr && std::string_view(update) == "1") {
    std::ofstream(path, std::ios::binary) << text;
    GTEST_SKIP() << "wrote " << path << ", checked nothing";
  }
  std::ifstream file(path, std::ios::binary);
  ASSERT_TRUE(file) << path << " is missing: QUERN_UPDATE_GOLDENS=1 writes it";
  std::ostringstream golden;
  golden << file.rdbuf();
  EXPECT_EQ(text, golden.str()) << "if this change is meant, QUERN_UPDATE_GOLDENS=1 writes the file anew";
}

INSTANTIATE_TEST_SUITE_P(Goldens, RenderedText, testing::ValuesIn(kGoldens), [](const auto& at) { return std::string(at.param.file); });

}  // namespace
}  // namespace quern

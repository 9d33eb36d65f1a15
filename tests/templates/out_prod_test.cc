// out_prod where only the output tiles behind the whole waves are split, against double precision.
#include "tests/templates/host_products.h"

namespace quern {
namespace {

struct Tail {
  const char* problem;
  const char* config;
  std::int64_t tiles, tile_outputs;
};

class OutProdTail : public test::HostTarget, public testing::WithParamInterface<Tail> {};

// Each has 136 to 144 tiles: 132 of them whole, and partial sums for the others alone.
TEST_P(OutProdTail, TilesBehindTheWholeWavesAreSplitAndTheOthersAreNot) {
  const auto problem = parse_problem(GetParam().problem);
  ASSERT_TRUE(problem) << problem.error().message;
  const auto config = parse_config(GetParam().config);
  ASSERT_TRUE(config) << config.error().message;
  const auto source = render(*problem, Target{}, *config);
  ASSERT_TRUE(source) << source.error().message;
  const std::int64_t split_tiles = GetParam().tiles - 132;
  const LaunchStep& main = source->steps[source->steps.size() - 2];
  EXPECT_EQ(main.grid.x, 132 + 2 * split_tiles);
  const std::int64_t partials = 2 * split_tiles * GetParam().tile_outputs * 4;
  EXPECT_GE(source->workspace_bytes, static_cast<std::size_t>(partials));
  EXPECT_LT(source->workspace_bytes, static_cast<std::size_t>(partials + 4 * problem->m + 256));
  EXPECT_EQ(verify_random(*problem, *config), "");
}

INSTANTIATE_TEST_SUITE_P(
    Families, OutProdTail,
    testing::Values(Tail{"out_prod q4_0 m=200 n=512 k=2176", "wgmma_t:groups=1,tile_k=64,split=2,wave=132,spread=2,hold=1,bf16=1", 4 * 34,
                         64 * 64},
                    Tail{"out_prod q6_k gguf m=129 n=500 k=3072 x=bf16 y=f16 class=tight",
                         "wgmma_t:groups=1,tile_k=64,split=2,wave=132,spread=0,hold=0,bf16=0", 3 * 48, 64 * 64},
                    Tail{"out_prod q8_0 m=50 n=512 k=2208 transposed=1",
                         "gemm_t:warps_m=1,warps_k=2,frags_m=1,frags_k=4,run=32,split=2,wave=132,bf16=0", 4 * 35, 16 * 64}),
    [](const auto& of) { return (std::string(of.param.config).substr(0, 5) == "gemm_" ? "Gemm" : "Wgmma") + std::to_string(of.index); });

}  // namespace
}  // namespace quern

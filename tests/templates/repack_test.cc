// Repacking as users do it: in place, one resident copy of the weights, there and back.
#include <gtest/gtest.h>

#include "generator/source_text.h"
#include "geometry/planar.h"
#include "tests/templates/host_products.h"

namespace quern::test {
namespace {

using Repack = HostTarget;

Problem repack(Op op, WeightType type, std::int64_t n, std::int64_t k) {
  return {
      .op = op, .type = type, .layout = op == Op::to_planar ? Layout::gguf : Layout::planar, .n = n, .k = k, .accuracy = Accuracy::exact};
}

struct Shape {
  WeightType type;
  std::int64_t n, k;
};

// Every type with whole and short tiles; lengths whose tile of 16 rows fits the 48 KiB of shared memory, and lengths whose does not.
std::vector<Shape> shapes() {
  std::vector<Shape> all;
  for (const auto& type : kWeightTypes) {
    if (!has_decoder(type.type)) continue;
    const std::int64_t blocks = 48 * 1024 / (16 * type.block_bytes);  // of the longest row that fits
    for (auto [n, k] : {std::pair<std::int64_t, std::int64_t>{37, 3}, {5, blocks}, {19, blocks + 1}})
      all.push_back({type.type, n, k * type.block_elements});
  }
  return all;
}

TEST_F(Repack, ThereAndBackInPlaceGivesTheSameBytes) {
  int with_workspace = 0, without = 0;
  for (const Shape& s : shapes()) {
    SCOPED_TRACE(std::string(to_string(s.type)) + " n=" + std::to_string(s.n) + " k=" + std::to_string(s.k));
    const auto rows = random_weights(s.type, s.n, s.k, 3), planar = gguf_to_planar(s.type, s.n, s.k, rows);
    // A dense type has one field: its layouts are one.
    EXPECT_EQ(planar == rows, info(s.type).block_elements == 1);
    const ExactBytes memory(rows);
    for (Op op : {Op::to_planar, Op::to_gguf}) {
      const Problem p = repack(op, s.type, s.n, s.k);
      auto kernel = load(p, default_config(p, Target{}));
      ASSERT_TRUE(kernel) << kernel.error().message;
      ++((*kernel)->source().workspace_bytes > 0 ? with_workspace : without);
      EXPECT_EQ((*kernel)->source().workspace_bytes > 0, 16 * row_bytes(s.type, s.k) > 48 * 1024);
      const Status status = (*kernel)->run(dense_args(p, memory.data(), nullptr, memory.data(), (*kernel)->workspace()));
      ASSERT_TRUE(status) << status.error().message;
      const auto& right = op == Op::to_planar ? planar : rows;
      EXPECT_EQ(std::memcmp(memory.data(), right.data(), right.size()), 0) << to_string(op);
      const auto fault = (*kernel)->workspace_fault();
      ASSERT_TRUE(fault);
      EXPECT_EQ(*fault, "");
    }
  }
  EXPECT_GT(with_workspace, 10);
  EXPECT_GT(without, 20);
}

// Fewer blocks than tiles: each walks over several and its scratch is used again.
TEST_F(Repack, BlocksThatTakeSeveralTilesEach) {
  const WeightType type = WeightType::q6_k;
  constexpr std::int64_t kRows = 16 * 132 * 2 + 7;
  const auto rows = random_weights(type, kRows, 256, 4), planar = gguf_to_planar(type, kRows, 256, rows);
  std::vector<std::byte> memory = rows;
  const Problem p = repack(Op::to_planar, type, kRows, 256);
  auto kernel = load(p, {"repack", {{"threads", 128}, {"blocks", 132}}});
  ASSERT_TRUE(kernel) << kernel.error().message;
  ASSERT_EQ((*kernel)->source().steps[0].grid.x, 132u);
  ASSERT_TRUE((*kernel)->run(dense_args(p, memory.data(), nullptr, memory.data(), (*kernel)->workspace())));
  EXPECT_EQ(memory, planar);
}

TEST_F(Repack, ApartFromTheSourceLeavesTheSourceAlone) {
  const auto rows = random_weights(WeightType::q5_0, 21, 96, 5);
  std::vector<std::byte> source = rows, destination(rows.size());
  const Problem p = repack(Op::to_planar, WeightType::q5_0, 21, 96);
  auto kernel = load(p, default_config(p, Target{}));
  ASSERT_TRUE(kernel) << kernel.error().message;
  ASSERT_TRUE((*kernel)->run(dense_args(p, source.data(), nullptr, destination.data(), (*kernel)->workspace())));
  EXPECT_EQ(source, rows);
  EXPECT_EQ(destination, gguf_to_planar(WeightType::q5_0, 21, 96, rows));
}

}  // namespace
}  // namespace quern::test

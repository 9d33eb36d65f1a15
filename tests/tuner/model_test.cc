#include "tuner/model.h"

#include <gtest/gtest.h>

namespace quern {
namespace {

GgufTensor tensor(std::string name, WeightType type, std::vector<std::int64_t> ne) {
  GgufTensor t{
      .name = std::move(name), .type_id = static_cast<std::uint32_t>(type), .type = type, .n_dims = static_cast<std::uint32_t>(ne.size())};
  for (std::size_t i = 0; i < ne.size(); ++i) t.ne[i] = ne[i];
  return t;
}

bool any_type(WeightType) { return true; }

std::string reason(const Model& model, std::string_view name) {
  for (const auto& skipped : model.skipped)
    if (skipped.name == name) return skipped.reason;
  return "not skipped";
}

TEST(Model, GroupsByTypeAndShapeInOrder) {
  GgufContents contents{.architecture = "llama", .name = "small"};
  contents.tensors = {tensor("b0.up", WeightType::q4_k, {256, 1024}), tensor("b0.down", WeightType::q6_k, {1024, 256}),
                      tensor("b1.up", WeightType::q4_k, {256, 1024}), tensor("b1.q", WeightType::q4_k, {256, 256})};
  const Model model = group_matrices(contents, any_type);
  EXPECT_EQ(model.architecture, "llama");
  EXPECT_EQ(model.name, "small");
  const std::vector<MatrixGroup> expected = {{WeightType::q4_k, 256, 256, {"b1.q"}},
                                             {WeightType::q4_k, 1024, 256, {"b0.up", "b1.up"}},
                                             {WeightType::q6_k, 256, 1024, {"b0.down"}}};
  EXPECT_EQ(model.matrices, expected);
  EXPECT_TRUE(model.skipped.empty());
}

TEST(Model, TheTokenTableIsAMatrixOnlyWhenItIsTheOutputHead) {
  GgufContents contents;
  contents.tensors = {tensor("token_embd.weight", WeightType::q8_0, {64, 1000})};
  const Model tied = group_matrices(contents, any_type);
  ASSERT_EQ(tied.matrices.size(), 1u);
  ASSERT_EQ(tied.notes.size(), 1u);
  EXPECT_NE(tied.notes[0].find("no output.weight"), std::string::npos);
  contents.tensors.push_back(tensor("output.weight", WeightType::q6_k, {256, 1000}));
  const Model separate = group_matrices(contents, any_type);
  ASSERT_EQ(separate.matrices.size(), 1u);
  EXPECT_EQ(separate.matrices[0].tensors[0], "output.weight");
  EXPECT_NE(reason(separate, "token_embd.weight").find("lookup table"), std::string::npos);
  EXPECT_TRUE(separate.notes.empty());
}

// Field case 26 among them.
TEST(Model, SaysWhyATensorIsSkipped) {
  GgufContents contents;
  contents.tensors = {tensor("norm", WeightType::f32, {64}),
                      tensor("attn_k_b.weight", WeightType::q4_0, {64, 32, 8}),
                      tensor("ffn_up_exps.bias", WeightType::f32, {32, 8}),
                      tensor("empty", WeightType::f32, {64, 0}),
                      tensor("blk.0.ffn_up.scale", WeightType::f32, {1, 8}),
                      tensor("w_scale", WeightType::f32, {8, 8}),
                      tensor("blk.0.ssm_conv1d.weight", WeightType::f32, {4, 64}),
                      tensor("position_embd.weight", WeightType::f16, {64, 512}),
                      tensor("odd", WeightType::tq1_0, {256, 8})};
  GgufTensor future = tensor("future", WeightType::f32, {8, 8});
  future.type.reset();
  future.type_id = 99;
  GgufTensor removed = future;
  removed.name = "removed";
  removed.type_id = 31;
  contents.tensors.push_back(future);
  contents.tensors.push_back(removed);
  const Model model = group_matrices(contents, [](WeightType type) { return type != WeightType::tq1_0; });
  EXPECT_TRUE(model.matrices.empty());
  EXPECT_EQ(reason(model, "norm"), "vector of 64");
  EXPECT_EQ(reason(model, "attn_k_b.weight"), "3-D tensor [64, 32, 8]: only plain matrices and experts are tuned");
  EXPECT_EQ(reason(model, "ffn_up_exps.bias"), "bias of experts, added and not multiplied");
  EXPECT_EQ(reason(model, "empty"), "empty: its shape is [64, 0]");
  EXPECT_EQ(reason(model, "blk.0.ffn_up.scale"), "scale that accompanies a quantized tensor");
  EXPECT_EQ(reason(model, "w_scale"), "scale that accompanies a quantized tensor");
  EXPECT_EQ(reason(model, "blk.0.ssm_conv1d.weight"), "convolution kernel");
  EXPECT_EQ(reason(model, "position_embd.weight"), "lookup table, read by row and not multiplied");
  EXPECT_EQ(reason(model, "odd"), "type tq1_0 has no decoder here");
  EXPECT_EQ(reason(model, "future"), "type id 99 is not a weight type known here");
  EXPECT_EQ(reason(model, "removed"), "type id 31 was removed from the format");
}

TEST(Model, ExpertsAreGroupsOfTheirOwn) {
  GgufContents contents{.architecture = "moe", .experts_used = 2};
  contents.tensors = {tensor("blk.0.ffn_gate_exps.weight", WeightType::q4_k, {256, 512, 8}),
                      tensor("blk.0.ffn_up_exps.weight", WeightType::q4_k, {256, 512, 8}),
                      tensor("blk.0.ffn_down_exps.weight", WeightType::q6_k, {512, 256, 8}),
                      tensor("blk.0.ffn_up_shexp.weight", WeightType::q4_k, {256, 512}),
                      tensor("blk.0.ffn_one_exps.weight", WeightType::q4_k, {256, 512, 1})};
  const Model model = group_matrices(contents, any_type);
  const std::vector<MatrixGroup> expected = {
      {WeightType::q4_k, 512, 256, {"blk.0.ffn_up_shexp.weight", "blk.0.ffn_one_exps.weight"}},
      {WeightType::q6_k, 256, 512, {"blk.0.ffn_down_exps.weight"}, 8, false},
      {WeightType::q4_k, 512, 256, {"blk.0.ffn_gate_exps.weight", "blk.0.ffn_up_exps.weight"}, 8, true}};
  EXPECT_EQ(model.matrices, expected);
  EXPECT_EQ(model.experts_used, 2);
  EXPECT_TRUE(model.notes.empty());
  EXPECT_TRUE(model.skipped.empty());
}

TEST(Model, HowManyExpertsATokenUsesIsNotGuessed) {
  GgufContents contents{.architecture = "moe"};
  contents.tensors = {tensor("blk.0.ffn_up_exps.weight", WeightType::q4_k, {256, 512, 8})};
  Model model = group_matrices(contents, any_type);
  EXPECT_EQ(model.experts_used, 1);
  EXPECT_EQ(model.notes, std::vector<std::string>{"moe.expert_used_count is absent, needed 1 to 8: experts are tuned for one per token"});
  for (std::uint32_t wrong : {0u, 9u}) {
    contents.experts_used = wrong;
    model = group_matrices(contents, any_type);
    EXPECT_EQ(model.experts_used, 1);
    ASSERT_EQ(model.notes.size(), 1u);
    EXPECT_NE(model.notes[0].find("is " + std::to_string(wrong) + ", needed 1 to 8"), std::string::npos) << model.notes[0];
  }
  // A model without experts may say what it likes.
  contents.tensors = {tensor("w", WeightType::q4_k, {256, 512})};
  EXPECT_TRUE(group_matrices(contents, any_type).notes.empty());
}

// Field case 13: NVFP4 keeps a scale per tensor, and one for its activations, in tensors beside it.
TEST(Model, FieldCase13ScaleTensorsOfNvfp4AreNoMatrices) {
  GgufContents contents;
  contents.tensors = {tensor("blk.0.ffn_up.weight", WeightType::nvfp4, {64, 32}), tensor("blk.0.ffn_up.scale", WeightType::f32, {1}),
                      tensor("blk.0.ffn_up.input_scale", WeightType::f32, {1}), tensor("blk.0.ffn_up_exps.scale", WeightType::f32, {8, 1})};
  const Model model = group_matrices(contents, any_type);
  EXPECT_EQ(model.matrices, (std::vector<MatrixGroup>{{WeightType::nvfp4, 32, 64, {"blk.0.ffn_up.weight"}}}));
  ASSERT_EQ(model.skipped.size(), 3u);
  for (const auto& skipped : model.skipped) EXPECT_EQ(skipped.reason, "scale that accompanies a quantized tensor") << skipped.name;
}

TEST(Model, ATrailingDimensionOfOneIsStillAMatrix) {
  GgufContents contents;
  contents.tensors = {tensor("w", WeightType::q4_0, {64, 32, 1}), tensor("reward", WeightType::f16, {64, 1})};
  EXPECT_EQ(group_matrices(contents, any_type).matrices.size(), 2u);
}

}  // namespace
}  // namespace quern

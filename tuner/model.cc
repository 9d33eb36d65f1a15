#include "tuner/model.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>

namespace quern {
namespace {

constexpr std::string_view kTokenTable = "token_embd.weight";
constexpr std::string_view kOutputHead = "output.weight";
constexpr std::string_view kExperts = "_exps.weight";
constexpr std::string_view kDownExperts = "_down_exps.weight";

struct NameRule {
  std::string_view suffix;
  std::string_view reason;
};

// 2-D tensors that no matrix multiplication reads.
constexpr NameRule kNotMultiplied[] = {
    {"position_embd.weight", "lookup table, read by row and not multiplied"},
    {"token_types.weight", "lookup table, read by row and not multiplied"},
    {"per_layer_token_embd.weight", "lookup table, read by row and not multiplied"},
    {"conv1d.weight", "convolution kernel"},
    {".ssm_a", "state of a recurrence, not multiplied as a matrix"},
    {"_exps.bias", "bias of experts, added and not multiplied"},
    {".scale", "scale that accompanies a quantized tensor"},
    {"_scale", "scale that accompanies a quantized tensor"},
};

std::string shape_text(const GgufTensor& tensor) {
  std::string text = "[";
  for (std::uint32_t i = 0; i < tensor.n_dims; ++i) text += (i ? ", " : "") + std::to_string(tensor.ne[i]);
  return text + "]";
}

// Ids that the format gave up; a file that still uses one needs requantizing.
bool removed_from_format(std::uint32_t id) { return id == 4 || id == 5 || (id >= 31 && id <= 33) || (id >= 36 && id <= 38); }

// The experts of a 3-D tensor; 1 for any other.
std::int64_t experts_of(const GgufTensor& tensor) { return tensor.name.ends_with(kExperts) && tensor.ne[3] == 1 ? tensor.ne[2] : 1; }

// Why this tensor is no matrix to tune; empty when it is one.
std::string reason_to_skip(const GgufTensor& tensor, bool has_output_head, const HasDecoder& has_decoder) {
  if (std::find(tensor.ne.begin(), tensor.ne.end(), 0) != tensor.ne.end()) return "empty: its shape is " + shape_text(tensor);
  for (const auto& rule : kNotMultiplied)
    if (tensor.name.ends_with(rule.suffix)) return std::string(rule.reason);
  if (tensor.n_dims < 2) return "vector of " + std::to_string(tensor.ne[0]);
  if (tensor.ne[2] != experts_of(tensor) || tensor.ne[3] != 1)
    return std::to_string(tensor.n_dims) + "-D tensor " + shape_text(tensor) + ": only plain matrices and experts are tuned";
  if (tensor.name == kTokenTable && has_output_head) return "lookup table, read by row and not multiplied";
  if (!tensor.type)
    return "type id " + std::to_string(tensor.type_id) +
           (removed_from_format(tensor.type_id) ? " was removed from the format" : " is not a weight type known here");
  if (!has_decoder(*tensor.type)) return "type " + std::string(to_string(*tensor.type)) + " has no decoder here";
  return "";
}

// How many experts a token uses: what the file says, if that can be.
std::int64_t experts_used(const GgufContents& contents, std::int64_t experts, std::vector<std::string>& notes) {
  const std::string key = contents.architecture + ".expert_used_count";
  if (contents.experts_used && *contents.experts_used >= 1 && *contents.experts_used <= experts) return *contents.experts_used;
  const std::string found = contents.experts_used ? "is " + std::to_string(*contents.experts_used) : "is absent";
  notes.push_back(key + " " + found + ", needed 1 to " + std::to_string(experts) + ": experts are tuned for one per token");
  return 1;
}

}  // namespace

Model group_matrices(const GgufContents& contents, const HasDecoder& has_decoder) {
  Model model{.architecture = contents.architecture, .name = contents.name};
  const bool has_output_head = contents.find(kOutputHead) != nullptr;
  std::int64_t least_experts = 0;
  std::map<std::tuple<std::int64_t, bool, WeightType, std::int64_t, std::int64_t>, std::vector<std::string>> groups;
  for (const auto& tensor : contents.tensors) {
    if (auto reason = reason_to_skip(tensor, has_output_head, has_decoder); !reason.empty()) {
      model.skipped.push_back({tensor.name, std::move(reason)});
      continue;
    }
    const std::int64_t experts = experts_of(tensor);
    const bool broadcast = experts > 1 && !tensor.name.ends_with(kDownExperts);
    groups[{experts, broadcast, *tensor.type, tensor.ne[1], tensor.ne[0]}].push_back(tensor.name);
    if (experts > 1) least_experts = least_experts == 0 ? experts : std::min(least_experts, experts);
    if (tensor.name == kTokenTable)
      model.notes.push_back("token_embd.weight is included: the model has no output.weight, so the table is its output head too");
  }
  for (auto& [key, tensors] : groups) {
    const auto& [experts, broadcast, type, n, k] = key;
    model.matrices.push_back({type, n, k, std::move(tensors), experts, broadcast});
  }
  if (least_experts > 0) model.experts_used = experts_used(contents, least_experts, model.notes);
  return model;
}

}  // namespace quern

// PROBLEMS.json: a list of problems as a file, so that a machine without the model can tune its matrices.
//
//   [ {"op": "mul_mat", "type": "q4_0", "n": 4096, "k": 4096, "m": 1}, ... ]
//
// Required: op, type, n, k, and m for products. Optional, with their defaults:
//   layout "planar" ("gguf" for to_planar)   x_dtype "f32"   y_dtype "f32"   bias false   class "normal" ("exact" for what moves no
//   arithmetic) batch 1, or [batch2, batch3]             ratio 1, or [ratio2, ratio3]    epilogue "none"
//   x_transposed false   scale false   experts 1   used 1   x_broadcast false
// Unknown keys are errors: a misspelt option must not be tuned away silently.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quern/problem.h"
#include "quern/result.h"
#include "tuner/model.h"

namespace quern {

// Errors: kInvalidArgument naming the entry's index, the field, the value found and the value needed. m = 0 is legal for a kernel but there
// is nothing to tune, so it is refused here.
Result<std::vector<Problem>> parse_problems_json(std::string_view text);
// Adds the path to the message. kInvalidArgument too when the file cannot be read.
Result<std::vector<Problem>> read_problems_file(const std::string& path);
// One problem a line; fields at their default are left out. parse_problems_json reads it back to equal problems.
std::string problems_to_json(std::span<const Problem> problems);

// The problems of a model: its matrices times `ops`, `layouts` and, for products, `ms`. mul_mat_id is for experts, the other products for
// plain matrices. Duplicates are dropped, the order is the model's.
struct ModelProblemOptions {
  std::vector<Op> ops = {Op::mul_mat, Op::mul_mat_id};
  std::vector<Layout> layouts = {Layout::planar};
  std::vector<std::int64_t> ms = {1, 8, 64, 512};
  DType x_type = DType::f32;
  DType y_type = DType::f32;
  Accuracy accuracy = Accuracy::normal;
};
std::vector<Problem> problems_of_model(const Model& model, const ModelProblemOptions& options);

}  // namespace quern

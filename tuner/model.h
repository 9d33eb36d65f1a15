// What of a model can be tuned: its matrices grouped by what makes a problem, and what is left out with the reason. Pure data.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "quern/weight_type.h"
#include "tuner/gguf.h"

namespace quern {

// Matrices W[n,k] of one type and shape, or stacks of them, one for each of `experts`: one tuning serves them all.
struct MatrixGroup {
  WeightType type = WeightType::f32;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::vector<std::string> tensors;  // names, in the file's order; never empty
  std::int64_t experts = 1;
  bool x_broadcast = false;  // of experts: all that a token uses read one row of X

  bool operator==(const MatrixGroup&) const = default;
};

struct SkippedTensor {
  std::string name;
  std::string reason;  // one line

  bool operator==(const SkippedTensor&) const = default;
};

struct Model {
  std::string architecture;
  std::string name;
  std::vector<MatrixGroup> matrices;   // ordered by type id, n, k; those of experts last
  std::int64_t experts_used = 1;       // by each token
  std::vector<SkippedTensor> skipped;  // in the file's order
  std::vector<std::string> notes;      // decisions a reader should know of, one line each
};

// True for types that can be computed with.
using HasDecoder = std::function<bool(WeightType)>;

// Groups the 2-D matrices, and the 3-D ones that are experts' ("_exps.weight"). Skipped, each with its reason: vectors, other 3-D tensors,
// empty tensors, lookup tables, convolution kernels, biases of experts, scale tensors that accompany a quantized one (".scale", "_scale"),
// types unknown or without a decoder.
// What goes into the experts is one row for all of them, except for "down", which reads what each of them made. A file that has experts and
// does not say how many a token uses counts as one, and a note says so.
// token_embd.weight is a lookup table, but the output head too when there is no output.weight: then it is a matrix, and a note says so.
Model group_matrices(const GgufContents& contents, const HasDecoder& has_decoder);

}  // namespace quern

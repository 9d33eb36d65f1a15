// What of a model can be tuned: its matrices grouped by what makes a problem, and what is left out with the reason. Pure data.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "quern/weight_type.h"
#include "tuner/gguf.h"

namespace quern {

// Matrices W[n,k] of one type and shape: one tuning serves them all.
struct MatrixGroup {
  WeightType type = WeightType::f32;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::vector<std::string> tensors;  // names, in the file's order; never empty

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
  std::vector<MatrixGroup> matrices;   // ordered by type id, n, k
  std::vector<SkippedTensor> skipped;  // in the file's order
  std::vector<std::string> notes;      // decisions a reader should know of, one line each
};

// True for types that can be computed with.
using HasDecoder = std::function<bool(WeightType)>;

// Groups the 2-D matrices. Skipped, each with its reason: vectors, 3-D (expert) tensors, empty tensors, lookup tables, convolution kernels,
// scale tensors that accompany a quantized one (".scale", "_scale"), types unknown or without a decoder.
// token_embd.weight is a lookup table, but the output head too when there is no output.weight: then it is a matrix, and a note says so.
Model group_matrices(const GgufContents& contents, const HasDecoder& has_decoder);

}  // namespace quern

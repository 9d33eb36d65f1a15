// Rendering: the text of a kernel is a few includes, named types and constants, and one-line entries. Kernels stay ordinary C++.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quern/config.h"
#include "quern/kernel.h"
#include "quern/problem.h"

namespace quern {

// Values of a config by name, each of which must be asked for: an unknown name or an unused value is an error.
class ConfigReader {
 public:
  explicit ConfigReader(const Config& config) : config_(config) {}
  int take(std::string_view name);
  // Ok when every value was taken and every name was found.
  Status finish() const;

 private:
  const Config& config_;
  std::vector<std::string> taken_;
  std::vector<std::string> missing_;
};

// Collects the text and the steps of one kernel module.
class SourceText {
 public:
  SourceText(std::string_view family, const Problem& problem);

  SourceText& include(std::string_view header);
  // Weight, Layout, X, Y and kBias from the problem.
  SourceText& problem_types();
  // constexpr TYPE kGeometry{.name = value, ...}
  SourceText& geometry(std::string_view type, const std::vector<std::pair<std::string, long long>>& fields);
  // One entry: `body` is the statement it runs; it may use `args`.
  SourceText& kernel(const LaunchStep& step, int min_blocks, std::string_view body);

  KernelSource finish(std::size_t workspace_bytes, Accuracy accuracy) &&;

 private:
  Problem problem_;
  std::string includes_;
  std::string declarations_;
  std::string kernels_;
  KernelSource source_;
};

// Whether templates/decode/<type>.cuh was built in.
bool has_decoder(WeightType type);

}  // namespace quern

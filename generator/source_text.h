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
  // Weight, Layout, X, Y, In, Out and, for products, Matrices from the problem.
  SourceText& problem_types();
  // constexpr TYPE kGeometry{.name = value, ...}
  SourceText& geometry(std::string_view type, const std::vector<std::pair<std::string, long long>>& fields);
  // Where an entry waits for the launch before it on its stream, which it overlaps, and then lets the one behind it begin
  // (docs/decisions/0014-overlapping-launches.md). In a later step of an op the body may do it (ptx::wait_previous, then ptx::allow_next),
  // having read what no step of the op writes.
  enum class Wait { at_entry, in_body };
  // One entry: `body` is the statement it runs; it may use `args`.
  SourceText& kernel(LaunchStep step, int min_blocks, std::string_view body, Wait wait = Wait::at_entry);
  // The same for a body that is written for one matrix: where there are many, block_y picks the one that `args` describes, and every matrix
  // has its own workspace. A row of mul_mat_id is a matrix here.
  SourceText& kernel_per_matrix(LaunchStep step, int min_blocks, std::string_view body, Wait wait = Wait::at_entry);

  // `workspace_bytes`: of one matrix where kernel_per_matrix was used, else of all.
  KernelSource finish(std::size_t workspace_bytes, Accuracy accuracy) &&;

 private:
  SourceText& entry(LaunchStep step, int min_blocks, std::string_view parameter, const std::string& statements, Wait wait);
  bool routed() const { return problem_.op == Op::mul_mat_id; }

  Problem problem_;
  bool per_matrix_ = false;
  std::int64_t matrices_ = 1;
  std::string includes_;
  std::string declarations_;
  std::string kernels_;
  KernelSource source_;
};

// Whether templates/decode/<type>.cuh was built in.
bool has_decoder(WeightType type);

}  // namespace quern

// The rows of `quern bench`: the tuned and the default config of a problem, the read ceiling and cuBLAS, all timed in the same run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/cublas.h"
#include "quern/config.h"
#include "quern/context.h"
#include "quern/measurement.h"
#include "quern/problem.h"
#include "quern/result.h"
#include "runtime/context_parts.h"
#include "tuner/workbench.h"

namespace quern::bench {

struct Row {
  Problem problem;
  // What the store answers for this problem; with every family: the family's best there, else its default; or what the caller gave.
  Config config;
  std::size_t given = 0;  // which of the caller's configs, where there are such
  Provenance provenance = Provenance::fallback;
  Verdict verdict = Verdict::ok;  // of `config`, verified in this run; the times are 0 unless it is ok
  std::string reason;             // empty when ok
  double us = 0;                  // whole op, weights rotating through more than three times the L2
  double spread = 0;
  double us_l2_warm = 0;
  bool unstable = false;
  Config default_config;
  std::optional<double> default_us;  // timed side by side with `us`; absent when it failed
  std::int64_t bytes = 0;            // of the weights; 0 for an op that has none
  std::optional<double>
      read_ceiling_us;                  // fastest read of so many bytes, overlapping as ops do; absent on the host and where there are none
  std::optional<double> plain_read_us;  // the same, each read launched when the one before it has ended
  std::size_t workspace_bytes = 0;      // of `config`: all the memory it needs besides its operands
  std::optional<double> bf16_us;        // cuBLAS, mul_mat and out_prod; absent when not measured
  std::optional<double> cast_gemm_us;   // out_prod: quern's own dequantize to f32, then cuBLAS in TF32; absent when not measured
  // Where X are codes: what makes them of bf16 rows, alone, those rows in the L2 as the layer before leaves them. Absent where no family
  // supports it.
  std::optional<double> quantize_us;
  Config quantize_config;
};

struct BenchParts {
  Workbench* measurer = nullptr;  // on the device of `context`
  const Context* context = nullptr;
  const Cublas* cublas = nullptr;  // null: not measured
  bool every_family = false;       // a row per family that supports the problem
  std::vector<Config> configs;     // a row for each of these instead, what they leave out as in the family's default
};

// What makes the codes that X of a product of codes is: the same rows and columns, of bf16. Requires has_code_input(product.op).
Problem quantizer_of(const Problem& product);

// Errors: those of the measurer, and kInvalidArgument for an impossible problem. A config that fails its check is a verdict, not an error.
// At least one row.
Result<std::vector<Row>> bench_problem(const BenchParts& parts, const Problem& problem, const MeasureSettings& settings);

}  // namespace quern::bench

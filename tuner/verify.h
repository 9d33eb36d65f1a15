// Is a kernel's output right? Compared with double precision, element by element, after a run on poisoned and fenced buffers.
//
// Products, over the outputs compared (out_prod sums over n in place of k):
//   nmse      = sum(err^2) / D,   D = max(sum(ref^2), sum over outputs of sum over k of (w x)^2)
//               The second term is the energy that outputs of random signs would have: a tiny case whose products cancel is not judged
//               against its accidentally small result.
//   max_error = max |err| / sum over k of |w x|: what the rounding of products and sums is proportional to.
//
//   class    nmse bar   worst-element bar
//   exact    0          0
//   f32      1e-10      1e-5
//   tight    1e-6       2e-3
//   normal   5e-5       2e-2
//   loose    5e-4       5e-2
//
// The output's own rounding (half a unit in the last place; for many f16 or bf16 elements a variance near 2^-24 or 2^-18 of the value's
// square) is allowed on top of both, by the triangle inequality: sqrt(sum err^2) <= sqrt(bar D) + sqrt(sum half_ulp^2). The bar is a mean
// over outputs; over few outputs it is widened by 1 + 4 sqrt(2/count), four standard deviations of a mean of squared normal errors (not for
// exact and f32).
//
// Integer ops: every output (matmul_int8_rows: of sampled rows of W) bit-identical to the oracle's, the scales that quantize_rows_int8
// writes too. dequantize: f32 bit-identical to the oracle (all NaNs are equal), f16 and bf16 the correctly rounded f32 value. Repacking:
// bytes equal.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "quern/measurement.h"
#include "quern/result.h"
#include "tuner/bench_data.h"
#include "tuner/loaded_kernel.h"

namespace quern {

struct AccuracyBars {
  double nmse = 0;
  double worst = 0;
};
AccuracyBars accuracy_bars(Accuracy accuracy);

// Right answers for some or all outputs of a problem; computed once and used for every candidate.
struct Reference {
  struct Output {
    std::int64_t batch = 0, m = 0, n = 0;  // matrix, row and column of Y
    double value = 0, absolute_sum = 0, square_sum = 0;
  };
  bool sampled = false;            // rows of W and X were sampled: always the first and last, tile edges, and seeded random ones
  std::vector<Output> outputs;     // products, matmul_int8_rows
  std::vector<std::int64_t> rows;  // dequantize: which rows of W to compare
};

// Full when m*n*k (all batches) is at most `full_limit` multiplications, else sampled.
Reference make_reference(const BenchData& data, double full_limit = 2e8);
// `count` different indices in [0, limit), ascending: edges of tiles and both ends first, then random ones. All of them when count >=
// limit.
std::vector<std::int64_t> sample_indices(std::int64_t limit, std::int64_t count, std::uint64_t seed);

struct Verification {
  Verdict verdict = Verdict::ok;
  std::string reason;  // empty when ok
  double nmse = 0;
  double max_error = 0;
  std::int64_t compared = 0;
};

// Compares Y (BenchData::read_output) against the reference. Every element must be written, compared or not.
Verification check_output(const BenchData& data, const Reference& reference, const std::vector<std::byte>& y, Accuracy accuracy);

// Poisons, runs the kernel once on weight copy 0, checks fences and output. Errors are those of the device: launch failed, device lost.
Result<Verification> verify(LoadedKernel& kernel, BenchData& data, const Reference& reference, Accuracy accuracy);

}  // namespace quern

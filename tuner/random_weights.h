// Random inputs that know their type: valid scales, uniformly random quants, the same bytes for the same seed on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "quern/weight_type.h"

namespace quern {

// xoshiro256++ seeded by splitmix64 (both by Blackman and Vigna, public domain algorithms).
class Random {
 public:
  explicit Random(std::uint64_t seed);
  std::uint64_t bits();
  // Uniform in [0, 1), 24 random bits.
  float uniform() { return static_cast<float>(bits() >> 40) * 0x1p-24f; }
  // Uniform in [low, high], high only by rounding.
  float uniform(float low, float high) { return low + (high - low) * uniform(); }
  // Uniform in [0, bound), bound > 0; by multiplication, so bounds far below 2^64 have no measurable bias.
  std::uint64_t below(std::uint64_t bound);

 private:
  std::uint64_t state_[4];
};

// Rows [first_row, first_row + out.size() / row_bytes(type, k)) of the random gguf matrix that (type, k, seed) names. A row depends on its
// number, not on which rows are made with it, so a matrix can be made in pieces, on several threads, or one sampled row at a time.
// Every scale is finite and none is NaN; quant bits, 6-bit and 4-bit sub-scales are uniformly random. The root mean square of the weights
// is about 1/sqrt(k), so that outputs have the magnitude of activations; NVFP4, whose block scales end at 2^-9, stays near 1. Requires k a
// multiple of the block's elements and out.size() a multiple of the row's bytes.
void fill_random_weights(WeightType type, std::int64_t k, std::uint64_t seed, std::int64_t first_row, std::span<std::byte> out);
std::vector<std::byte> random_weights(WeightType type, std::int64_t n, std::int64_t k, std::uint64_t seed);

// Rows of X: uniform in [-1, 1] times a magnitude per row, in [1/4, 4): a kernel that takes one row's scale for another is
// caught. `stride` is the distance between rows in elements; the gap between rows is not written. Rows are independent, as above.
void fill_random_activations(DType type, std::int64_t k, std::int64_t stride, std::uint64_t seed, std::int64_t first_row, std::int64_t rows,
                             std::span<std::byte> out);
std::vector<std::byte> random_activations(DType type, std::int64_t m, std::int64_t k, std::uint64_t seed);

}  // namespace quern

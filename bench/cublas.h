// cuBLAS as a yardstick: the dense product of the same shape, timed in the same run. Opened at run time; absent is fine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "quern/problem.h"
#include "quern/result.h"
#include "runtime/device.h"

namespace quern::bench {

class Cublas {
 public:
  // `path`: one library, or empty to search beside the executable, on the linker's path and in /usr/local/cuda.
  // Errors: kEnvironment naming what was looked for.
  static Result<Cublas> open(const std::string& path);

  Cublas(Cublas&&) noexcept;
  Cublas& operator=(Cublas&&) noexcept;
  ~Cublas();

  const std::string& location() const;

  enum class Operands { bf16, tf32 };

  // The problem's product on dense weights, without its batch: mul_mat Y[M,N] = X[M,K] * W[N,K]^T, or out_prod Y[M,K] = X[M,N] * W[N,K].
  // All matrices bf16, or f32 multiplied as TF32; f32 accumulation, random contents, with as many copies of W in turn as make more than
  // three times the L2. Not thread-safe. Errors: kUnsupported on a device without CUDA or for another op, kEnvironment when memory runs
  // out, kLaunchFailed with cuBLAS's status.
  Result<Timing> time_product(Device& device, const Problem& problem, Operands operands, int max_samples, double max_seconds) const;

 private:
  struct Api;
  explicit Cublas(std::unique_ptr<Api> api);
  std::unique_ptr<Api> api_;
};

}  // namespace quern::bench

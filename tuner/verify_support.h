// What the checks of float and of integer outputs share; for verify*.cc alone.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "tuner/verify.h"

namespace quern::verification {

inline constexpr double kSampledProducts = 6e7;  // about a tenth of a second of reference work

// Runs body(i) for i in [0, count) on all cores.
template <class Body>
void parallel_for(std::int64_t count, const Body& body) {
  const std::int64_t threads = std::min<std::int64_t>(count, std::max(1u, std::thread::hardware_concurrency()));
  std::atomic<std::int64_t> next{0};
  auto work = [&] {
    for (std::int64_t i = next++; i < count; i = next++) body(i);
  };
  std::vector<std::thread> pool;
  for (std::int64_t t = 1; t < threads; ++t) pool.emplace_back(work);
  work();
  for (auto& thread : pool) thread.join();
}

// Where an output is, and a number, for reasons.
std::string place(const Reference::Output& o, const BenchData& data);
std::string number(double value);
Verification failure(Verdict verdict, std::string reason);
Verification wrong_output(std::int64_t wrong, std::int64_t compared, const std::string& first);
// Equal bits, or both NaN.
bool same_element(DType type, const std::byte* y, std::int64_t at, float right);

// verify_integer.cc: exact outputs of matmul_int8_rows and w4a4, all rows of X by all or by sampled rows of W; those compared; and codes
// with the scales beside them.
Reference integer_outputs(const BenchData& data, double full_limit);
Verification check_integer(const BenchData& data, const Reference& reference, const std::vector<std::byte>& y);
Verification check_codes(const BenchData& data, const std::vector<std::byte>& y, const std::vector<float>& scales);

}  // namespace quern::verification

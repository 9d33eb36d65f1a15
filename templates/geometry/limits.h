// Sizes that host code and kernels agree on.
#pragma once

namespace quern {

inline constexpr int kWarpLanes = 32;
inline constexpr int kSliceWeights = 32;  // weights of one row that one lane holds at a time (templates/decode/README.md)

constexpr long long ceil_div(long long a, long long b) { return (a + b - 1) / b; }
constexpr long long round_up(long long a, long long b) { return ceil_div(a, b) * b; }

}  // namespace quern

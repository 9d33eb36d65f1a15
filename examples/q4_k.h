// A plain quantizer to Q4_K: each run of 32 weights gets the scale and the minimum that just span it, both rounded to 6 bits of the block's
// largest. Real quantizers search for better ones; the format is the same.
//   block of 256 weights: f16 d, f16 dmin, 12 bytes of eight 6-bit scales and minima, 128 bytes of quants
//   weight = d * scale * quant - dmin * minimum
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace quern::examples {

// The nearest f16 to a value in [2^-14, 65504], the range of normal ones.
inline std::uint16_t to_half(double value) {
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);  // [1/2, 1)
  // A rounding up to 2048 runs into the exponent, as it should.
  return static_cast<std::uint16_t>(((exponent + 13) << 10) + std::lrint(fraction * 2048));
}
inline double from_half(std::uint16_t half) { return std::ldexp(1024 + half % 1024, (half >> 10) - 25); }

using Q4KBlock = std::array<std::uint8_t, 144>;

inline Q4KBlock quantize_q4_k_block(std::span<const float, 256> weights) {
  constexpr double kSmallest = 0x1p-14;  // of the f16 that are not denormal
  double spans[8], lows[8];
  for (std::size_t run = 0; run < 8; ++run) {
    const auto part = weights.subspan(run * 32, 32);
    const auto [low, high] = std::minmax_element(part.begin(), part.end());
    lows[run] = std::max(0.0, -static_cast<double>(*low));
    spans[run] = (std::max(0.0, static_cast<double>(*high)) + lows[run]) / 15;
  }
  const std::uint16_t d = to_half(std::max(*std::max_element(spans, spans + 8) / 63, kSmallest));
  const std::uint16_t dmin = to_half(std::max(*std::max_element(lows, lows + 8) / 63, kSmallest));

  Q4KBlock block{};
  block[0] = static_cast<std::uint8_t>(d), block[1] = static_cast<std::uint8_t>(d >> 8);
  block[2] = static_cast<std::uint8_t>(dmin), block[3] = static_cast<std::uint8_t>(dmin >> 8);
  std::uint8_t* packed = block.data() + 4;
  for (std::size_t run = 0; run < 8; ++run) {
    const auto scale = static_cast<std::uint8_t>(std::clamp(std::lrint(spans[run] / from_half(d)), 0L, 63L));
    const auto minimum = static_cast<std::uint8_t>(std::clamp(std::lrint(lows[run] / from_half(dmin)), 0L, 63L));
    if (run < 4) {  // six bits of bytes 0-3 (scales) and 4-7 (minima)
      packed[run] |= scale;
      packed[run + 4] |= minimum;
    } else {  // four bits each in bytes 8-11, the upper two above those of the first four
      packed[run + 4] = static_cast<std::uint8_t>((scale & 15) | (minimum & 15) << 4);
      packed[run - 4] |= static_cast<std::uint8_t>(scale >> 4 << 6);
      packed[run] |= static_cast<std::uint8_t>(minimum >> 4 << 6);
    }
    const double step = from_half(d) * scale;
    for (std::size_t i = 0; i < 32; ++i) {
      const double level = step > 0 ? (weights[run * 32 + i] + from_half(dmin) * minimum) / step : 0;
      const auto quant = static_cast<std::uint8_t>(std::clamp(std::lrint(level), 0L, 15L));
      // Two runs share 32 bytes: the even one in the lower halves.
      block[16 + run / 2 * 32 + i] |= static_cast<std::uint8_t>(quant << (run % 2 * 4));
    }
  }
  return block;
}

// Requires rows of a multiple of 256 weights, one behind the other.
inline std::vector<std::uint8_t> quantize_q4_k(std::span<const float> weights) {
  std::vector<std::uint8_t> blocks;
  for (std::size_t at = 0; at + 256 <= weights.size(); at += 256) {
    const Q4KBlock block = quantize_q4_k_block(weights.subspan(at).first<256>());
    blocks.insert(blocks.end(), block.begin(), block.end());
  }
  return blocks;
}

}  // namespace quern::examples

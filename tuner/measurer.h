// What can prepare data for a problem and measure candidates on one device: in this process (Workbench) or in a child (Worker).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "quern/config.h"
#include "quern/measurement.h"
#include "quern/problem.h"
#include "quern/result.h"
#include "runtime/device.h"

namespace quern {

// Where inputs come from and how they lie in memory. Equal values give equal inputs, in any process.
struct DataOptions {
  std::uint64_t seed = 1;
  bool rotate = false;  // weight copies totalling more than 3x the L2 (at least 2), for timing; else one copy
  // Gaps between rows: elements of X and Y, bytes of W (gguf layout only).
  std::int64_t x_gap = 0;
  std::int64_t y_gap = 0;
  std::int64_t w_gap = 0;
  std::int64_t offset = 0;  // integer ops: bytes past an aligned address at which codes start
  // Real weights: n rows of this tensor from `first_row` on. Empty: random weights.
  std::string gguf_path;
  std::string tensor;
  std::int64_t first_row = 0;
  bool sorted_codebooks = false;  // w4a4: codes in rising order, as quantizers make them; else in no order, -128 and 127 among them

  bool operator==(const DataOptions&) const = default;
};

struct MeasureSettings {
  bool time = true;            // false: verify only
  bool keep_spilling = false;  // do not reject for spills: the default config is measured whatever it is
  int max_samples = 40;
  double max_seconds = 0.2;   // of replays per timing
  double spread_limit = 0.1;  // above it the timing is repeated, then marked unstable
  int repeats = 2;            // how often it is repeated
  // A candidate whose first timing of a single op is above this is not timed further: that figure stands, L2-warm as it is. 0: no limit.
  // At M=2048 the generic kernel takes 400 times as long as the winner: its full timing took longer than the rest of the search.
  double hopeless_us = 0;

  bool operator==(const MeasureSettings&) const = default;
};

class Measurer {
 public:
  virtual ~Measurer() = default;

  // Errors of every method: kEnvironment or kDeviceLost when nothing can be measured here any more, kCancelled when asked to stop. What
  // goes wrong with one candidate is a verdict, not an error.
  virtual Result<DeviceInfo> device() = 0;
  // Makes inputs and references; measure() and compare() refer to the problem prepared last. Preparing the same again costs nothing.
  virtual Status prepare(const Problem& problem, const DataOptions& data) = 0;
  virtual Result<Measurement> measure(const Config& config, const MeasureSettings& settings) = 0;
  // Times several verified candidates interleaved, so that a drift of the clocks meets all alike. One timing each, in order.
  virtual Result<std::vector<Timing>> compare(const std::vector<Config>& configs, const MeasureSettings& settings) = 0;
  // Microseconds of the fastest plain read of so many bytes, on this device, in this run. Absent on the host.
  virtual Result<std::optional<double>> read_ceiling(std::int64_t bytes) = 0;
};

}  // namespace quern

// Measures candidates in this process, on one device: compile through the store, check, verify, time. Not thread-safe.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "cache/store.h"
#include "runtime/compiler.h"
#include "runtime/device.h"
#include "tuner/bench_data.h"
#include "tuner/measurer.h"
#include "tuner/read_ceiling.h"
#include "tuner/verify.h"

namespace quern {

// All borrowed; they outlive the workbench.
struct WorkbenchTools {
  Device* device = nullptr;
  const Compiler* compiler = nullptr;
  cache::Store* store = nullptr;
  std::function<Result<KernelSource>(const Problem&, const Target&, const Config&)> render;
};

class Workbench : public Measurer {
 public:
  explicit Workbench(WorkbenchTools tools) : tools_(std::move(tools)) {}

  Result<DeviceInfo> device() override { return tools_.device->info(); }
  Status prepare(const Problem& problem, const DataOptions& data) override;
  Result<Measurement> measure(const Config& config, const MeasureSettings& settings) override;
  Result<std::vector<Timing>> compare(const std::vector<Config>& configs, const MeasureSettings& settings) override;
  Result<std::optional<double>> read_ceiling(std::int64_t bytes) override;
  // The same of reads that do not overlap: what a plain read takes that begins when the one before it has ended.
  Result<std::optional<double>> plain_read(std::int64_t bytes);

  // A fault took the device context with it: nothing more can be measured in this process.
  bool lost() const { return lost_; }

 private:
  Result<std::unique_ptr<LoadedKernel>> load(const Config& config, bool keep_spilling, Measurement& measurement);
  // Puts a failure into the measurement; an error that concerns more than the candidate is returned.
  Status disqualify(const Error& error, Measurement& measurement);
  Status time_kernel(const LoadedKernel& kernel, const MeasureSettings& settings, Measurement& measurement);
  std::vector<std::vector<Launch>> rotating(const LoadedKernel& kernel) const;

  WorkbenchTools tools_;
  std::unique_ptr<BenchData> data_;
  Reference reference_;
  Result<std::optional<double>> read(std::int64_t bytes, ReadLaunches launches);
  std::map<std::pair<std::int64_t, ReadLaunches>, double> ceilings_;
  bool lost_ = false;
};

}  // namespace quern

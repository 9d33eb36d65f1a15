// A child process that measures candidates on one device, so that a fault, a trap or a hang costs one candidate and not the run.
//
// The child is this executable (or another) started as `executable __worker --device SPEC ...`; it talks over descriptor kWorkerFd, a
// socket whose other end the parent holds. The child ends when that end closes, whatever it is doing, so a killed parent leaves no orphan.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tuner/line_pipe.h"
#include "tuner/measurer.h"
#include "tuner/workbench.h"
#include "tuner/worker_protocol.h"

namespace quern {

inline constexpr int kWorkerFd = 3;
inline constexpr const char* kWorkerCommand = "__worker";

// The child's side. Answers requests on `fd` until it closes; returns the process's exit code. Ignores SIGINT, which a terminal sends to
// the whole group: the parent decides when to end. `opened` is what the child could open, or why it could not; the parent is told either
// way.
int worker_main(int fd, const Result<WorkbenchTools>& opened);

// All that the hidden subcommand does: opens device, compiler and store, then worker_main on kWorkerFd.
struct WorkerStartup {
  std::string device;  // "cuda:N" or "host"
  LibraryPaths paths;
  cache::StoreOptions store;
};
int run_worker(const WorkerStartup& startup);

struct WorkerOptions {
  std::string executable = "/proc/self/exe";
  std::vector<std::string> arguments;       // after the executable's name; {kWorkerCommand, "--device", "cuda:0", ...}
  double start_seconds = 60;                // until the device is open
  double prepare_seconds = 600;             // to make inputs and references
  double candidate_seconds = 30;            // to compile, verify and time one candidate
  const std::atomic<bool>* stop = nullptr;  // becomes true: the call under way returns kCancelled and the child is killed
};

// The parent's side. A child that dies or hangs while measuring gives that candidate the verdict crashed or timed_out; the next call starts
// a fresh child and prepares it again. Not thread-safe; one per device.
class Worker : public Measurer {
 public:
  explicit Worker(WorkerOptions options) : options_(std::move(options)) {}
  ~Worker() override;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // kEnvironment: the child did not start, with what it said.
  Result<DeviceInfo> device() override;
  Status prepare(const Problem& problem, const DataOptions& data) override;
  Result<Measurement> measure(const Config& config, const MeasureSettings& settings) override;
  Result<std::vector<Timing>> compare(const std::vector<Config>& configs, const MeasureSettings& settings) override;
  Result<std::optional<double>> read_ceiling(std::int64_t bytes) override;

  int starts() const { return starts_; }  // children started so far

 private:
  Status ensure_started();
  Status ensure_prepared();
  Result<protocol::Answer> ask(const protocol::Request& request, double seconds);
  // Kills the child if it still runs, and says how it ended: "killed by signal 11 (Segmentation fault)", "exited with code 3".
  std::string end_child();

  WorkerOptions options_;
  int child_ = -1;  // process id; -1: none
  int fd_ = -1;
  std::unique_ptr<LinePipe> pipe_;
  DeviceInfo device_;
  bool prepared_in_child_ = false;
  std::optional<protocol::Prepare> prepared_;
  int starts_ = 0;
};

}  // namespace quern

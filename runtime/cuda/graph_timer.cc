#include "runtime/cuda/graph_timer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

namespace quern::cuda {
namespace {

// Replays in flight before the host waits. The first of each round is not counted: it also measures how late the host enqueued it.
constexpr int kRound = 8;
constexpr int kMinSamples = 5;

// Everything one timing holds on the device.
struct TimerResources {
  const DriverApi& api;
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  std::vector<CUevent> events;  // kRound + 1: one before and one after each replay, shared between neighbours

  explicit TimerResources(const DriverApi& driver) : api(driver) {}
  ~TimerResources() {
    for (CUevent event : events) api.event_destroy(event);
    if (exec != nullptr) api.graph_exec_destroy(exec);
    if (graph != nullptr) api.graph_destroy(graph);
    if (stream != nullptr) api.stream_destroy(stream);
  }
  TimerResources(const TimerResources&) = delete;
  TimerResources& operator=(const TimerResources&) = delete;
};

Status create_stream(PrimaryContext& context, TimerResources& timer) {
  return context.check(context.api().stream_create(&timer.stream, kStreamNonBlocking), "creating the timing stream",
                       ErrorCode::kLaunchFailed);
}

Status capture(PrimaryContext& context, const std::function<Status(Stream)>& enqueue, TimerResources& timer) {
  const DriverApi& api = context.api();
  QUERN_TRY(context.check(api.stream_begin_capture(timer.stream, kCaptureThreadLocal), "starting the capture", ErrorCode::kLaunchFailed));
  Status launched = enqueue(timer.stream);
  const CUresult ended = api.stream_end_capture(timer.stream, &timer.graph);  // also after a failed launch, or the stream stays captured
  QUERN_TRY(std::move(launched));
  QUERN_TRY(context.check(ended, "capturing the timed launches", ErrorCode::kLaunchFailed));
  QUERN_TRY(context.check(api.graph_instantiate(&timer.exec, timer.graph, 0), "instantiating the timing graph", ErrorCode::kLaunchFailed));
  for (int i = 0; i <= kRound; ++i) {
    CUevent event = nullptr;
    QUERN_TRY(context.check(api.event_create(&event, 0), "creating a timing event", ErrorCode::kLaunchFailed));
    timer.events.push_back(event);
  }
  return {};
}

// Replays the graph kRound times and appends the time of each replay but the first, in milliseconds.
Status replay_round(PrimaryContext& context, TimerResources& timer, std::vector<double>& milliseconds) {
  const DriverApi& api = context.api();
  QUERN_TRY(context.check(api.event_record(timer.events[0], timer.stream), "recording a timing event", ErrorCode::kLaunchFailed));
  for (int i = 0; i < kRound; ++i) {
    QUERN_TRY(context.check(api.graph_launch(timer.exec, timer.stream), "replaying the timing graph", ErrorCode::kLaunchFailed));
    QUERN_TRY(context.check(api.event_record(timer.events[i + 1], timer.stream), "recording a timing event", ErrorCode::kLaunchFailed));
  }
  QUERN_TRY(context.check(api.stream_synchronize(timer.stream), "waiting for the timed launches", ErrorCode::kLaunchFailed));
  for (int i = 1; i < kRound; ++i) {
    float elapsed = 0;
    QUERN_TRY(context.check(api.event_elapsed_ms(&elapsed, timer.events[i], timer.events[i + 1]), "reading a timing event",
                            ErrorCode::kLaunchFailed));
    milliseconds.push_back(elapsed);
  }
  return {};
}

}  // namespace

Timing summarize(std::vector<double> us) {
  std::sort(us.begin(), us.end());
  const auto at = [&](double quantile) { return us[static_cast<std::size_t>(std::lround(quantile * static_cast<double>(us.size() - 1)))]; };
  const std::size_t middle = us.size() / 2;
  const double median = us.size() % 2 == 1 ? us[middle] : (us[middle - 1] + us[middle]) / 2;
  return {.us_median = median, .us_p10 = at(0.1), .us_p90 = at(0.9), .samples = static_cast<int>(us.size())};
}

namespace {

Result<Timing> replay(PrimaryContext& context, TimerResources& timer, std::size_t ops, int max_samples, double max_seconds) {
  std::vector<double> warm_up, milliseconds;
  QUERN_TRY(replay_round(context, timer, warm_up));
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  const std::size_t wanted = static_cast<std::size_t>(std::max(max_samples, kMinSamples));
  do {
    QUERN_TRY(replay_round(context, timer, milliseconds));
  } while (milliseconds.size() < wanted && seconds() < max_seconds);
  if (milliseconds.size() > wanted) milliseconds.resize(wanted);
  for (double& value : milliseconds) value = value * 1000 / static_cast<double>(ops);
  return summarize(std::move(milliseconds));
}

}  // namespace

Result<Timing> time_graph(PrimaryContext& context, Device& device, std::span<const std::vector<Launch>> ops, int max_samples,
                          double max_seconds) {
  if (ops.empty()) return Error{ErrorCode::kInvalidArgument, "nothing to time: 0 ops given, at least 1 needed", {}};
  TimerResources timer(context.api());
  QUERN_TRY(create_stream(context, timer));
  const auto enqueue = [&](Stream stream) -> Status {
    for (const auto& op : ops)
      for (const auto& one : op) QUERN_TRY(device.launch(one.function, one.step, one.args, stream));
    return {};
  };
  QUERN_TRY(capture(context, enqueue, timer));
  return replay(context, timer, ops.size(), max_samples, max_seconds);
}

Result<Timing> time_captured(PrimaryContext& context, const std::function<Status(Stream)>& enqueue, std::size_t ops, int max_samples,
                             double max_seconds) {
  if (ops == 0) return Error{ErrorCode::kInvalidArgument, "nothing to time: 0 ops given, at least 1 needed", {}};
  TimerResources timer(context.api());
  QUERN_TRY(create_stream(context, timer));
  QUERN_TRY(enqueue(timer.stream));
  QUERN_TRY(
      context.check(context.api().stream_synchronize(timer.stream), "waiting for the work before it is timed", ErrorCode::kLaunchFailed));
  QUERN_TRY(capture(context, enqueue, timer));
  return replay(context, timer, ops, max_samples, max_seconds);
}

}  // namespace quern::cuda

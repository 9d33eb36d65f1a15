// The child's side of tuner/worker.h.
#include <poll.h>
#include <unistd.h>
#include <csignal>
#include <limits>
#include <new>
#include <thread>

#include "tuner/candidate_source.h"
#include "tuner/worker.h"

namespace quern {
namespace {

constexpr int kExitOk = 0;
constexpr int kExitEnvironment = 3;

// Ends the process a second after the parent's end of the socket closed, even while a kernel hangs. A worker that is idle ends of itself
// before, and closes the store in order: the last one out merges the log into its file.
void end_with_parent(int fd) {
  std::thread([fd] {
    for (;;) {
      pollfd watched{fd, POLLRDHUP, 0};
      if (::poll(&watched, 1, -1) > 0 && (watched.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0) {
        std::this_thread::sleep_for(std::chrono::seconds(1));
        ::_exit(kExitOk);
      }
    }
  }).detach();
}

protocol::Answer answered(Workbench& bench, const protocol::Request& request) {
  using namespace protocol;
  if (auto* r = std::get_if<Prepare>(&request)) {
    auto done = bench.prepare(r->problem, r->data);
    return done ? Answer(Done{}) : Answer(done.error());
  }
  if (auto* r = std::get_if<Measure>(&request)) {
    auto m = bench.measure(r->config, r->settings);
    return m ? Answer(Measured{*m, bench.lost()}) : Answer(m.error());
  }
  if (auto* r = std::get_if<Compare>(&request)) {
    auto timings = bench.compare(r->configs, r->settings);
    return timings ? Answer(Compared{*timings}) : Answer(timings.error());
  }
  auto us = bench.read_ceiling(std::get<Ceiling>(request).bytes);
  return us ? Answer(CeilingFound{*us}) : Answer(us.error());
}

// Inputs and oracle of a problem of any legal size are asked for here, so memory may not suffice.
protocol::Answer answer_to(Workbench& bench, const protocol::Request& request) {
  try {
    return answered(bench, request);
  } catch (const std::bad_alloc&) {
    return protocol::Answer(Error{ErrorCode::kUnsupported, "out of memory: this machine has too little for the problem", {}});
  }
}

Result<std::unique_ptr<Compiler>> open_compiler(const Target& target, const LibraryPaths& paths) {
  return target.kind == Target::Kind::host ? open_host_compiler(paths) : open_nvrtc(paths);
}

}  // namespace

int worker_main(int fd, const Result<WorkbenchTools>& opened) {
  // A signal to the process group is the parent's to act on: a worker that died of it would count as a candidate that crashed, for good.
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
  end_with_parent(fd);
  LinePipe pipe(fd, fd);
  if (!opened) {
    (void)static_cast<bool>(pipe.write(protocol::encode(protocol::Answer(opened.error()))));
    return kExitEnvironment;
  }
  Workbench bench(*opened);
  if (!pipe.write(protocol::encode(protocol::Answer(opened->device->info())))) return kExitOk;
  for (;;) {
    // A deadline is the parent's business; the child waits as long as the parent lives.
    auto line = pipe.read(std::chrono::steady_clock::now() + std::chrono::hours(24 * 365));
    if (!line) return kExitOk;
    auto request = protocol::decode_request(*line);
    const protocol::Answer answer = request ? answer_to(bench, *request) : protocol::Answer(request.error());
    if (!pipe.write(protocol::encode(answer)) || bench.lost()) return kExitOk;
  }
}

int run_worker(const WorkerStartup& startup) {
  auto device = open_device(startup.device, startup.paths);
  if (!device) return worker_main(kWorkerFd, device.error());
  auto compiler = open_compiler((*device)->info().target, startup.paths);
  if (!compiler) return worker_main(kWorkerFd, compiler.error());
  const auto store = cache::Store::open(startup.store);
  return worker_main(kWorkerFd, WorkbenchTools{device->get(), compiler->get(), store.get(), generated_candidates().render});
}

}  // namespace quern

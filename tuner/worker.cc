#include "tuner/worker.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>
#include <cstring>

#include <algorithm>

extern char** environ;

namespace quern {
namespace {

using Clock = std::chrono::steady_clock;

Clock::time_point after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

std::string describe_exit(int status) {
  if (WIFSIGNALED(status)) return "killed by signal " + std::to_string(WTERMSIG(status)) + " (" + strsignal(WTERMSIG(status)) + ")";
  return "exited with code " + std::to_string(WEXITSTATUS(status));
}

// Starts the child with `peer` as kWorkerFd and every other descriptor of this process closed on exec.
Result<int> spawn(const WorkerOptions& options, int peer) {
  std::vector<std::string> words{options.executable};
  words.insert(words.end(), options.arguments.begin(), options.arguments.end());
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, peer, kWorkerFd);
  pid_t child = -1;
  const int failed = posix_spawn(&child, options.executable.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0)
    return Error{ErrorCode::kEnvironment, options.executable + ": cannot be started as a worker: " + std::strerror(failed), {}};
  return static_cast<int>(child);
}

}  // namespace

Worker::~Worker() { end_child(); }

std::string Worker::end_child() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  pipe_.reset();
  prepared_in_child_ = false;
  if (child_ < 0) return "not running";
  int status = 0;
  pid_t ended = 0;
  // A child that died of its own leaves its own status; give it a moment, for a closing socket precedes the end of the process.
  for (int i = 0; i < 1000 && ended == 0; ++i) {
    ended = ::waitpid(child_, &status, WNOHANG);
    if (ended == 0) ::usleep(2000);
  }
  if (ended == 0) {
    ::kill(child_, SIGKILL);
    while (::waitpid(child_, &status, 0) < 0 && errno == EINTR) {
    }
  }
  child_ = -1;
  return describe_exit(status);
}

Status Worker::ensure_started() {
  if (child_ >= 0) return {};
  if (options_.stop != nullptr && options_.stop->load()) return Error{ErrorCode::kCancelled, "worker: asked to stop", {}};
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
    return Error{ErrorCode::kEnvironment, std::string("worker: no socket pair: ") + std::strerror(errno), {}};
  // dup2 onto itself would keep close-on-exec, so the child's end must not have the number it gets there.
  if (pair[1] == kWorkerFd) {
    const int moved = ::fcntl(pair[1], F_DUPFD_CLOEXEC, kWorkerFd + 1);
    ::close(pair[1]);
    pair[1] = moved;
  }
  auto child = spawn(options_, pair[1]);
  ::close(pair[1]);
  if (!child) {
    ::close(pair[0]);
    return child.error();
  }
  child_ = *child;
  fd_ = pair[0];
  pipe_ = std::make_unique<LinePipe>(fd_, fd_);
  ++starts_;
  auto line = pipe_->read(after(options_.start_seconds), options_.stop);
  if (!line) {
    const std::string how = end_child();
    // An interrupt from the terminal reaches a child that does not ignore it yet.
    if (options_.stop != nullptr && options_.stop->load()) return Error{ErrorCode::kCancelled, "worker: asked to stop", {}};
    return Error{ErrorCode::kEnvironment, "worker did not start (" + line.error().message + "; " + how + ")", {}};
  }
  auto hello = protocol::decode_answer(*line);
  if (hello && std::holds_alternative<DeviceInfo>(*hello)) {
    device_ = std::get<DeviceInfo>(*hello);
    return {};
  }
  end_child();
  if (!hello) return hello.error();
  if (auto* error = std::get_if<Error>(&*hello)) return *error;
  return Error{ErrorCode::kCorrupt, "worker: unexpected greeting \"" + *line + "\"", {}};
}

Result<protocol::Answer> Worker::ask(const protocol::Request& request, double seconds) {
  QUERN_TRY(pipe_->write(protocol::encode(request)));
  QUERN_ASSIGN(const std::string line, pipe_->read(after(seconds), options_.stop));
  return protocol::decode_answer(line);
}

Status Worker::ensure_prepared() {
  QUERN_TRY(ensure_started());
  if (!prepared_) return Error{ErrorCode::kInvalidArgument, "measure: nothing was prepared, needed a problem", {}};
  if (prepared_in_child_) return {};
  auto answer = ask(*prepared_, options_.prepare_seconds);
  if (!answer) {
    const std::string how = end_child();
    if (answer.error().code == ErrorCode::kCancelled) return answer.error();
    return Error{ErrorCode::kEnvironment, "worker failed to prepare inputs (" + answer.error().message + "; " + how + ")", {}};
  }
  if (auto* error = std::get_if<Error>(&*answer)) return *error;
  prepared_in_child_ = true;
  return {};
}

Result<DeviceInfo> Worker::device() {
  if (starts_ > 0 && !device_.spec.empty()) return device_;
  QUERN_TRY(ensure_started());
  return device_;
}

Status Worker::prepare(const Problem& problem, const DataOptions& data) {
  if (prepared_ && prepared_->problem == problem && prepared_->data == data && prepared_in_child_) return {};
  prepared_ = protocol::Prepare{problem, data};
  prepared_in_child_ = false;
  return ensure_prepared();
}

Result<Measurement> Worker::measure(const Config& config, const MeasureSettings& settings) {
  QUERN_TRY(ensure_prepared());
  auto answer = ask(protocol::Measure{config, settings}, options_.candidate_seconds);
  Measurement fault;
  fault.config = config;
  if (!answer) {
    if (answer.error().code == ErrorCode::kTimeout) {
      ::kill(child_, SIGKILL);
      end_child();
      fault.verdict = Verdict::timed_out;
      fault.reason = "no answer within " + std::to_string(static_cast<int>(options_.candidate_seconds)) + " s; the worker was killed";
      return fault;
    }
    if (answer.error().code == ErrorCode::kCancelled) ::kill(child_, SIGKILL);
    const std::string how = end_child();
    if (answer.error().code == ErrorCode::kCancelled) return answer.error();
    fault.verdict = Verdict::crashed;
    fault.reason = "the worker " + how;
    return fault;
  }
  if (auto* error = std::get_if<Error>(&*answer)) return *error;
  auto* measured = std::get_if<protocol::Measured>(&*answer);
  if (measured == nullptr) return Error{ErrorCode::kCorrupt, "worker: answered a measurement with something else", {}};
  if (measured->lost) end_child();
  return measured->measurement;
}

Result<std::vector<Timing>> Worker::compare(const std::vector<Config>& configs, const MeasureSettings& settings) {
  QUERN_TRY(ensure_prepared());
  auto answer = ask(protocol::Compare{configs, settings}, options_.candidate_seconds * static_cast<double>(configs.size()));
  if (!answer) {
    ::kill(child_, SIGKILL);
    const std::string how = end_child();
    if (answer.error().code == ErrorCode::kCancelled) return answer.error();
    return Error{ErrorCode::kLaunchFailed, "worker failed while finalists were compared (" + answer.error().message + "; " + how + ")", {}};
  }
  if (auto* error = std::get_if<Error>(&*answer)) return *error;
  auto* compared = std::get_if<protocol::Compared>(&*answer);
  if (compared == nullptr || compared->timings.size() != configs.size())
    return Error{ErrorCode::kCorrupt, "worker: answered a comparison with something else", {}};
  return compared->timings;
}

Result<std::optional<double>> Worker::read_ceiling(std::int64_t bytes) {
  QUERN_TRY(ensure_started());
  auto answer = ask(protocol::Ceiling{bytes}, options_.prepare_seconds);
  if (!answer) {
    ::kill(child_, SIGKILL);
    const std::string how = end_child();
    if (answer.error().code == ErrorCode::kCancelled) return answer.error();
    return Error{
        ErrorCode::kLaunchFailed, "worker failed while the read ceiling was measured (" + answer.error().message + "; " + how + ")", {}};
  }
  if (auto* error = std::get_if<Error>(&*answer)) return *error;
  auto* found = std::get_if<protocol::CeilingFound>(&*answer);
  if (found == nullptr) return Error{ErrorCode::kCorrupt, "worker: answered a read ceiling with something else", {}};
  return found->us;
}

}  // namespace quern

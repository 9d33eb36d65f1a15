// The runtime: open a device, plan a problem, launch it on a stream.
//
//   auto context = quern::Context::open(quern::from_environment());
//   auto plan = context->plan({.op = quern::Op::mul_mat, .type = quern::WeightType::q4_0, .m = 1, .n = 14336, .k = 4096});
//   plan->launch(stream, {.w = {.data = w}, .x = {.data = x}, .y = {.data = y}, .workspace = ws, .workspace_bytes =
//   plan->workspace_bytes()});
//
// Context and Plan are cheap handles: copies share one state, and any thread may use any copy at the same time. A plan keeps its context's
// device alive. None of them may be used in a child process after fork().
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quern/config.h"
#include "quern/kernel.h"
#include "quern/problem.h"
#include "quern/result.h"
#include "quern/target.h"

namespace quern {

// A CUstream on CUDA (null: the legacy default stream); ignored on the host, where launches are synchronous.
using Stream = void*;

struct ContextOptions {
  std::string device = "auto";                        // "cuda:N", "host", or "auto": cuda:0 where there is one, else the host
  std::string cache_directory;                        // the writable store; empty: nothing is read from it or kept
  std::vector<std::string> system_cache_directories;  // read-only stores below it, in order
  std::int64_t cache_max_bytes = std::int64_t{2} << 30;
  std::chrono::milliseconds compile_wait{60000};  // how long to wait for another process that compiles the same kernel
  std::string nvrtc_library;                      // a path, or empty to search
  std::string driver_library;                     // a path, or empty to search
  std::string host_plugin;                        // a path, or empty to search beside the executable
  bool record_launches = false;                   // count launches per kernel; see Context::launch_records
  bool launch_apart = false;  // no launch of a plan begins before the one before it on its stream has ended; see Plan::launch
  std::function<void(const std::string&)> warn;  // one line each; may be called from any thread; empty: silent
};

// The only reader of the environment: QUERN_DEVICE, QUERN_CACHE_DIR (else XDG_CACHE_HOME/quern, else HOME/.cache/quern),
// QUERN_SYSTEM_CACHE_DIRS (separated by ':'), QUERN_NVRTC, QUERN_CUDA_DRIVER, QUERN_HOST_PLUGIN, QUERN_RECORD_LAUNCHES and
// QUERN_LAUNCH_APART (on unless empty or 0). Warnings go to stderr.
ContextOptions from_environment();

// Where a plan's config came from.
enum class Provenance : std::uint8_t {
  exact,      // tuned for this very problem on this kind of device
  nearest,    // tuned for a similar problem on this kind of device
  fallback,   // the default config, untuned
  requested,  // PlanOptions::config
};

constexpr std::string_view to_string(Provenance provenance) {
  switch (provenance) {
    case Provenance::exact:
      return "exact";
    case Provenance::nearest:
      return "nearest";
    case Provenance::fallback:
      return "default";
    case Provenance::requested:
      return "requested";
  }
  return "?";
}

struct PlanOptions {
  bool lazy = false;             // compile and load at Plan::prepare or at the first launch instead of now
  std::optional<Config> config;  // use this config and no other
};

// Shapes may be stated with every launch; what is stated is checked against the plan. Strides of 0 mean dense.
inline constexpr std::int64_t kAsPlanned = -1;

// W[N,K]. Starts at a multiple of 16 bytes (planar), or of the largest power of two up to 16 that divides its block's bytes (gguf).
struct WeightView {
  const void* data = nullptr;
  std::int64_t rows = kAsPlanned;
  std::int64_t columns = kAsPlanned;
  std::int64_t row_bytes = 0;    // gguf layout and codes: bytes between rows (k-major: between columns' bytes), a multiple of the alignment
                                 // above; planar is always dense
  std::int64_t stride2 = 0;      // bytes between matrices in batch dims 2 and 3, multiples of the alignment above; mul_mat_id: dim 2 counts
  std::int64_t stride3 = 0;      // the experts
  const float* scale = nullptr;  // exactly when the problem has a scale: one f32 on the device (mul_mat_id: one per expert)
  const float* row_scales = nullptr;  // matmul_int8_rows: f32[N] on the device
  const void* row_norms = nullptr;    // w4a4: bf16[N] on the device
};

// X[M,K] (out_prod: X[M,N]), aligned to its element. Transposed X: rows and columns as the product sees them, row_stride between its
// columns. mul_mat_id: rows are a token's slots, stride2 is between tokens.
struct InputView {
  const void* data = nullptr;
  std::int64_t rows = kAsPlanned;
  std::int64_t columns = kAsPlanned;
  std::int64_t row_stride = 0;  // elements
  std::int64_t stride2 = 0;     // elements
  std::int64_t stride3 = 0;
  const float* row_scales = nullptr;  // where X are codes, f32[M] on the device: the scales of matmul_int8_rows, the norms of w4a4
};

// Y[M,N] (out_prod: Y[M,K]; dequantize: Y[N,K]; repacking: the other layout's bytes), aligned to its element. mul_mat_id: rows are a
// token's slots, stride2 is between tokens.
struct OutputView {
  void* data = nullptr;
  std::int64_t rows = kAsPlanned;
  std::int64_t columns = kAsPlanned;
  std::int64_t row_stride = 0;  // elements
  std::int64_t stride2 = 0;     // elements
  std::int64_t stride3 = 0;
  float* row_scales =
      nullptr;  // where Y are codes, f32[M] on the device, written: the scales of quantize_rows_int8, the norms of rpbh_quantize
};

// mul_mat_id: i32 ids[M, used] on the device. The output row of an id outside 0..experts-1 is NaN.
struct IdsView {
  const std::int32_t* data = nullptr;
  std::int64_t row_stride = 0;  // elements between tokens
};

// w4a4: what its indices stand for. Codebooks are int8[16] on the device, at any byte offset.
struct CodebookView {
  const std::int8_t* x = nullptr;
  const std::int8_t* w = nullptr;
  float activation_scale = 1;
  float weight_scale = 1;
};

// rpbh_quantize, all on the device: column c of what is turned is X[permutation[c]] * signs[c]. An index outside 0..K-1 counts as K-1.
struct RotationView {
  const std::int32_t* permutation = nullptr;  // [K]
  const std::int8_t* signs = nullptr;         // [K]
  const float* boundaries = nullptr;          // [15], ascending: the index of a value is the number of boundaries that it exceeds
  const std::int8_t* codebook = nullptr;      // [16], exactly when codes are asked for (type i8)
  float epsilon = 0;                          // added to the norm before the division
};

// Device pointers of one launch. They must stay valid until the work on the stream is done. Launches on one stream may share a workspace;
// those on different streams need one each.
struct LaunchArgs {
  WeightView w;
  InputView x;
  OutputView y;
  const void* bias = nullptr;  // [N] (mul_mat_id: [experts,N]), of Y's type; exactly when the problem has a bias
  void* workspace = nullptr;   // Plan::workspace_bytes() bytes, 256-byte aligned, contents arbitrary
  std::size_t workspace_bytes = 0;
  IdsView ids;             // mul_mat_id
  CodebookView codebooks;  // w4a4
  RotationView rotation;   // rpbh_quantize
};

class Plan {
 public:
  const Problem& problem() const;
  const Config& config() const;
  Provenance provenance() const;
  const std::string& reason() const;    // one line: why this config
  const std::string& artifact() const;  // key of the binary, 64 hex digits; empty until compiled
  Accuracy accuracy() const;            // the class that the kernel states it meets
  std::size_t workspace_bytes() const;
  ResourceUsage usage() const;  // zeros until compiled
  bool ready() const;           // compiled and loaded

  // Compiles and loads a lazy plan; does nothing on a ready one. Afterwards config and workspace_bytes may differ: a stored config that no
  // longer compiles gives way to the next best. Errors: those of Context::plan.
  Status prepare() const;

  // What launch() would say of these arguments, without launching: the support query for views. A strided or gapped view that passes is
  // honoured. Reads no memory behind the pointers.
  Status check(const LaunchArgs& args) const;

  // Enqueues the op on `stream`. From sm_90 on it may begin while the launch before it ends, and waits for it inside the kernel. That is
  // not enough after a kernel of another library that lets its successor begin early without waiting for its own predecessor; then
  // ContextOptions::launch_apart is needed. Allocates nothing and synchronizes nothing, so it may be captured into a CUDA graph. When M or
  // N is 0 it succeeds at once, whatever the pointers. Errors: kInvalidArgument naming the argument, the value found and the value needed,
  // also when a lazy plan is not ready while the stream is being captured; kLaunchFailed; kDeviceLost.
  Status launch(Stream stream, const LaunchArgs& args) const;

  struct Impl;
  explicit Plan(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<Impl> impl_;
};

// How often one kernel was launched in this context.
struct LaunchRecord {
  std::string family;
  Config config;
  std::string problem;
  std::string artifact;
  std::uint64_t count = 0;
  std::vector<std::string>
      entries;  // what each launch step runs, in order: the function's name in the loaded module, not what was asked for
};

class Context {
 public:
  // Errors: kEnvironment naming what is missing; kInvalidArgument for a malformed device. A missing compiler is no error here: stored
  // kernels still run, and a plan that needs the compiler says what was looked for.
  static Result<Context> open(const ContextOptions& options);

  const std::string& device_spec() const;  // "cuda:0" or "host"
  const DeviceIdentity& device() const;    // what tunings are filed under
  const Target& target() const;            // what is compiled for

  // Whether a call of this context has met a fault after which nothing runs on the device any more (kDeviceLost): from then on every call
  // that needs the device says so, and only a new process can use the GPU again. Launches are asynchronous: their fault is seen by the next
  // call that hears from the device, such as synchronize. Asks no driver.
  bool is_lost() const;
  // Waits for the work on the stream; not during its capture. Errors: kDeviceLost, kLaunchFailed.
  Status synchronize(Stream stream) const;

  // Whether some kernel answers the problem on this device: exactly then plan() finds one. Compiles nothing. Errors: kInvalidArgument for
  // an impossible problem, kUnsupported with the reasons. What a launch's views may be, Plan::check tells.
  Status supports(const Problem& problem) const;

  // Chooses a config (tuned for this problem, else tuned for the nearest problem on the same kind of device, else the default), compiles it
  // or takes it from the store, and loads it. A tuned config that no longer renders, compiles or loads is dropped from the store with one
  // warning. Errors: kInvalidArgument for an impossible problem, kUnsupported, kCompileFailed with the compiler's log, kEnvironment.
  Result<Plan> plan(const Problem& problem, const PlanOptions& options = {}) const;

  // A plan that repacks W[N,K] from layout `from` into the other one, bit for bit; for use with prepare_weights.
  Result<Plan> plan_prepare_weights(WeightType type, std::int64_t n, std::int64_t k, Layout from = Layout::gguf) const;
  // Enqueues that plan. `destination` may equal `source` (in place) or be apart from it; a partial overlap is an error. Both hold the dense
  // bytes of W; scratch is `plan.workspace_bytes()` bytes.
  Status prepare_weights(Stream stream, const Plan& plan, const void* source, void* destination, void* workspace,
                         std::size_t workspace_bytes) const;

  std::uint64_t compile_count() const;               // kernels that this context had to compile, not those that it found
  std::vector<LaunchRecord> launch_records() const;  // one per plan that launched; empty unless ContextOptions::record_launches

  struct Impl;
  explicit Context(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  Impl& impl() const { return *impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace quern

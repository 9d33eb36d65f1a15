// Multiplies by a quantized matrix: W is 64 x 256 in q8_0, every weight 0.5; X is all ones; so every output is 128.
// On the device "host" pointers are ordinary memory. With "cuda:0" they are device memory, and the stream is a CUstream; nothing else
// changes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <new>
#include <vector>

#include "quern/context.h"

namespace {

// Blocks of 32 weights: an fp16 scale of 0.5, then 32 signed bytes.
std::vector<std::byte> half_everywhere(std::int64_t n, std::int64_t k) {
  std::vector<std::byte> weights;
  for (std::int64_t block = 0; block < n * k / 32; ++block) {
    weights.insert(weights.end(), {std::byte{0x00}, std::byte{0x38}});
    weights.insert(weights.end(), 32, std::byte{1});
  }
  return weights;
}

struct Workspace {
  explicit Workspace(std::size_t size) : bytes(size), data(::operator new (std::max<std::size_t>(size, 1), std::align_val_t{256})) {}
  ~Workspace() { ::operator delete (data, std::align_val_t{256}); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  std::size_t bytes;
  void* data;
};

// README: from here
quern::Status multiply(const quern::Context& context, std::vector<std::byte>& weights, const std::vector<float>& x, std::vector<float>& y) {
  const quern::Problem problem{
      .op = quern::Op::mul_mat, .type = quern::WeightType::q8_0, .layout = quern::Layout::planar, .m = 1, .n = 64, .k = 256};

  // Once: the file's blocks into planes, in place. Same bytes, wide loads.
  QUERN_ASSIGN(const auto repack, context.plan_prepare_weights(problem.type, problem.n, problem.k));
  Workspace scratch(repack.workspace_bytes());
  QUERN_TRY(context.prepare_weights(nullptr, repack, weights.data(), weights.data(), scratch.data, scratch.bytes));

  // Once per problem: the tuned config if the store has one, else the default; compiled, or taken from the store.
  QUERN_ASSIGN(const auto plan, context.plan(problem));
  std::printf("%s: %s (%s)\n", context.device_spec().c_str(), to_string(plan.config()).c_str(), plan.reason().c_str());

  // As often as you like: no allocation, no synchronization, fit for capture in a CUDA graph.
  Workspace workspace(plan.workspace_bytes());
  return plan.launch(nullptr, {.w = {.data = weights.data()},
                               .x = {.data = x.data()},
                               .y = {.data = y.data()},
                               .workspace = workspace.data,
                               .workspace_bytes = workspace.bytes});
}
// README: to here

}  // namespace

int main() {
  quern::ContextOptions options = quern::from_environment();
  options.device = "host";
  const auto context = quern::Context::open(options);
  if (!context) {
    std::fprintf(stderr, "multiply: %s\n", context.error().message.c_str());
    return 3;
  }
  auto weights = half_everywhere(64, 256);
  const std::vector<float> x(256, 1.0f);
  std::vector<float> y(64);
  if (const auto done = multiply(*context, weights, x, y); !done) {
    std::fprintf(stderr, "multiply: %s\n", done.error().message.c_str());
    return 1;
  }
  const bool right = std::all_of(y.begin(), y.end(), [](float value) { return value == 128.0f; });
  std::printf("y[0] = %g, %s\n", static_cast<double>(y[0]), right ? "as expected" : "expected 128 everywhere");
  return right ? 0 : 1;
}

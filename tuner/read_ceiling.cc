#include "tuner/read_ceiling.h"

#include <algorithm>
#include <string>
#include <vector>

#include "generator/source_text.h"
#include "runtime/artifact.h"
#include "tuner/loaded_kernel.h"

namespace quern {
namespace {

constexpr std::int64_t kRounding = 4096;
constexpr std::int64_t kMaxCopies = 1024;

struct Shape {
  int threads;
  int unroll;
};
constexpr Shape kShapes[] = {{256, 1}, {256, 4}, {256, 8}, {512, 2}, {512, 4}, {1024, 1}, {1024, 4}};
constexpr int kBlocksPerSm[] = {1, 2, 4, 8};
constexpr std::size_t kFinalists = 3;

// One launch shape with its grid, and the best median so far.
struct Trial {
  std::size_t step = 0;
  std::int64_t blocks = 0;
  double us = 0;
};

// Grids of whole waves, and the one in which every thread makes exactly one pass.
std::vector<Trial> trials(std::int64_t bytes, int sm_count) {
  std::vector<Trial> out;
  for (std::size_t s = 0; s < std::size(kShapes); ++s) {
    const std::int64_t per_block = std::int64_t{16} * kShapes[s].threads * kShapes[s].unroll;
    const std::int64_t one_pass = std::max<std::int64_t>(1, (bytes + per_block - 1) / per_block);
    out.push_back({s, one_pass, 0});
    for (const int per_sm : kBlocksPerSm) {
      const std::int64_t blocks = std::int64_t{per_sm} * sm_count;
      if (per_sm * kShapes[s].threads <= 2048 && blocks < one_pass) out.push_back({s, blocks, 0});
    }
  }
  return out;
}

class Reader {
 public:
  Reader(Device& device, LoadedKernel& kernel, std::vector<std::byte*> copies, void* word, std::int64_t bytes, ReadLaunches launches)
      : device_(device), kernel_(kernel), copies_(std::move(copies)), word_(word), bytes_(bytes), launches_(launches) {}

  Result<double> time(const Trial& trial, int samples, double seconds) {
    std::vector<std::vector<Launch>> ops;
    for (std::byte* copy : copies_) {
      KernelArgs args{};
      args.w = copy;
      args.y = word_;
      args.n = bytes_;
      args.m = trial.blocks * kShapes[trial.step].threads;
      Launch launch = kernel_.launches(args)[trial.step];
      launch.step.grid.x = static_cast<std::uint32_t>(trial.blocks);
      launch.step.overlaps_previous = launches_ == ReadLaunches::overlapping;
      ops.push_back({launch});
    }
    QUERN_ASSIGN(const Timing t, device_.time(ops, samples, seconds));
    return t.us_median;
  }

 private:
  Device& device_;
  LoadedKernel& kernel_;
  std::vector<std::byte*> copies_;
  void* word_;
  std::int64_t bytes_;
  ReadLaunches launches_;
};

}  // namespace

std::int64_t rounded_read_bytes(std::int64_t bytes) { return std::max(kRounding, bytes / kRounding * kRounding); }

KernelSource read_ceiling_source() {
  SourceText text("read_ceiling", Problem{});
  text.include("families/read_ceiling.cuh");
  for (const Shape& s : kShapes) {
    LaunchStep step;
    step.entry = "quern_read_" + std::to_string(s.threads) + "_" + std::to_string(s.unroll);
    step.block.x = static_cast<std::uint32_t>(s.threads);
    text.kernel(step, 1, "quern::read_ceiling<" + std::to_string(s.threads) + ", " + std::to_string(s.unroll) + ">(args);");
  }
  return std::move(text).finish(0, Accuracy::exact);
}

Result<double> measure_read_ceiling(Device& device, const Compiler& compiler, cache::Store& store, std::int64_t bytes,
                                    ReadLaunches launches) {
  const KernelSource source = read_ceiling_source();
  QUERN_ASSIGN(const Binary binary, get_or_compile(store, compiler, source, compile_target(compiler, device.info().target)));
  QUERN_ASSIGN(auto kernel, LoadedKernel::load(device, source, binary));
  std::int64_t count = std::clamp<std::int64_t>(3 * device.info().l2_bytes / bytes + 1, 2, kMaxCopies);
  auto memory = device.allocate(static_cast<std::size_t>(bytes * count));
  while (!memory && count > 1) {
    count = (count + 1) / 2;
    memory = device.allocate(static_cast<std::size_t>(bytes * count));
  }
  if (!memory) return memory.error();
  QUERN_TRY(device.fill((*memory)->data(), 0x5A, (*memory)->size()));
  QUERN_ASSIGN(auto word, device.allocate(16));
  std::vector<std::byte*> copies;
  for (std::int64_t i = 0; i < count; ++i) copies.push_back(static_cast<std::byte*>((*memory)->data()) + i * bytes);
  Reader reader(device, *kernel, std::move(copies), word->data(), bytes, launches);
  auto all = trials(bytes, std::max(1, device.info().identity.sm_count));
  for (Trial& t : all) {
    QUERN_ASSIGN(t.us, reader.time(t, 10, 0.02));
  }
  std::sort(all.begin(), all.end(), [](const Trial& a, const Trial& b) { return a.us < b.us; });
  double best = all.front().us;
  for (std::size_t i = 0; i < std::min(kFinalists, all.size()); ++i) {
    QUERN_ASSIGN(const double us, reader.time(all[i], 40, 0.1));
    best = std::min(best, us);
  }
  return best;
}

}  // namespace quern

// Runs rendered kernels on the host target over buffers that end where memory ends.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "generator/family.h"
#include "runtime/compiler.h"
#include "runtime/host_device.h"
#include "tuner/loaded_kernel.h"
#include "tuner/oracle.h"
#include "tuner/planar.h"
#include "tuner/random_weights.h"
#include "tuner/verify.h"

namespace quern::test {

inline LibraryPaths plugin_paths() {
  LibraryPaths paths;
  paths.host_plugin = QUERN_HOST_PLUGIN_PATH;
  return paths;
}

// Address space that costs memory only where it is touched and reads as zeros elsewhere.
class SparseBytes {
 public:
  explicit SparseBytes(std::size_t bytes) : bytes_(bytes) {
    data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  ~SparseBytes() {
    if (ok()) munmap(data_, bytes_);
  }
  SparseBytes(const SparseBytes&) = delete;
  SparseBytes& operator=(const SparseBytes&) = delete;
  bool ok() const { return data_ != MAP_FAILED; }
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  std::size_t bytes_;
  void* data_;
};

// `bytes` bytes with a page behind them that faults when touched. They start at a multiple of `alignment`, so that up to alignment - 1
// bytes behind them are accessible too; those are 0xFF.
class ExactBytes {
 public:
  explicit ExactBytes(std::size_t bytes, std::size_t alignment = 16) : size_(bytes) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t room = (bytes + page - 1) / page * page + page;
    map_ = std::make_unique<SparseBytes>(room + page);
    mprotect(map_->data() + room, page, PROT_NONE);
    std::memset(map_->data(), 0xFF, room);
    data_ = map_->data() + (room - bytes) / alignment * alignment;
  }
  ExactBytes(std::span<const std::byte> content, std::size_t alignment = 16) : ExactBytes(content.size(), alignment) {
    if (!content.empty()) std::memcpy(data_, content.data(), content.size());
  }
  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  std::size_t size_;
  std::unique_ptr<SparseBytes> map_;
  std::byte* data_;
};

// The default config and, `more`, two far from it: every parameter that may move is moved, once upwards and once downwards.
inline std::vector<Config> some_configs(const Family& family, const Problem& problem, const Target& target, bool more = true) {
  const SearchSpace space = family.space(problem, target);
  std::vector<Config> configs{space.default_config()};
  for (bool upwards : {true, false}) {
    if (!more) break;
    Config config = space.default_config();
    for (std::size_t i = 0; i < config.values.size(); ++i) {
      auto values = space.parameters()[i].values;
      if (upwards) std::reverse(values.begin(), values.end());
      for (std::int64_t value : values) {
        Config next = config;
        next.values[i].value = value;
        if (value == space.parameters()[i].default_value || !space.check(next)) continue;
        config = next;
        break;
      }
    }
    if (std::find(configs.begin(), configs.end(), config) == configs.end()) configs.push_back(config);
  }
  return configs;
}

class HostTarget : public testing::Test {
 protected:
  void SetUp() override {
    auto device = open_host_device(plugin_paths());
    ASSERT_TRUE(device) << device.error().message;
    auto compiler = open_host_compiler(plugin_paths());
    ASSERT_TRUE(compiler) << compiler.error().message;
    device_ = std::move(*device), compiler_ = std::move(*compiler);
  }

  Result<std::unique_ptr<LoadedKernel>> load(const KernelSource& source) {
    QUERN_ASSIGN(const Binary binary, compiler_->compile(source, Target{}));
    return LoadedKernel::load(*device_, source, binary);
  }
  Result<std::unique_ptr<LoadedKernel>> load(const Problem& problem, const Config& config) {
    QUERN_ASSIGN(const KernelSource source, render(problem, Target{}, config));
    return load(source);
  }

  // Every family that supports a problem, with some of its configs, by two threads; `check` gives what is wrong, or an empty string.
  void for_each_kernel(const std::vector<Problem>& problems, bool more_configs,
                       const std::function<std::string(const Problem&, const Config&)>& check) {
    struct Job {
      Problem problem;
      Config config;
      std::string failure;
    };
    std::vector<Job> jobs;
    for (const Problem& problem : problems)
      for (const Family* family : families_for(problem, Target{}))
        for (const Config& config : some_configs(*family, problem, Target{}, more_configs)) jobs.push_back({problem, config, {}});
    EXPECT_GE(jobs.size(), problems.size());
    std::atomic<std::size_t> next{0};
    auto work = [&] {
      for (std::size_t i = next++; i < jobs.size(); i = next++) jobs[i].failure = check(jobs[i].problem, jobs[i].config);
    };
    std::thread other(work);
    work();
    other.join();
    for (const Job& job : jobs) EXPECT_EQ(job.failure, "") << to_string(job.problem) << " " << to_string(job.config);
  }

  // On random data, poisoned and fenced, against double precision.
  std::string verify_random(const Problem& problem, const Config& config, const DataOptions& options = {}) {
    auto data = BenchData::make(problem, *device_, options);
    if (!data) return data.error().message;
    auto kernel = load(problem, config);
    if (!kernel) return kernel.error().message + kernel.error().log;
    auto result = verify(**kernel, **data, make_reference(**data), (*kernel)->source().accuracy);
    if (!result) return result.error().message;
    return result->verdict == Verdict::ok ? "" : std::string(to_string(result->verdict)) + ": " + result->reason;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Compiler> compiler_;
};

// W in the problem's layout from dense gguf rows.
inline std::vector<std::byte> in_layout(const Problem& p, std::span<const std::byte> rows) {
  if (p.layout == Layout::planar) return gguf_to_planar(p.type, p.n, p.k, rows);
  return {rows.begin(), rows.end()};
}

// Arguments of a plain dense product.
inline KernelArgs dense_args(const Problem& p, const void* w, const void* x, void* y, void* workspace) {
  KernelArgs args{};
  args.w = w, args.x = x, args.y = y, args.workspace = workspace;
  args.m = p.m, args.n = p.n, args.k = p.k;
  args.ldx = x_extent(p).columns, args.ldy = y_extent(p).columns;
  args.w_row_bytes = row_bytes(p.type, p.k);
  args.batch2 = args.batch3 = args.ratio2 = args.ratio3 = 1;
  return args;
}

// Y (f32, [m][n]) against W (gguf rows) and X (dense): finite, each element and all together within the class's bars.
inline std::string compare(const Problem& p, std::span<const std::byte> rows, std::span<const std::byte> x, const float* y,
                           Accuracy accuracy) {
  std::vector<OutputIndex> places;
  for (std::int64_t n = 0; n < p.n; ++n)
    for (std::int64_t m = 0; m < p.m; ++m) places.push_back({m, n});
  const auto right = mul_mat_reference({p.type, rows.data(), p.n, p.k, row_bytes(p.type, p.k)}, {p.x_type, x.data(), p.m, p.k, p.k},
                                       nullptr, DType::f32, places);
  const AccuracyBars bars = accuracy_bars(accuracy);
  double error = 0, energy = 0, squares = 0;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const double got = y[places[i].m * p.n + places[i].n], off = std::abs(got - right[i].value);
    const std::string at = "y[" + std::to_string(places[i].m) + "," + std::to_string(places[i].n) + "] is " + std::to_string(got) +
                           ", needed " + std::to_string(right[i].value);
    if (!std::isfinite(got)) return at;
    // Half a unit in the last place of the f32 output comes on top.
    if (off > bars.worst * right[i].absolute_sum + std::abs(right[i].value) * 0x1p-24) return at;
    error += off * off, energy += right[i].value * right[i].value, squares += right[i].square_sum;
  }
  const double nmse = error / std::max(energy, squares);
  const double bar = bars.nmse * (accuracy > Accuracy::f32 ? 1 + 4 * std::sqrt(2.0 / static_cast<double>(places.size())) : 1);
  return nmse <= bar ? "" : "nmse is " + std::to_string(nmse * 1e9) + "e-9, needed at most " + std::to_string(bar * 1e9) + "e-9";
}

}  // namespace quern::test

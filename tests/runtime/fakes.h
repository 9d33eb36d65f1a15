// Doubles for what a context is made of: a device without a GPU, a compiler without a toolchain, a store without a file, and two made-up
// kernels. They keep what was asked of them, and can be told to fail.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/context_parts.h"

namespace quern::test {

class HeapBuffer final : public Buffer {
 public:
  explicit HeapBuffer(std::size_t bytes) : bytes_(bytes) {}
  void* data() const override { return const_cast<std::byte*>(bytes_.data()); }
  std::size_t size() const override { return bytes_.size(); }

 private:
  std::vector<std::byte> bytes_;
};

// A module knows its entries by name; the handle of each is the address of its name.
class FakeModule final : public Module {
 public:
  explicit FakeModule(std::set<std::string> entries) : entries_(std::move(entries)) {}
  Result<Function> function(const std::string& entry, std::uint32_t) override {
    const auto found = entries_.find(entry);
    if (found == entries_.end()) return Error{ErrorCode::kInvalidArgument, "no entry " + entry, {}};
    return Function{const_cast<std::string*>(&*found)};
  }
  std::string loaded_name(Function function) const override {
    ++names_asked;
    return can_name ? "loaded_" + *static_cast<const std::string*>(function.handle) : std::string();
  }
  inline static bool can_name = true;
  inline static std::atomic<int> names_asked{0};

 private:
  std::set<std::string> entries_;
};

struct FakeDevice final : Device {
  struct Launched {
    std::string entry;
    KernelArgs args;
    Stream stream;
  };
  DeviceInfo device_info;
  std::vector<Launched> launches;
  std::vector<Stream> waited_for;
  std::set<std::string> refused_binaries;  // texts whose binaries do not load
  bool keep_launches = true;
  int overlapping = 0;  // launches that may overlap the one before them
  bool capturing = false;
  bool lost = false;

  FakeDevice() {
    device_info.spec = "cuda:0";
    device_info.target = {Target::Kind::cuda, 90, true};
    device_info.identity = {"Fake GPU", 132, 140 * 1024, 2000, "sm_90a"};
  }

  const DeviceInfo& info() const override { return device_info; }
  Result<std::unique_ptr<Buffer>> allocate(std::size_t bytes) override {
    return std::unique_ptr<Buffer>(std::make_unique<HeapBuffer>(bytes));
  }
  Status copy_to_device(void* d, const void* s, std::size_t n) override { return std::memcpy(d, s, n), Status(); }
  Status copy_to_host(void* d, const void* s, std::size_t n) override { return std::memcpy(d, s, n), Status(); }
  Status copy_on_device(void* d, const void* s, std::size_t n) override { return std::memmove(d, s, n), Status(); }
  Status fill(void* d, unsigned char v, std::size_t n) override { return std::memset(d, v, n), Status(); }
  Result<std::unique_ptr<Module>> load(const Binary& binary) override {
    const std::string text(reinterpret_cast<const char*>(binary.bytes.data()), binary.bytes.size());
    if (refused_binaries.contains(text)) return Error{ErrorCode::kCorrupt, "the device refuses this binary", {}};
    return std::unique_ptr<Module>(std::make_unique<FakeModule>(std::set<std::string>{"quantize", "multiply"}));
  }
  Status launch(Module::Function function, const LaunchStep& step, const KernelArgs& args, Stream stream) override {
    if (lost) return Error{ErrorCode::kDeviceLost, "the device is lost", {}};
    overlapping += step.overlaps_previous ? 1 : 0;
    if (keep_launches) launches.push_back({*static_cast<const std::string*>(function.handle), args, stream});
    return {};
  }
  Status synchronize(Stream stream) override {
    waited_for.push_back(stream);
    if (lost) return Error{ErrorCode::kDeviceLost, "the device is lost", {}};
    return {};
  }
  Result<Timing> time(std::span<const std::vector<Launch>>, int, double) override { return Timing{}; }
  Result<Stream> create_stream() override { return Stream{nullptr}; }
  Status destroy_stream(Stream) override { return {}; }
  bool is_lost() const override { return lost; }
  bool is_capturing(Stream) override { return capturing; }
};

// The "binary" of a source is its text.
struct FakeCompiler final : Compiler {
  std::string name = "fake 1.0";
  std::set<std::string> refused;  // texts that do not compile
  int newest_exact = 120;
  std::chrono::milliseconds delay{0};  // how long each compile takes
  mutable std::atomic<int> compiles{0};

  std::string identity() const override { return name; }
  Status supports(const Target& target) const override {
    if (target.exact_arch && target.sm > newest_exact) return Error{ErrorCode::kUnsupported, "too new", {}};
    return {};
  }
  Result<Binary> compile(const KernelSource& source, const Target&) const override {
    ++compiles;
    std::this_thread::sleep_for(delay);
    if (refused.contains(source.text)) return Error{ErrorCode::kCompileFailed, source.name + ": refused", "line 1: the whole log"};
    Binary binary;
    binary.bytes.resize(source.text.size());
    std::memcpy(binary.bytes.data(), source.text.data(), source.text.size());
    binary.usage = {.registers = 40, .static_shared_bytes = 128, .local_bytes = 0, .spill_bytes = 8};
    binary.log = "fine";
    return binary;
  }
};

// Everything in memory. `failing`: reads miss, writes are dropped, as the contract of cache::Store has it.
struct FakeStore final : cache::Store {
  bool failing = false;
  std::map<cache::Key, cache::Artifact> artifacts;
  std::map<cache::TuningKey, cache::Winner> winner_rows;
  std::vector<cache::TuningKey> dropped;

  std::optional<cache::Artifact> find_artifact(const cache::Key& key) override {
    const auto found = artifacts.find(key);
    if (failing || found == artifacts.end()) return std::nullopt;
    return found->second;
  }
  bool put_artifact(const cache::Key& key, const cache::Artifact& artifact) override {
    if (!failing) artifacts[key] = artifact;
    return !failing;
  }
  Result<cache::Artifact> find_or_make(const cache::Key& key, const std::function<Result<cache::Artifact>()>& make, bool* made) override {
    if (auto found = find_artifact(key)) return *made = false, std::move(*found);
    *made = true;
    auto result = make();
    if (result) put_artifact(key, *result);
    return result;
  }
  std::vector<cache::StoredMeasurement> measurements(const cache::TuningKey&) override { return {}; }
  bool put_measurement(const cache::StoredMeasurement&) override { return !failing; }
  std::optional<cache::Winner> find_winner(const cache::TuningKey& key) override {
    const auto found = winner_rows.find(key);
    if (failing || found == winner_rows.end()) return std::nullopt;
    return found->second;
  }
  bool put_winner(const cache::Winner& winner) override {
    if (!failing) winner_rows[winner.key] = winner;
    return !failing;
  }
  bool drop_winner(const cache::TuningKey& key) override {
    dropped.push_back(key);
    return winner_rows.erase(key) > 0;
  }
  std::vector<cache::Winner> winners(std::string_view device, std::string_view version) override {
    std::vector<cache::Winner> all;
    for (const auto& [key, winner] : winner_rows)
      if (!failing && (device.empty() || key.device == device) && (version.empty() || key.generator_version == version))
        all.push_back(winner);
    return all;
  }
};

// Two made-up families: "plain" needs no scratch; "fast:tile=T" is two steps with scratch, and only for tiles that divide N.
inline Config plain_config() { return {"plain", {}}; }
inline Config fast_config(std::int64_t tile) { return {"fast", {{"tile", tile}}}; }

inline Result<KernelSource> fake_render(const Problem& problem, const Target& target, const Config& config) {
  KernelSource source;
  source.name = config.family + " " + std::string(to_string(problem.type));
  source.text = to_string(problem) + " " + to_string(config) + " " + to_string(target);
  source.accuracy = problem.accuracy;
  if (config.family == "plain") {
    source.steps = {{.entry = "multiply", .overlaps_previous = true}};
    return source;
  }
  const auto tile = config.find("tile");
  if (config.family != "fast" || !tile || *tile <= 0) return Error{ErrorCode::kInvalidArgument, "no family " + config.family, {}};
  if (problem.n % *tile != 0) return Error{ErrorCode::kUnsupported, "tile=" + std::to_string(*tile) + " does not divide N", {}};
  source.steps = {{.entry = "quantize", .overlaps_previous = true}, {.entry = "multiply", .overlaps_previous = true}};
  source.workspace_bytes = 1024;
  if (*tile == 7) source.accuracy = Accuracy::loose;
  return source;
}

struct FakeContext {
  FakeDevice* device = nullptr;      // owned by the context
  FakeCompiler* compiler = nullptr;  // owned by the context
  FakeStore* store = nullptr;        // owned by the context
  std::shared_ptr<std::vector<std::string>> warnings = std::make_shared<std::vector<std::string>>();
  std::optional<Context> context;

  Context* operator->() { return &*context; }

  cache::TuningKey key(const Problem& problem) const {
    return {to_string(problem), to_string(device->device_info.identity), kGeneratorVersion};
  }
  void tune(const Problem& problem, const Config& config) { store->put_winner({key(problem), config, 10.0, {}, 0}); }
};

struct FakeSetup {
  bool with_compiler = true;
  bool record_launches = false;
  bool launch_apart = false;
  int sm = 90;
};

inline FakeContext make_fake_context(FakeSetup setup = {}) {
  FakeContext fake;
  auto device = std::make_unique<FakeDevice>();
  auto compiler = std::make_unique<FakeCompiler>();
  auto store = std::make_unique<FakeStore>();
  device->device_info.target.sm = setup.sm;
  fake.device = device.get(), fake.compiler = compiler.get(), fake.store = store.get();
  ContextParts parts;
  parts.device = std::move(device), parts.store = std::move(store);
  if (setup.with_compiler)
    parts.compiler = std::move(compiler);
  else
    fake.compiler = nullptr, parts.compiler_missing = {ErrorCode::kEnvironment, "NVRTC not found: looked for nowhere", {}};
  parts.kernels = {[](const Problem&, const Target&) { return plain_config(); }, fake_render};
  parts.record_launches = setup.record_launches;
  parts.launch_apart = setup.launch_apart;
  parts.warn = [warnings = fake.warnings](const std::string& line) { warnings->push_back(line); };
  fake.context = make_context(std::move(parts));
  return fake;
}

}  // namespace quern::test

#include "tests/tuner/planted.h"

#include <fcntl.h>
#include <unistd.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "tuner/oracle.h"

namespace quern::planted {
namespace {

class PlantedFamily : public Family {
 public:
  PlantedFamily(std::string name, std::vector<std::int64_t> behaviours, std::vector<std::int64_t> us)
      : name_(std::move(name)), behaviours_(std::move(behaviours)), us_(std::move(us)) {}
  std::string_view name() const override { return name_; }
  Status supports(const Problem& p, const Target&) const override {
    if (p.op == Op::mul_mat) return {};
    return Error{ErrorCode::kUnsupported, "planted: mul_mat only", {}};
  }
  SearchSpace space(const Problem&, const Target&) const override {
    return {name_, {{"behaviour", behaviours_, behaviours_.front()}, {"us", us_, us_.front()}}};
  }
  Result<KernelSource> render(const Problem&, const Target&, const Config& c) const override {
    KernelSource s;
    s.name = name_;
    s.text = std::to_string(*c.find("behaviour")) + " " + std::to_string(*c.find("us")) + " " + name_;
    s.steps.push_back({"entry", {}, {}, 0});
    s.workspace_bytes = 64;
    s.accuracy = Accuracy::f32;
    if (*c.find("behaviour") == kSloppy) s.accuracy = Accuracy::loose;
    return s;
  }

 private:
  std::string name_;
  std::vector<std::int64_t> behaviours_, us_;
};

class PlantedCompiler : public Compiler {
 public:
  std::string identity() const override { return "planted 1"; }
  Status supports(const Target&) const override { return {}; }
  Result<Binary> compile(const KernelSource& source, const Target&) const override {
    if (source.text.starts_with(std::to_string(kCompileFails) + " "))
      return Error{ErrorCode::kCompileFailed, "planted: does not compile", "log"};
    Binary b;
    b.format = Binary::Format::host_object;
    b.bytes.resize(source.text.size());
    std::memcpy(b.bytes.data(), source.text.data(), source.text.size());
    return b;
  }
};

class PlantedBuffer : public Buffer {
 public:
  explicit PlantedBuffer(std::size_t bytes) : data_(std::aligned_alloc(256, (bytes + 255) / 256 * 256)), size_(bytes) {}
  ~PlantedBuffer() override { std::free(data_); }
  void* data() const override { return data_; }
  std::size_t size() const override { return size_; }

 private:
  void* data_;
  std::size_t size_;
};

class PlantedModule : public Module {
 public:
  explicit PlantedModule(std::string text) : text_(std::move(text)) {}
  Result<Function> function(const std::string&, std::uint32_t) override { return Function{&text_}; }
  std::string loaded_name(Function) const override { return "planted"; }

 private:
  std::string text_;
};

// The first `count` outputs, row after row; the rest is not touched.
void compute(const KernelArgs& a, std::int64_t count) {
  const WeightRows w{WeightType::q4_0, static_cast<const std::byte*>(a.w), a.n, a.k, a.w_row_bytes};
  const ActivationRows x{DType::f32, static_cast<const std::byte*>(a.x), a.m, a.k, a.ldx};
  std::vector<OutputIndex> all;
  for (std::int64_t n = 0; n < a.n; ++n)
    for (std::int64_t m = 0; m < a.m; ++m) all.push_back({m, n});
  const auto values = mul_mat_reference(w, x, nullptr, DType::f32, all);
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].m * a.n + all[i].n < count) static_cast<float*>(a.y)[all[i].m * a.ldy + all[i].n] = static_cast<float>(values[i].value);
}

// How much an output of this problem may be expected to be off by at 100%.
float scale_of(const KernelArgs& a, std::int64_t m, std::int64_t n) {
  const WeightRows w{WeightType::q4_0, static_cast<const std::byte*>(a.w), a.n, a.k, a.w_row_bytes};
  const ActivationRows x{DType::f32, static_cast<const std::byte*>(a.x), a.m, a.k, a.ldx};
  const OutputIndex at{m, n};
  return static_cast<float>(mul_mat_reference(w, x, nullptr, DType::f32, {&at, 1})[0].absolute_sum);
}

class PlantedDevice : public Device {
 public:
  explicit PlantedDevice(std::string log_path) : log_path_(std::move(log_path)) {
    info_.spec = "planted";
    info_.identity.name = "planted device";
    info_.identity.architecture = "host";
  }
  const DeviceInfo& info() const override { return info_; }
  Result<std::unique_ptr<Buffer>> allocate(std::size_t bytes) override { return std::unique_ptr<Buffer>(new PlantedBuffer(bytes)); }
  Status copy_to_device(void* to, const void* from, std::size_t bytes) override { return copy(to, from, bytes); }
  Status copy_to_host(void* to, const void* from, std::size_t bytes) override { return copy(to, from, bytes); }
  Status copy_on_device(void* to, const void* from, std::size_t bytes) override { return copy(to, from, bytes); }
  Status fill(void* to, unsigned char value, std::size_t bytes) override {
    std::memset(to, value, bytes);
    return {};
  }
  Result<std::unique_ptr<Module>> load(const Binary& binary) override {
    return std::unique_ptr<Module>(new PlantedModule(std::string(reinterpret_cast<const char*>(binary.bytes.data()), binary.bytes.size())));
  }
  Status launch(Module::Function function, const LaunchStep&, const KernelArgs& args, Stream) override {
    const std::string& text = *static_cast<const std::string*>(function.handle);
    log(text);
    const auto behaviour = std::strtoll(text.c_str(), nullptr, 10);
    if (behaviour == kLaunchFails) return Error{ErrorCode::kLaunchFailed, "planted: launch refused", {}};
    if (behaviour == kDeviceLost) return Error{ErrorCode::kDeviceLost, "planted: device lost", {}};
    if (behaviour == kCrash) {
      std::signal(SIGSEGV, SIG_DFL);  // a sanitizer would turn the fault into an exit
      std::raise(SIGSEGV);
    }
    while (behaviour == kHang) ::usleep(10000);
    compute(args, behaviour == kHalfOutput ? args.m * args.n / 2 : args.m * args.n);
    spoil(behaviour, args);
    return {};
  }
  Status synchronize(Stream) override { return {}; }
  Result<Timing> time(std::span<const std::vector<Launch>> ops, int, double) override {
    const std::string& text = *static_cast<const std::string*>(ops.front().front().function.handle);
    const auto space = text.find(' ');
    const double us = std::strtod(text.c_str() + space, nullptr);
    const bool noisy = std::strtoll(text.c_str(), nullptr, 10) == kNoisy;
    return Timing{us, noisy ? us * 0.7 : us, noisy ? us * 1.3 : us, 10};
  }
  Result<Stream> create_stream() override { return Stream{}; }
  Status destroy_stream(Stream) override { return {}; }

 private:
  static Status copy(void* to, const void* from, std::size_t bytes) {
    std::memcpy(to, from, bytes);
    return {};
  }

  // One write of a whole line at the end of the file: children that are killed leave whole lines.
  void log(const std::string& text) const {
    if (log_path_.empty()) return;
    const int fd = ::open(log_path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    const std::string line = text + "\n";
    if (::write(fd, line.data(), line.size()) < 0) std::abort();
    ::close(fd);
  }

  static void spoil(std::int64_t behaviour, const KernelArgs& a) {
    auto* y = static_cast<float*>(a.y);
    const std::int64_t last = (a.m - 1) * a.ldy + a.n - 1;
    if (behaviour == kGapWrite) y[a.n] = 0;
    if (behaviour == kFenceWrite) *reinterpret_cast<unsigned char*>(y + last + 1) = 0;
    if (behaviour == kWorkspaceFence) *(static_cast<unsigned char*>(a.workspace) - 1) = 0;
    if (behaviour == kWrongElement) y[last] += 0.1f * scale_of(a, a.m - 1, a.n - 1);
    if (behaviour == kNan) y[0] = std::numeric_limits<float>::quiet_NaN();
    if (behaviour == kReadsWorkspace) y[0] += *static_cast<float*>(a.workspace);
    if (behaviour == kSloppy)
      for (std::int64_t m = 0; m < a.m; ++m)
        for (std::int64_t n = 0; n < a.n; ++n) y[m * a.ldy + n] += 0.02f * scale_of(a, m, n);
  }

  std::string log_path_;
  DeviceInfo info_;
};

}  // namespace

std::unique_ptr<Family> family(std::vector<std::int64_t> behaviours, std::vector<std::int64_t> us, std::string name) {
  return std::make_unique<PlantedFamily>(std::move(name), std::move(behaviours), std::move(us));
}
Config config(std::int64_t behaviour, std::int64_t us, const std::string& name) {
  return Config{name, {{"behaviour", behaviour}, {"us", us}}};
}

CandidateSource source(std::vector<const Family*> families) {
  return CandidateSource{[families](const Problem&, const Target&) { return families; },
                         [families](const Problem& p, const Target& t) { return families.front()->space(p, t).default_config(); },
                         [families](const Problem& p, const Target& t, const Config& c) -> Result<KernelSource> {
                           for (const Family* f : families)
                             if (f->name() == c.family) return f->render(p, t, c);
                           return Error{ErrorCode::kInvalidArgument, "no family " + c.family, {}};
                         }};
}

std::unique_ptr<Compiler> compiler() { return std::make_unique<PlantedCompiler>(); }
std::unique_ptr<Device> device(std::string log_path) { return std::make_unique<PlantedDevice>(std::move(log_path)); }

Problem problem(std::int64_t m, std::int64_t n, std::int64_t k) {
  Problem p;
  p.type = WeightType::q4_0;
  p.layout = Layout::gguf;
  p.m = m;
  p.n = n;
  p.k = k;
  return p;
}

}  // namespace quern::planted

// NVRTC, opened at run time: rendered text to a cubin for one architecture, or to PTX for a GPU newer than the NVRTC at hand.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "runtime/compiler.h"
#include "runtime/cuda/resource_usage.h"
#include "runtime/library.h"

namespace quern {
namespace {

using NvrtcProgram = struct NvrtcProgramState*;
using NvrtcResult = int;
constexpr NvrtcResult kNvrtcSuccess = 0;
constexpr NvrtcResult kNvrtcCompilation = 6;

// name of the member, exported symbol, parameters
#define QUERN_NVRTC_FUNCTIONS(F)                                                                                          \
  F(version, "nvrtcVersion", (int*, int*))                                                                                \
  F(arch_count, "nvrtcGetNumSupportedArchs", (int*))                                                                      \
  F(arch_list, "nvrtcGetSupportedArchs", (int*))                                                                          \
  F(create, "nvrtcCreateProgram", (NvrtcProgram*, const char*, const char*, int, const char* const*, const char* const*)) \
  F(destroy, "nvrtcDestroyProgram", (NvrtcProgram*))                                                                      \
  F(compile, "nvrtcCompileProgram", (NvrtcProgram, int, const char* const*))                                              \
  F(log_size, "nvrtcGetProgramLogSize", (NvrtcProgram, std::size_t*))                                                     \
  F(log, "nvrtcGetProgramLog", (NvrtcProgram, char*))                                                                     \
  F(cubin_size, "nvrtcGetCUBINSize", (NvrtcProgram, std::size_t*))                                                        \
  F(cubin, "nvrtcGetCUBIN", (NvrtcProgram, char*))                                                                        \
  F(ptx_size, "nvrtcGetPTXSize", (NvrtcProgram, std::size_t*))                                                            \
  F(ptx, "nvrtcGetPTX", (NvrtcProgram, char*))

struct NvrtcApi {
#define QUERN_NVRTC_MEMBER(name, symbol, parameters) NvrtcResult(*name) parameters = nullptr;
  QUERN_NVRTC_FUNCTIONS(QUERN_NVRTC_MEMBER)
#undef QUERN_NVRTC_MEMBER
  const char* (*error_string)(NvrtcResult) = nullptr;

  int major = 0, minor = 0;
  std::vector<int> archs;  // ascending; compute capability times ten
};

// A directory `nvrtc` beside the executable is where setup puts the libraries of NVIDIA's Python wheel on machines without a CUDA toolkit.
std::vector<std::string> nvrtc_candidates(const std::string& path) {
  if (!path.empty()) return {path};
  std::vector<std::string> candidates;
  const auto add = [&](const std::string& directory) {
    for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"}) candidates.push_back(directory + name);
  };
  if (const auto own = executable_directory(); !own.empty()) {
    add(own + "/nvrtc/");
    add(own + "/../nvrtc/");  // tests and examples live one folder below the command
  }
  add("");
  add("/usr/local/cuda/lib64/");
  return candidates;
}

// NVRTC opens its builtins library by its plain name. Loading the file beside it first makes that name resolve wherever NVRTC lies.
void load_builtins_beside(const std::string& nvrtc_path) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(nvrtc_path).parent_path(), error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("libnvrtc-builtins.so.")) (void)Library::open("the NVRTC builtins", {entry.path().string()});
  }
}

Result<NvrtcApi> load_api(const Library& library) {
  NvrtcApi api;
  const auto missing = [&](const char* name) {
    return Error{ErrorCode::kEnvironment, "NVRTC " + library.path() + " lacks " + name + ": NVRTC 11.2 or newer is needed", {}};
  };
#define QUERN_NVRTC_LOAD(name, symbol_name, parameters)                         \
  api.name = reinterpret_cast<decltype(api.name)>(library.symbol(symbol_name)); \
  if (api.name == nullptr) return missing(symbol_name);
  QUERN_NVRTC_FUNCTIONS(QUERN_NVRTC_LOAD)
#undef QUERN_NVRTC_LOAD
  api.error_string = reinterpret_cast<decltype(api.error_string)>(library.symbol("nvrtcGetErrorString"));
  if (api.error_string == nullptr) return missing("nvrtcGetErrorString");
  int count = 0;
  if (api.version(&api.major, &api.minor) != kNvrtcSuccess || api.arch_count(&count) != kNvrtcSuccess || count <= 0)
    return Error{ErrorCode::kEnvironment, "NVRTC " + library.path() + " does not answer which architectures it supports", {}};
  api.archs.resize(count);
  api.arch_list(api.archs.data());
  std::sort(api.archs.begin(), api.archs.end());
  return api;
}

// What to ask NVRTC for. `sm` is the newest architecture it knows that is not newer than the target.
struct ArchChoice {
  int sm = 0;
  Binary::Format format = Binary::Format::cubin;
};

std::string arch_option(const ArchChoice& choice, const Target& target) {
  if (choice.format == Binary::Format::ptx) return "-arch=compute_" + std::to_string(choice.sm);
  return "-arch=" + to_string(target);
}

// First line of the log that reports an error; the rest stays in Error::log. Assembler errors are named as such, not quoted.
std::string first_error(std::string_view log) {
  for (std::size_t at = 0; at < log.size();) {
    const auto end = std::min(log.find('\n', at), log.size());
    const std::string_view line = log.substr(at, end - at);
    at = end + 1;
    if (line.starts_with("ptxas")) return "the assembler does not accept the generated code for this architecture (see the log)";
    if (line.find("error") != std::string_view::npos) return std::string(line);
  }
  return "the compiler gives no reason";
}

class NvrtcCompiler final : public Compiler {
 public:
  NvrtcCompiler(NvrtcApi api, std::string location) : api_(std::move(api)), location_(std::move(location)) {}

  std::string identity() const override { return "nvrtc " + std::to_string(api_.major) + "." + std::to_string(api_.minor); }

  std::string location() const override { return location_; }
  std::vector<int> architectures() const override { return api_.archs; }

  Status supports(const Target& target) const override {
    if (auto choice = choose(target); !choice) return std::move(choice.error());
    return {};
  }

  Result<Binary> compile(const KernelSource& source, const Target& target) const override;

 private:
  Result<ArchChoice> choose(const Target& target) const;
  std::vector<std::string> options_for(const KernelSource& source, const ArchChoice& choice, const Target& target) const;
  std::string read_log(NvrtcProgram program) const;
  Result<Binary> finish(NvrtcProgram program, const KernelSource& source, const ArchChoice& choice) const;
  Error failure(NvrtcResult result, const KernelSource& source, const Target& target, std::string log) const;

  NvrtcApi api_;
  std::string location_;
};

Result<ArchChoice> NvrtcCompiler::choose(const Target& target) const {
  const std::string range = "sm_" + std::to_string(api_.archs.front()) + " to sm_" + std::to_string(api_.archs.back());
  const auto unsupported = [&](const std::string& why) {
    return Error{
        ErrorCode::kUnsupported, identity() + " cannot compile for " + to_string(target) + ": " + why + " (it knows " + range + ")", {}};
  };
  if (target.kind != Target::Kind::cuda) return unsupported("not a CUDA architecture");
  if (target.sm < api_.archs.front()) return unsupported("too old");
  if (std::binary_search(api_.archs.begin(), api_.archs.end(), target.sm)) {
    if (target.exact_arch && target.sm < 90) return unsupported("architecture-specific features begin with sm_90a");
    return ArchChoice{target.sm, Binary::Format::cubin};
  }
  if (target.exact_arch) return unsupported("architecture-specific code needs an NVRTC that knows this architecture");
  return ArchChoice{*std::prev(std::upper_bound(api_.archs.begin(), api_.archs.end(), target.sm)), Binary::Format::ptx};
}

std::vector<std::string> NvrtcCompiler::options_for(const KernelSource& source, const ArchChoice& choice, const Target& target) const {
  std::vector<std::string> options = {arch_option(choice, target), "-std=c++20", "-default-device"};
  if (choice.format == Binary::Format::cubin) options.push_back("--ptxas-options=-v");
  // Without a fixed seed some symbol names are random; NVRTC's own cache would hide what a compile costs.
  if (api_.major * 100 + api_.minor >= 1209) options.insert(options.end(), {"--frandom-seed=1", "--no-cache", "--no-source-include"});
  options.insert(options.end(), source.options.begin(), source.options.end());
  return options;
}

std::string NvrtcCompiler::read_log(NvrtcProgram program) const {
  std::size_t size = 0;
  if (api_.log_size(program, &size) != kNvrtcSuccess || size <= 1) return {};
  std::string log(size, '\0');
  if (api_.log(program, log.data()) != kNvrtcSuccess) return {};
  log.resize(size - 1);  // the size counts the terminator
  return log;
}

Error NvrtcCompiler::failure(NvrtcResult result, const KernelSource& source, const Target& target, std::string log) const {
  const std::string what = source.name + " for " + to_string(target) + " with " + identity();
  if (result != kNvrtcCompilation) return {ErrorCode::kCompileFailed, what + ": " + api_.error_string(result), std::move(log)};
  return {ErrorCode::kCompileFailed, what + ": " + first_error(log), std::move(log)};
}

Result<Binary> NvrtcCompiler::finish(NvrtcProgram program, const KernelSource& source, const ArchChoice& choice) const {
  const bool cubin = choice.format == Binary::Format::cubin;
  Binary binary;
  binary.format = choice.format;
  binary.log = read_log(program);
  std::size_t size = 0;
  NvrtcResult result = (cubin ? api_.cubin_size : api_.ptx_size)(program, &size);
  if (result == kNvrtcSuccess && size > 0) {
    binary.bytes.resize(size);
    result = (cubin ? api_.cubin : api_.ptx)(program, reinterpret_cast<char*>(binary.bytes.data()));
  }
  if (result != kNvrtcSuccess || size == 0)
    return Error{ErrorCode::kCompileFailed,
                 source.name + ": " + identity() + " compiled it but returns no code: " + api_.error_string(result), binary.log};
  if (!cubin) return binary;  // registers are assigned when the driver compiles the PTX
  if (auto usage = cuda::usage_from_log(binary.log))
    binary.usage = *usage;
  else if (auto read_back = cuda::usage_from_cubin(binary.bytes))
    binary.usage = *read_back;
  return binary;
}

Result<Binary> NvrtcCompiler::compile(const KernelSource& source, const Target& target) const {
  const auto start = std::chrono::steady_clock::now();
  QUERN_ASSIGN(const ArchChoice choice, choose(target));
  std::vector<const char*> texts, names, arguments;
  for (const auto& header : source.headers) texts.push_back(header.text.c_str()), names.push_back(header.name.c_str());
  const std::vector<std::string> options = options_for(source, choice, target);
  for (const auto& option : options) arguments.push_back(option.c_str());

  NvrtcProgram program = nullptr;
  NvrtcResult result = api_.create(&program, source.text.c_str(), "kernel.cu", static_cast<int>(texts.size()), texts.data(), names.data());
  if (result != kNvrtcSuccess) return failure(result, source, target, {});
  result = api_.compile(program, static_cast<int>(arguments.size()), arguments.data());
  Result<Binary> binary =
      result == kNvrtcSuccess ? finish(program, source, choice) : Result<Binary>(failure(result, source, target, read_log(program)));
  api_.destroy(&program);
  if (binary) binary->compile_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return binary;
}

}  // namespace

Result<std::unique_ptr<Compiler>> open_nvrtc(const LibraryPaths& paths) {
  QUERN_ASSIGN(Library library, Library::open("NVRTC", nvrtc_candidates(paths.nvrtc)));
  load_builtins_beside(library.path());
  QUERN_ASSIGN(NvrtcApi api, load_api(library));
  return std::unique_ptr<Compiler>(std::make_unique<NvrtcCompiler>(std::move(api), library.path()));
}

}  // namespace quern

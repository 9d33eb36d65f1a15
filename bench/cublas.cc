#include "bench/cublas.h"

#include <filesystem>
#include <limits>
#include <random>
#include <system_error>
#include <utility>
#include <vector>

#include "runtime/library.h"

namespace quern::bench {
namespace {

// From the stable C ABI of cuBLAS 11 to 13.
using Handle = struct CublasContext*;
constexpr int kSuccess = 0;
constexpr int kNoTranspose = 0;
constexpr int kTranspose = 1;
constexpr int kBf16 = 14;        // cudaDataType
constexpr int kCompute32F = 68;  // cublasComputeType
constexpr int kDefaultAlgorithm = -1;

// What NVIDIA recommends for Hopper, where cuBLAS would otherwise allocate; smaller GPUs do not mind.
constexpr std::size_t kWorkspaceBytes = std::size_t{64} << 20;

std::vector<std::string> candidates(const std::string& path) {
  if (!path.empty()) return {path};
  std::vector<std::string> list;
  for (const std::string& directory : {executable_directory() + "/cublas/", std::string(), std::string("/usr/local/cuda/lib64/")})
    for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"}) list.push_back(directory + name);
  return list;
}

// cuBLAS opens cublasLt by its plain name; loading the one beside it first makes that name resolve wherever the pair lies.
void load_neighbours(const std::vector<std::string>& libraries) {
  std::error_code error;
  for (const auto& library : libraries) {
    const auto directory = std::filesystem::path(library).parent_path();
    if (directory.empty() || !std::filesystem::exists(library, error)) continue;
    for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12"})
      if (const auto file = directory / name; std::filesystem::exists(file, error)) (void)Library::open("cublasLt", {file.string()});
  }
}

std::vector<std::uint16_t> random_bf16(std::size_t count) {
  std::vector<std::uint16_t> values(count);
  std::minstd_rand random(1);
  for (auto& v : values) {
    const std::uint32_t bits = random();
    v = static_cast<std::uint16_t>((bits & 0x80FF) | 0x3C00);  // 2^-7 to 2^-5 either way
  }
  return values;
}

int copies_for(std::int64_t l2_bytes, std::int64_t bytes) {
  return static_cast<int>(std::max<std::int64_t>(2, 3 * l2_bytes / std::max<std::int64_t>(bytes, 1) + 1));
}

struct Operands {
  std::vector<std::unique_ptr<Buffer>> weights;
  std::unique_ptr<Buffer> x, y, workspace;
};

Result<Operands> make_operands(Device& device, std::int64_t m, std::int64_t n, std::int64_t k) {
  Operands operands;
  const auto bytes = static_cast<std::size_t>(n * k * 2);
  const auto contents = random_bf16(static_cast<std::size_t>(std::max(n, m) * k));
  for (int copy = 0; copy < copies_for(device.info().l2_bytes, n * k * 2); ++copy) {
    QUERN_ASSIGN(auto buffer, device.allocate(bytes));
    if (copy == 0)
      QUERN_TRY(device.copy_to_device(buffer->data(), contents.data(), bytes));
    else
      QUERN_TRY(device.copy_on_device(buffer->data(), operands.weights.front()->data(), bytes));
    operands.weights.push_back(std::move(buffer));
  }
  QUERN_ASSIGN(operands.x, device.allocate(static_cast<std::size_t>(m * k * 2)));
  QUERN_TRY(device.copy_to_device(operands.x->data(), contents.data(), operands.x->size()));
  QUERN_ASSIGN(operands.y, device.allocate(static_cast<std::size_t>(m * n * 2)));
  QUERN_ASSIGN(operands.workspace, device.allocate(kWorkspaceBytes));
  return operands;
}

}  // namespace

struct Cublas::Api {
  std::string location;
  int (*create)(Handle*) = nullptr;
  int (*destroy)(Handle) = nullptr;
  int (*set_stream)(Handle, void*) = nullptr;
  int (*set_workspace)(Handle, void*, std::size_t) = nullptr;
  int (*gemm_ex)(Handle, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*, void*, int, int,
                 int, int) = nullptr;
};

Cublas::Cublas(std::unique_ptr<Api> api) : api_(std::move(api)) {}
Cublas::Cublas(Cublas&&) noexcept = default;
Cublas& Cublas::operator=(Cublas&&) noexcept = default;
Cublas::~Cublas() = default;

const std::string& Cublas::location() const { return api_->location; }

Result<Cublas> Cublas::open(const std::string& path) {
  const auto libraries = candidates(path);
  load_neighbours(libraries);
  QUERN_ASSIGN(const Library library, Library::open("cuBLAS", libraries));
  auto api = std::make_unique<Api>();
  api->location = library.path();
  bool complete = true;
  const auto load = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(library.symbol(name));
    complete = complete && function != nullptr;
  };
  load(api->create, "cublasCreate_v2");
  load(api->destroy, "cublasDestroy_v2");
  load(api->set_stream, "cublasSetStream_v2");
  load(api->set_workspace, "cublasSetWorkspace_v2");
  load(api->gemm_ex, "cublasGemmEx");
  if (!complete) return Error{ErrorCode::kEnvironment, "cuBLAS " + library.path() + " lacks a function: cuBLAS 11 or newer is needed", {}};
  return Cublas(std::move(api));
}

Result<Timing> Cublas::time_bf16(Device& device, std::int64_t m, std::int64_t n, std::int64_t k, int max_samples,
                                 double max_seconds) const {
  constexpr std::int64_t kLargest = std::numeric_limits<int>::max();
  if (device.info().target.kind != Target::Kind::cuda) return Error{ErrorCode::kUnsupported, "cuBLAS needs a CUDA device", {}};
  if (m < 1 || n < 1 || k < 1 || m > kLargest || n > kLargest || k > kLargest)
    return Error{ErrorCode::kUnsupported, "cuBLAS takes dimensions from 1 to 2147483647", {}};
  QUERN_ASSIGN(const Operands operands, make_operands(device, m, n, k));

  Handle handle = nullptr;
  const auto status = [&](const char* what, int code) -> Status {
    if (code == kSuccess) return {};
    return Error{ErrorCode::kLaunchFailed, std::string("cuBLAS ") + what + ": status " + std::to_string(code), {}};
  };
  // Column-major: Y^T[N,M] = (W as [K,N])^T * (X as [K,M]).
  const auto enqueue = [&](Stream stream) -> Status {
    if (handle == nullptr) QUERN_TRY(status("create", api_->create(&handle)));
    QUERN_TRY(status("set stream", api_->set_stream(handle, stream)));
    QUERN_TRY(status("set workspace", api_->set_workspace(handle, operands.workspace->data(), operands.workspace->size())));
    const float one = 1, zero = 0;
    const int mi = static_cast<int>(m), ni = static_cast<int>(n), ki = static_cast<int>(k);
    for (const auto& w : operands.weights)
      QUERN_TRY(
          status("product", api_->gemm_ex(handle, kTranspose, kNoTranspose, ni, mi, ki, &one, w->data(), kBf16, ki, operands.x->data(),
                                          kBf16, ki, &zero, operands.y->data(), kBf16, ni, kCompute32F, kDefaultAlgorithm)));
    return {};
  };
  auto timing = device.time_work(enqueue, static_cast<int>(operands.weights.size()), max_samples, max_seconds);
  if (handle != nullptr) api_->destroy(handle);
  return timing;
}

}  // namespace quern::bench

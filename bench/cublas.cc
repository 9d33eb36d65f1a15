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
constexpr int kF32 = 0, kBf16 = 14;                 // cudaDataType
constexpr int kCompute32F = 68, kComputeTf32 = 77;  // cublasComputeType
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

// 16-bit halves of either type: a bf16 of 2^-7 to 2^-5 either way, or an f32 whose upper half is one.
std::vector<std::uint16_t> random_values(std::size_t halves) {
  std::vector<std::uint16_t> values(halves);
  std::minstd_rand random(1);
  for (auto& v : values) {
    const std::uint32_t bits = random();
    v = static_cast<std::uint16_t>((bits & 0x80FF) | 0x3C00);
  }
  return values;
}

int copies_for(std::int64_t l2_bytes, std::int64_t bytes) {
  return static_cast<int>(std::max<std::int64_t>(2, 3 * l2_bytes / std::max<std::int64_t>(bytes, 1) + 1));
}

// One product as cuBLAS sees it, column-major: C[rows, columns] = op(W) * X, W dense with leading dimension K.
struct Shape {
  std::int64_t rows, columns, reduction;
  int transpose_w;
  std::int64_t ldw, ldx;
  std::int64_t w_elements, x_elements;
};
Shape shape_of(const Problem& p) {
  if (p.op == Op::out_prod) return {p.k, p.m, p.n, kNoTranspose, p.k, p.n, p.n * p.k, p.m * p.n};
  return {p.n, p.m, p.k, kTranspose, p.k, p.k, p.n * p.k, p.m * p.k};
}

struct Matrices {
  std::vector<std::unique_ptr<Buffer>> weights;
  std::unique_ptr<Buffer> x, y, workspace;
};

Result<Matrices> make_matrices(Device& device, const Shape& shape, int element) {
  Matrices matrices;
  const auto bytes = static_cast<std::size_t>(shape.w_elements * element);
  const auto contents = random_values(static_cast<std::size_t>(std::max(shape.w_elements, shape.x_elements) * element / 2));
  for (int copy = 0; copy < copies_for(device.info().l2_bytes, shape.w_elements * element); ++copy) {
    QUERN_ASSIGN(auto buffer, device.allocate(bytes));
    if (copy == 0)
      QUERN_TRY(device.copy_to_device(buffer->data(), contents.data(), bytes));
    else
      QUERN_TRY(device.copy_on_device(buffer->data(), matrices.weights.front()->data(), bytes));
    matrices.weights.push_back(std::move(buffer));
  }
  QUERN_ASSIGN(matrices.x, device.allocate(static_cast<std::size_t>(shape.x_elements * element)));
  QUERN_TRY(device.copy_to_device(matrices.x->data(), contents.data(), matrices.x->size()));
  QUERN_ASSIGN(matrices.y, device.allocate(static_cast<std::size_t>(shape.rows * shape.columns * element)));
  QUERN_ASSIGN(matrices.workspace, device.allocate(kWorkspaceBytes));
  return matrices;
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

Result<Timing> Cublas::time_product(Device& device, const Problem& problem, Operands operands, int max_samples, double max_seconds) const {
  constexpr std::int64_t kLargest = std::numeric_limits<int>::max();
  if (device.info().target.kind != Target::Kind::cuda) return Error{ErrorCode::kUnsupported, "cuBLAS needs a CUDA device", {}};
  if (problem.op != Op::mul_mat && problem.op != Op::out_prod)
    return Error{ErrorCode::kUnsupported, "cuBLAS is timed for mul_mat and out_prod, not for " + std::string(to_string(problem.op)), {}};
  for (const auto dimension : {problem.m, problem.n, problem.k})
    if (dimension < 1 || dimension > kLargest) return Error{ErrorCode::kUnsupported, "cuBLAS takes dimensions from 1 to 2147483647", {}};
  const Shape shape = shape_of(problem);
  const bool bf16 = operands == Operands::bf16;
  const int type = bf16 ? kBf16 : kF32, compute = bf16 ? kCompute32F : kComputeTf32;
  QUERN_ASSIGN(const Matrices matrices, make_matrices(device, shape, bf16 ? 2 : 4));

  Handle handle = nullptr;
  const auto status = [&](const char* what, int code) -> Status {
    if (code == kSuccess) return {};
    return Error{ErrorCode::kLaunchFailed, std::string("cuBLAS ") + what + ": status " + std::to_string(code), {}};
  };
  const auto enqueue = [&](Stream stream) -> Status {
    if (handle == nullptr) QUERN_TRY(status("create", api_->create(&handle)));
    QUERN_TRY(status("set stream", api_->set_stream(handle, stream)));
    QUERN_TRY(status("set workspace", api_->set_workspace(handle, matrices.workspace->data(), matrices.workspace->size())));
    const float one = 1, zero = 0;
    const auto i = [](std::int64_t value) { return static_cast<int>(value); };
    for (const auto& w : matrices.weights)
      QUERN_TRY(status("product", api_->gemm_ex(handle, shape.transpose_w, kNoTranspose, i(shape.rows), i(shape.columns),
                                                i(shape.reduction), &one, w->data(), type, i(shape.ldw), matrices.x->data(), type,
                                                i(shape.ldx), &zero, matrices.y->data(), type, i(shape.rows), compute, kDefaultAlgorithm)));
    return {};
  };
  auto timing = device.time_work(enqueue, static_cast<int>(matrices.weights.size()), max_samples, max_seconds);
  if (handle != nullptr) api_->destroy(handle);
  return timing;
}

}  // namespace quern::bench

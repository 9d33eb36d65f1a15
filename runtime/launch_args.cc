#include "runtime/launch_args.h"

#include <cstdint>
#include <string>

namespace quern {
namespace {

constexpr int kWorkspaceAlignment = 256;

Error invalid(const Problem& problem, const std::string& what) {
  return {ErrorCode::kInvalidArgument, std::string(to_string(problem.op)) + ": " + what, {}};
}

// The op's name for a dimension, with its value: "K = 4096".
struct Dimension {
  const char* name;
  std::int64_t value;
};

std::string show(const Dimension& d) { return std::string(d.name) + " = " + std::to_string(d.value); }

Status check_shape(const Problem& problem, const char* matrix, std::int64_t rows, std::int64_t columns, Dimension need_rows,
                   Dimension need_columns) {
  if (columns != kAsPlanned && columns != need_columns.value)
    return invalid(problem, std::string(matrix) + " has rows of length " + std::to_string(columns) + ", the plan needs " +
                                show(need_columns) + " (N = " + std::to_string(problem.n) + ", K = " + std::to_string(problem.k) + ")");
  if (rows != kAsPlanned && rows != need_rows.value)
    return invalid(problem, std::string(matrix) + " has " + std::to_string(rows) + " rows, the plan needs " + show(need_rows));
  return {};
}

Status check_pointer(const Problem& problem, const char* name, const void* pointer, int alignment) {
  if (pointer == nullptr) return invalid(problem, std::string(name) + " is null, device memory is needed");
  const auto offset = reinterpret_cast<std::uintptr_t>(pointer) % static_cast<std::uintptr_t>(alignment);
  if (offset != 0)
    return invalid(problem, std::string(name) + " starts " + std::to_string(offset) + " bytes past a multiple of " +
                                std::to_string(alignment) + ", it must start at one");
  return {};
}

// `stride` 0 becomes `dense`; one below it would make neighbours overlap.
Status resolve_stride(const Problem& problem, const char* name, std::int64_t stride, std::int64_t dense, const char* unit, long long* out) {
  if (stride != 0 && stride < dense)
    return invalid(
        problem, std::string(name) + " is " + std::to_string(stride) + " " + unit + ", at least " + std::to_string(dense) + " are needed");
  *out = stride == 0 ? dense : stride;
  return {};
}

// Every matrix of a batch starts as aligned as the first one must: kernels load whole words from each. A stride that no index is multiplied
// by is not looked at.
Status check_batch_stride(const Problem& problem, const char* name, long long stride, std::int64_t batches, int alignment) {
  if (batches <= 1 || stride % alignment == 0) return {};
  return invalid(problem, std::string(name) + " is " + std::to_string(stride) + " bytes, batches of " +
                              std::string(to_string(problem.layout)) + " weights need a multiple of " + std::to_string(alignment));
}

bool is_repack(Op op) { return op == Op::to_planar || op == Op::to_gguf; }

Status fill_weights(const Problem& p, const WeightView& w, KernelArgs* out) {
  const int alignment = weight_alignment(p.type, p.layout);
  const std::int64_t dense = row_bytes(p.type, p.k);
  QUERN_TRY(check_shape(p, "W", w.rows, w.columns, {"N", p.n}, {"K", p.k}));
  QUERN_TRY(check_pointer(p, "W", w.data, alignment));
  QUERN_TRY(resolve_stride(p, "W's row_bytes", w.row_bytes, dense, "bytes", &out->w_row_bytes));
  if (out->w_row_bytes != dense && (p.layout == Layout::planar || is_repack(p.op)))
    return invalid(p,
                   "W's row_bytes is " + std::to_string(w.row_bytes) + ", planar and repacked weights are dense: " + std::to_string(dense));
  if (out->w_row_bytes % alignment != 0 && out->w_row_bytes != dense)
    return invalid(p, "W's row_bytes is " + std::to_string(w.row_bytes) + ", a multiple of " + std::to_string(alignment) + " is needed");
  QUERN_TRY(resolve_stride(p, "W's stride2", w.stride2, p.n * out->w_row_bytes, "bytes", &out->w_stride2));
  QUERN_TRY(check_batch_stride(p, "W's stride2", out->w_stride2, p.batch2 / p.ratio2, alignment));
  QUERN_TRY(resolve_stride(p, "W's stride3", w.stride3, p.batch2 / p.ratio2 * out->w_stride2, "bytes", &out->w_stride3));
  QUERN_TRY(check_batch_stride(p, "W's stride3", out->w_stride3, p.batch3 / p.ratio3, alignment));
  out->w = w.data;
  return {};
}

Status fill_input(const Problem& p, const InputView& x, KernelArgs* out) {
  QUERN_TRY(check_shape(p, "X", x.rows, x.columns, {"M", p.m}, {"K", p.k}));
  QUERN_TRY(check_pointer(p, "X", x.data, size_of(p.x_type)));
  QUERN_TRY(resolve_stride(p, "X's row_stride", x.row_stride, p.k, "elements", &out->ldx));
  QUERN_TRY(resolve_stride(p, "X's stride2", x.stride2, (p.m - 1) * out->ldx + p.k, "elements", &out->x_stride2));
  if (x.stride2 == 0) out->x_stride2 = p.m * out->ldx;
  QUERN_TRY(resolve_stride(p, "X's stride3", x.stride3, (p.batch2 - 1) * out->x_stride2 + p.k, "elements", &out->x_stride3));
  if (x.stride3 == 0) out->x_stride3 = p.batch2 * out->x_stride2;
  out->x = x.data;
  return {};
}

Status fill_output(const Problem& p, const OutputView& y, KernelArgs* out) {
  const bool product = p.op == Op::mul_mat;
  const Dimension rows = product ? Dimension{"M", p.m} : Dimension{"N", p.n}, columns = product ? Dimension{"N", p.n} : Dimension{"K", p.k};
  QUERN_TRY(check_shape(p, "Y", y.rows, y.columns, rows, columns));
  const Layout repacked = p.layout == Layout::gguf ? Layout::planar : Layout::gguf;
  QUERN_TRY(check_pointer(p, "Y", y.data, is_repack(p.op) ? weight_alignment(p.type, repacked) : size_of(p.y_type)));
  QUERN_TRY(resolve_stride(p, "Y's row_stride", y.row_stride, columns.value, "elements", &out->ldy));
  if (is_repack(p.op) && out->ldy != columns.value)
    return invalid(p,
                   "Y's row_stride is " + std::to_string(y.row_stride) + ", repacked weights are dense: " + std::to_string(columns.value));
  QUERN_TRY(resolve_stride(p, "Y's stride2", y.stride2, (rows.value - 1) * out->ldy + columns.value, "elements", &out->y_stride2));
  if (y.stride2 == 0) out->y_stride2 = rows.value * out->ldy;
  QUERN_TRY(resolve_stride(p, "Y's stride3", y.stride3, (p.batch2 - 1) * out->y_stride2 + columns.value, "elements", &out->y_stride3));
  if (y.stride3 == 0) out->y_stride3 = p.batch2 * out->y_stride2;
  out->y = y.data;
  return {};
}

Status check_bias(const Problem& p, const void* bias) {
  if (p.bias) return check_pointer(p, "bias", bias, size_of(p.y_type));
  if (bias != nullptr) return invalid(p, "a bias is given, the problem was planned without one (Problem::bias)");
  return {};
}

Status check_workspace(const Problem& p, std::size_t needed, const LaunchArgs& args) {
  if (needed == 0) return {};
  if (args.workspace == nullptr) return invalid(p, "workspace is null, this plan needs " + std::to_string(needed) + " bytes");
  if (args.workspace_bytes < needed)
    return invalid(p, "workspace has " + std::to_string(args.workspace_bytes) + " bytes, this plan needs " + std::to_string(needed));
  return check_pointer(p, "workspace", args.workspace, kWorkspaceAlignment);
}

// Repacking works in place or apart; anything between would overwrite what is still to be read.
Status check_overlap(const Problem& p, const KernelArgs& filled) {
  const auto w = reinterpret_cast<std::uintptr_t>(filled.w), y = reinterpret_cast<std::uintptr_t>(filled.y);
  const auto bytes = static_cast<std::uintptr_t>(p.n * row_bytes(p.type, p.k));
  const auto gap = w > y ? w - y : y - w;
  if (gap == 0 || gap >= bytes) return {};
  return invalid(p, "source and destination overlap by " + std::to_string(bytes - gap) + " of " + std::to_string(bytes) +
                        " bytes: they must be equal (in place) or apart");
}

}  // namespace

bool nothing_to_compute(const Problem& p) {
  return p.n == 0 || p.k == 0 || (p.op == Op::mul_mat && p.m == 0) || p.batch2 == 0 || p.batch3 == 0;
}

int weight_alignment(WeightType type, Layout layout) {
  if (layout == Layout::planar) return 16;
  const int bytes = info(type).block_bytes;
  int alignment = 1;
  while (alignment < 16 && bytes % (alignment * 2) == 0) alignment *= 2;
  return alignment;
}

Status fill_kernel_args(const Problem& problem, std::size_t workspace_needed, const LaunchArgs& args, KernelArgs* out) {
  *out = {};
  out->m = problem.m, out->n = problem.n, out->k = problem.k;
  out->batch2 = problem.batch2, out->batch3 = problem.batch3;
  out->ratio2 = problem.ratio2, out->ratio3 = problem.ratio3;
  QUERN_TRY(fill_weights(problem, args.w, out));
  if (problem.op == Op::mul_mat) QUERN_TRY(fill_input(problem, args.x, out));
  QUERN_TRY(fill_output(problem, args.y, out));
  QUERN_TRY(check_bias(problem, args.bias));
  QUERN_TRY(check_workspace(problem, workspace_needed, args));
  if (is_repack(problem.op)) QUERN_TRY(check_overlap(problem, *out));
  out->bias = args.bias;
  out->workspace = args.workspace;
  return {};
}

}  // namespace quern

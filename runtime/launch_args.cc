#include "runtime/launch_args.h"

#include <cstdint>
#include <string>
#include <utility>

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

Status fill_weights(const Problem& p, const WeightView& w, KernelArgs* out) {
  const int alignment = weight_alignment(p.type, p.layout);
  const std::int64_t dense = row_bytes(p.type, p.k);
  QUERN_TRY(check_shape(p, "W", w.rows, w.columns, {"N", p.n}, {"K", p.k}));
  if (p.n > 0) QUERN_TRY(check_pointer(p, "W", w.data, alignment));  // out_prod over no rows is zero
  QUERN_TRY(resolve_stride(p, "W's row_bytes", w.row_bytes, dense, "bytes", &out->w_row_bytes));
  if (out->w_row_bytes != dense && (p.layout == Layout::planar || is_repack(p.op)))
    return invalid(p,
                   "W's row_bytes is " + std::to_string(w.row_bytes) + ", planar and repacked weights are dense: " + std::to_string(dense));
  if (out->w_row_bytes % alignment != 0 && out->w_row_bytes != dense)
    return invalid(p, "W's row_bytes is " + std::to_string(w.row_bytes) + ", a multiple of " + std::to_string(alignment) + " is needed");
  QUERN_TRY(resolve_stride(p, "W's stride2", w.stride2, p.n * out->w_row_bytes, "bytes", &out->w_stride2));
  const Batches batches = w_batches(p);
  QUERN_TRY(check_batch_stride(p, "W's stride2", out->w_stride2, batches.dim2, alignment));
  QUERN_TRY(resolve_stride(p, "W's stride3", w.stride3, batches.dim2 * out->w_stride2, "bytes", &out->w_stride3));
  QUERN_TRY(check_batch_stride(p, "W's stride3", out->w_stride3, batches.dim3, alignment));
  out->w = w.data;
  out->w_scale = w.scale;
  if (p.scale) return check_pointer(p, "W's scale", w.scale, sizeof(float));
  if (w.scale != nullptr) return invalid(p, "a weight scale is given, the problem was planned without one (Problem::scale)");
  return {};
}

// What the op calls the rows and columns of its matrices.
struct DimensionNames {
  const char* rows;
  const char* columns;
};
DimensionNames x_names(Op op) {
  return op == Op::out_prod ? DimensionNames{"M", "N"} : op == Op::mul_mat_id ? DimensionNames{"used", "K"} : DimensionNames{"M", "K"};
}
DimensionNames y_names(Op op) {
  switch (op) {
    case Op::mul_mat:
      return {"M", "N"};
    case Op::out_prod:
      return {"M", "K"};
    case Op::mul_mat_id:
      return {"used", "N"};
    default:
      return {"N", "K"};
  }
}

// Strides of a batch of `shape`-d matrices, elements apart; each 0 becomes dense. `what` is "X" or "Y".
struct Strides {
  long long row, dim2, dim3;
};
Status resolve_strides(const Problem& p, const std::string& what, Extent shape, Batches batches, const Strides& given, Strides* out) {
  QUERN_TRY(resolve_stride(p, (what + "'s row_stride").c_str(), given.row, shape.columns, "elements", &out->row));
  const long long matrix = (shape.rows - 1) * out->row + shape.columns;
  QUERN_TRY(resolve_stride(p, (what + "'s stride2").c_str(), given.dim2, matrix, "elements", &out->dim2));
  if (given.dim2 == 0) out->dim2 = shape.rows * out->row;
  const long long dim2 = (batches.dim2 - 1) * out->dim2 + matrix;
  QUERN_TRY(resolve_stride(p, (what + "'s stride3").c_str(), given.dim3, dim2, "elements", &out->dim3));
  if (given.dim3 == 0) out->dim3 = batches.dim2 * out->dim2;
  return {};
}

Status fill_input(const Problem& p, const InputView& x, KernelArgs* out) {
  Extent shape = x_extent(p);
  QUERN_TRY(check_shape(p, "X", x.rows, x.columns, {x_names(p.op).rows, shape.rows}, {x_names(p.op).columns, shape.columns}));
  if (shape.columns > 0) QUERN_TRY(check_pointer(p, "X", x.data, size_of(p.x_type)));
  if (p.x_transposed) std::swap(shape.rows, shape.columns);
  Strides strides{};
  QUERN_TRY(resolve_strides(p, "X", shape, xy_batches(p), {x.row_stride, x.stride2, x.stride3}, &strides));
  // One row for all slots of a token: the step from slot to slot is none.
  out->ldx = p.x_broadcast ? 0 : strides.row;
  out->x_stride2 = strides.dim2;
  out->x_stride3 = strides.dim3;
  out->x = x.data;
  return {};
}

Status fill_output(const Problem& p, const OutputView& y, KernelArgs* out) {
  const Extent shape = y_extent(p);
  QUERN_TRY(check_shape(p, "Y", y.rows, y.columns, {y_names(p.op).rows, shape.rows}, {y_names(p.op).columns, shape.columns}));
  const Layout repacked = p.layout == Layout::gguf ? Layout::planar : Layout::gguf;
  QUERN_TRY(check_pointer(p, "Y", y.data, is_repack(p.op) ? weight_alignment(p.type, repacked) : size_of(p.y_type)));
  Strides strides{};
  QUERN_TRY(resolve_strides(p, "Y", shape, xy_batches(p), {y.row_stride, y.stride2, y.stride3}, &strides));
  if (is_repack(p.op) && strides.row != shape.columns)
    return invalid(p,
                   "Y's row_stride is " + std::to_string(y.row_stride) + ", repacked weights are dense: " + std::to_string(shape.columns));
  out->ldy = strides.row;
  out->y_stride2 = strides.dim2;
  out->y_stride3 = strides.dim3;
  out->y = y.data;
  return {};
}

Status fill_ids(const Problem& p, const IdsView& ids, KernelArgs* out) {
  out->used = p.used, out->experts = p.experts;
  if (p.op != Op::mul_mat_id) {
    if (ids.data != nullptr) return invalid(p, "ids are given, only mul_mat_id routes rows");
    return {};
  }
  QUERN_TRY(check_pointer(p, "ids", ids.data, sizeof(std::int32_t)));
  out->ids = ids.data;
  return resolve_stride(p, "ids' row_stride", ids.row_stride, p.used, "elements", &out->ids_stride);
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
  if (is_product(problem.op)) QUERN_TRY(fill_input(problem, args.x, out));
  QUERN_TRY(fill_output(problem, args.y, out));
  QUERN_TRY(fill_ids(problem, args.ids, out));
  QUERN_TRY(check_bias(problem, args.bias));
  QUERN_TRY(check_workspace(problem, workspace_needed, args));
  if (is_repack(problem.op)) QUERN_TRY(check_overlap(problem, *out));
  out->bias = args.bias;
  out->workspace = args.workspace;
  return {};
}

}  // namespace quern

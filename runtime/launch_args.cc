#include "runtime/launch_args.h"

#include <algorithm>
#include <array>
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

// No view reaches further, in bytes or elements, so that no offset overflows. A problem's dense matrices never do.
constexpr std::int64_t kFarthest = std::int64_t{1} << 60;

// One dim of a view: `count` steps of `stride`, which is `given` or, for 0, `dense`.
struct Dim {
  const char* matrix;
  const char* name;
  std::int64_t count;
  std::int64_t given;
  long long stride = 0;
};

std::string show(const Dim& dim, const char* unit) {
  return std::string(dim.matrix) + " " + dim.name + " is " + std::to_string(dim.stride) + " " + unit;
}

Status resolve_stride(const Problem& problem, Dim& dim, std::int64_t dense, const char* unit) {
  dim.stride = dim.given == 0 ? dense : dim.given;
  if (dim.stride >= 0 && dim.stride <= kFarthest / std::max<std::int64_t>(dim.count, 1)) return {};
  return invalid(problem, show(dim, unit) + ", needed at least 0 and at most 2^60 over its " + std::to_string(dim.count) + " steps");
}

// Whether no two rows or matrices share memory. Dims may lie in any order: in a permuted view the rows of one matrix have those of others
// between them. So each dim, from the smallest stride on, must step over all that those below it span; the innermost is `unit_size` long.
Status check_apart(const Problem& problem, std::array<Dim, 3> dims, std::int64_t unit_size, const char* unit) {
  if (std::any_of(dims.begin(), dims.end(), [](const Dim& dim) { return dim.count == 0; })) return {};
  std::sort(dims.begin(), dims.end(), [](const Dim& a, const Dim& b) { return a.stride < b.stride; });
  std::int64_t span = unit_size;
  for (const Dim& dim : dims) {
    if (dim.count <= 1) continue;
    if (dim.stride < span) return invalid(problem, show(dim, unit) + ", at least " + std::to_string(span) + " are needed");
    span += (dim.count - 1) * dim.stride;
  }
  return {};
}

// Rows of `row_size` each, then batch dims 2 and 3. A batch stride that no index is multiplied by is not looked at.
Status resolve_strides(const Problem& problem, std::array<Dim, 3>& dims, std::int64_t row_size, const char* unit) {
  auto& [row, dim2, dim3] = dims;
  if (dim2.count == 1) dim2.given = 0;
  if (dim3.count == 1) dim3.given = 0;
  QUERN_TRY(resolve_stride(problem, row, row_size, unit));
  if (row.stride < row_size) return invalid(problem, show(row, unit) + ", at least " + std::to_string(row_size) + " are needed");
  QUERN_TRY(resolve_stride(problem, dim2, row.count * row.stride, unit));
  QUERN_TRY(resolve_stride(problem, dim3, std::max(row.count * row.stride, dim2.count * dim2.stride), unit));
  return check_apart(problem, dims, row_size, unit);
}

// Every matrix of a batch starts as aligned as the first one must: kernels load whole words from each.
Status check_batch_stride(const Problem& problem, const Dim& dim, int alignment) {
  if (dim.count <= 1 || dim.stride % alignment == 0) return {};
  return invalid(problem, show(dim, "bytes") + ", batches of " + std::string(to_string(problem.layout)) + " weights need a multiple of " +
                              std::to_string(alignment));
}

Status fill_weights(const Problem& p, const WeightView& w, KernelArgs* out) {
  const int alignment = weight_alignment(p.type, p.layout);
  const auto [rows, dense] = w_stored(p);
  QUERN_TRY(check_shape(p, "W", w.rows, w.columns, {"N", p.n}, {"K", p.k}));
  if (p.n > 0) QUERN_TRY(check_pointer(p, "W", w.data, alignment));  // out_prod over no rows is zero; ops whose Y are codes have none
  const Batches batches = w_batches(p);
  std::array<Dim, 3> dims{
      {{"W's", "row_bytes", rows, w.row_bytes}, {"W's", "stride2", batches.dim2, w.stride2}, {"W's", "stride3", batches.dim3, w.stride3}}};
  QUERN_TRY(resolve_strides(p, dims, dense, "bytes"));
  const auto& [row, dim2, dim3] = dims;
  if (row.stride != dense && ((p.layout == Layout::planar && !is_integer(p.op)) || is_repack(p.op)))
    return invalid(p,
                   "W's row_bytes is " + std::to_string(w.row_bytes) + ", planar and repacked weights are dense: " + std::to_string(dense));
  if (row.stride != dense && row.stride % alignment != 0)
    return invalid(p, "W's row_bytes is " + std::to_string(w.row_bytes) + ", a multiple of " + std::to_string(alignment) + " is needed");
  QUERN_TRY(check_batch_stride(p, dim2, alignment));
  QUERN_TRY(check_batch_stride(p, dim3, alignment));
  out->w_row_bytes = row.stride, out->w_stride2 = dim2.stride, out->w_stride3 = dim3.stride;
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
  switch (op) {
    case Op::out_prod:
      return {"M", "N"};
    case Op::mul_mat_id:
      return {"used", "K"};
    case Op::w4a4:
      return {"M", "K/2"};
    default:
      return {"M", "K"};
  }
}
DimensionNames y_names(const Problem& p) {
  switch (p.op) {
    case Op::mul_mat:
      return {"M", "N"};
    case Op::out_prod:
      return {"M", "K"};
    case Op::mul_mat_id:
      return {"used", "N"};
    case Op::matmul_int8_rows:
    case Op::w4a4:
      return {"M", "N"};
    case Op::quantize_rows_int8:
      return {"M", "K"};
    case Op::rpbh_quantize:
      return {"M", p.type == WeightType::code4 ? "K/2" : "K"};
    default:
      return {"N", "K"};
  }
}

// The dims of X or Y, resolved.
Result<std::array<Dim, 3>> resolve_strides(const Problem& p, const char* matrix, Extent shape, Batches batches, std::int64_t row_stride,
                                           std::int64_t stride2, std::int64_t stride3) {
  std::array<Dim, 3> dims{{{matrix, "row_stride", shape.rows, row_stride},
                           {matrix, "stride2", batches.dim2, stride2},
                           {matrix, "stride3", batches.dim3, stride3}}};
  QUERN_TRY(resolve_strides(p, dims, shape.columns, "elements"));
  return dims;
}

Status fill_input(const Problem& p, const InputView& x, KernelArgs* out) {
  Extent shape = x_extent(p);
  QUERN_TRY(check_shape(p, "X", x.rows, x.columns, {x_names(p.op).rows, shape.rows}, {x_names(p.op).columns, shape.columns}));
  if (shape.columns > 0) QUERN_TRY(check_pointer(p, "X", x.data, x_element_bytes(p)));
  if (p.x_transposed) std::swap(shape.rows, shape.columns);
  QUERN_ASSIGN(const auto dims, resolve_strides(p, "X's", shape, xy_batches(p), x.row_stride, x.stride2, x.stride3));
  // One row for all slots of a token: the step from slot to slot is none.
  out->ldx = p.x_broadcast ? 0 : dims[0].stride;
  out->x_stride2 = dims[1].stride;
  out->x_stride3 = dims[2].stride;
  out->x = x.data;
  return {};
}

Status fill_output(const Problem& p, const OutputView& y, KernelArgs* out) {
  const Extent shape = y_extent(p);
  QUERN_TRY(check_shape(p, "Y", y.rows, y.columns, {y_names(p).rows, shape.rows}, {y_names(p).columns, shape.columns}));
  const Layout repacked = p.layout == Layout::gguf ? Layout::planar : Layout::gguf;
  QUERN_TRY(check_pointer(p, "Y", y.data, is_repack(p.op) ? weight_alignment(p.type, repacked) : y_element_bytes(p)));
  QUERN_ASSIGN(const auto dims, resolve_strides(p, "Y's", shape, xy_batches(p), y.row_stride, y.stride2, y.stride3));
  if (is_repack(p.op) && dims[0].stride != shape.columns)
    return invalid(p,
                   "Y's row_stride is " + std::to_string(y.row_stride) + ", repacked weights are dense: " + std::to_string(shape.columns));
  out->ldy = dims[0].stride;
  out->y_stride2 = dims[1].stride;
  out->y_stride3 = dims[2].stride;
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
  std::array<Dim, 3> dims{{{"ids'", "row_stride", p.m, ids.row_stride}, {"", "", 1, 0}, {"", "", 1, 0}}};
  QUERN_TRY(resolve_strides(p, dims, p.used, "elements"));
  out->ids = ids.data, out->ids_stride = dims[0].stride;
  return {};
}

// The f32 per row that codes come with, exactly where the op has codes.
Status check_row_scales(const Problem& p, const char* name, const float* scales, bool needed) {
  if (needed) return check_pointer(p, name, scales, sizeof(float));
  if (scales != nullptr) return invalid(p, std::string(name) + " are given, this op has none");
  return {};
}

Status fill_row_scales(const Problem& p, const LaunchArgs& args, KernelArgs* out) {
  QUERN_TRY(check_row_scales(p, "X's row_scales", args.x.row_scales, has_code_input(p.op)));
  QUERN_TRY(check_row_scales(p, "W's row_scales", args.w.row_scales, p.op == Op::matmul_int8_rows));
  QUERN_TRY(check_row_scales(p, "Y's row_scales", args.y.row_scales, has_code_output(p.op)));
  out->x_scales = args.x.row_scales, out->w_scales = args.w.row_scales, out->y_scales = args.y.row_scales;
  return {};
}

// An operand that one op has: given exactly there.
Status check_operand(const Problem& p, const char* name, const void* pointer, int alignment, bool needed) {
  if (needed) return check_pointer(p, name, pointer, alignment);
  if (pointer != nullptr) return invalid(p, std::string(name) + " is given, which this plan does not have");
  return {};
}

Status fill_codebooks(const Problem& p, const LaunchArgs& args, KernelArgs* out) {
  const bool needed = p.op == Op::w4a4;
  const CodebookView& c = args.codebooks;
  QUERN_TRY(check_operand(p, "X's codebook", c.x, 1, needed));
  QUERN_TRY(check_operand(p, "W's codebook", c.w, 1, needed));
  QUERN_TRY(check_operand(p, "W's row_norms", args.w.row_norms, 2, needed));
  if (!needed) return {};
  out->x_codebook = reinterpret_cast<const signed char*>(c.x), out->w_codebook = reinterpret_cast<const signed char*>(c.w);
  out->w_norms = args.w.row_norms;
  out->scale = c.activation_scale * c.weight_scale;
  return {};
}

Status fill_rotation(const Problem& p, const LaunchArgs& args, KernelArgs* out) {
  const bool needed = p.op == Op::rpbh_quantize;
  const RotationView& r = args.rotation;
  QUERN_TRY(check_operand(p, "permutation", r.permutation, sizeof(std::int32_t), needed));
  QUERN_TRY(check_operand(p, "signs", r.signs, 1, needed));
  QUERN_TRY(check_operand(p, "boundaries", r.boundaries, sizeof(float), needed));
  QUERN_TRY(check_operand(p, "codebook", r.codebook, 1, needed && p.type == WeightType::i8));
  if (!needed) return {};
  out->permutation = r.permutation, out->signs = reinterpret_cast<const signed char*>(r.signs);
  out->boundaries = r.boundaries, out->epsilon = r.epsilon;
  out->x_codebook = reinterpret_cast<const signed char*>(r.codebook);
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

int weight_alignment(WeightType type, Layout layout) {
  if (type == WeightType::i8 || type == WeightType::code4) return 1;  // bare codes have one layout, and kernels take them from anywhere
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
  if (has_rows(problem.op)) QUERN_TRY(fill_input(problem, args.x, out));
  QUERN_TRY(fill_output(problem, args.y, out));
  QUERN_TRY(fill_ids(problem, args.ids, out));
  QUERN_TRY(fill_row_scales(problem, args, out));
  QUERN_TRY(fill_codebooks(problem, args, out));
  QUERN_TRY(fill_rotation(problem, args, out));
  QUERN_TRY(check_bias(problem, args.bias));
  QUERN_TRY(check_workspace(problem, workspace_needed, args));
  if (is_repack(problem.op)) QUERN_TRY(check_overlap(problem, *out));
  out->bias = args.bias;
  out->workspace = args.workspace;
  return {};
}

}  // namespace quern

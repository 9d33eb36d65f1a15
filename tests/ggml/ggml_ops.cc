#include "ggml_ops.h"

#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include <cstring>
#include <memory>

namespace quern::test {
namespace {

constexpr int kThreads = 2;

ggml_type type_of(WeightType type) { return static_cast<ggml_type>(type); }

struct FreeContext {
  void operator()(ggml_context* context) const { ggml_free(context); }
};
using GgmlContext = std::unique_ptr<ggml_context, FreeContext>;

// Holds descriptions alone: the data stay where the operands have them.
GgmlContext make_context() {
  return GgmlContext(ggml_init({.mem_size = 16 * ggml_tensor_overhead() + ggml_graph_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
}

struct Stride {
  std::int64_t count = 1;
  std::size_t bytes = 0;
};

// ggml writes to no source, but its tensors point to memory that is not const.
ggml_tensor* make_view(ggml_context* context, ggml_type type, const void* data, const Stride (&dims)[4]) {
  ggml_tensor* t = ggml_new_tensor_4d(context, type, dims[0].count, dims[1].count, dims[2].count, dims[3].count);
  for (int i = 0; i < 4; ++i) t->nb[i] = dims[i].bytes;
  t->data = const_cast<void*>(data);
  return t;
}

ggml_tensor* make_w(ggml_context* context, const Operands& o) {
  const Problem& p = o.problem;
  const Batches batches = w_batches(p);
  const auto row = static_cast<std::size_t>(row_bytes(p.type, p.k)), matrix = static_cast<std::size_t>(o.matrix_bytes());
  return make_view(context, type_of(p.type), o.w.data(),
                   {{p.k, static_cast<std::size_t>(info(p.type).block_bytes)},
                    {p.n, row},
                    {batches.dim2, matrix},
                    {batches.dim3, matrix * static_cast<std::size_t>(batches.dim2)}});
}

// ggml's out_prod takes X with its rows as dimension 0, the other ops with its columns.
ggml_tensor* make_x(ggml_context* context, const Operands& o) {
  const Problem& p = o.problem;
  const Extent extent = x_extent(p);
  const Batches batches = xy_batches(p);
  const auto bytes = [](std::int64_t elements) { return static_cast<std::size_t>(elements) * sizeof(float); };
  const Stride rows{extent.rows, bytes(p.x_transposed ? 1 : o.row_stride)},
      columns{extent.columns, bytes(p.x_transposed ? o.row_stride : 1)};
  const bool rows_first = p.op == Op::out_prod;
  return make_view(
      context, GGML_TYPE_F32, o.x.data(),
      {rows_first ? rows : columns, rows_first ? columns : rows, {batches.dim2, bytes(o.stride2)}, {batches.dim3, bytes(o.stride3)}});
}

ggml_tensor* make_node(ggml_context* context, const Operands& o) {
  ggml_tensor *w = make_w(context, o), *x = make_x(context, o);
  if (o.problem.op == Op::mul_mat) return ggml_mul_mat(context, w, x);
  if (o.problem.op == Op::out_prod) return ggml_out_prod(context, w, x);
  ggml_tensor* ids = ggml_new_tensor_2d(context, GGML_TYPE_I32, o.problem.used, o.problem.m);
  ids->data = const_cast<std::int32_t*>(o.ids.data());
  return ggml_mul_mat_id(context, w, x, ids);
}

}  // namespace

std::string ggml_version_text() { return ggml_version(); }

bool ggml_knows(WeightType type) {
  if (static_cast<std::uint32_t>(type) >= GGML_TYPE_COUNT) return false;
  return ggml_blck_size(type_of(type)) == info(type).block_elements &&
         ggml_type_size(type_of(type)) == static_cast<std::size_t>(info(type).block_bytes);
}

std::vector<float> ggml_dequantize(WeightType type, std::span<const std::byte> blocks) {
  ggml_cpu_init();  // fills ggml's table of halves
  const auto count = static_cast<std::int64_t>(blocks.size()) / info(type).block_bytes * info(type).block_elements;
  std::vector<float> values(static_cast<std::size_t>(count));
  if (const auto to_float = ggml_get_type_traits(type_of(type))->to_float)
    to_float(blocks.data(), values.data(), count);
  else  // f32 has none: its values are its bytes
    std::memcpy(values.data(), blocks.data(), blocks.size());
  return values;
}

std::optional<std::vector<float>> ggml_product(const Operands& operands) {
  const GgmlContext context = make_context();
  ggml_tensor* node = make_node(context.get(), operands);
  if (!ggml_backend_dev_supports_op(ggml_backend_reg_dev_get(ggml_backend_cpu_reg(), 0), node)) return std::nullopt;
  std::vector<float> y(static_cast<std::size_t>(ggml_nelements(node)));
  node->data = y.data();
  ggml_cgraph* graph = ggml_new_graph(context.get());
  ggml_build_forward_expand(graph, node);
  ggml_cplan plan = ggml_graph_plan(graph, kThreads, nullptr);
  std::vector<std::uint8_t> work(plan.work_size);
  plan.work_data = work.data();
  return ggml_graph_compute(graph, &plan) == GGML_STATUS_SUCCESS ? std::optional(std::move(y)) : std::nullopt;
}

}  // namespace quern::test

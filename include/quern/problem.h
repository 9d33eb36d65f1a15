// Problem: what is to be computed, apart from how. Printable, parseable, comparable; its text form is the store's key.
#pragma once

#include <charconv>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "quern/result.h"
#include "quern/weight_type.h"

namespace quern {

// dequantize: Y[N,K] = decode(W[N,K]); m is 1 by convention, x_type is ignored.
// mul_mat:    Y[M,N] = X[M,K] * W[N,K]^T (+ bias[N]).
// to_planar, to_gguf: W[N,K] from one layout to the other, bit for bit; `layout` names the source layout.
// out_prod:   Y[M,K] = X[M,N] * W[N,K]: with X the gradient of mul_mat's output, Y is that of its input.
// mul_mat_id: Y[M,used,N], row (t,s) = X[t,s] * W[ids[t,s]]^T: each of a token's `used` slots goes to one of `experts` matrices W[N,K].
// quantize_rows_int8: codes Y[M,K] (int8) and a scale per row from X[M,K]: scale = max(absmax, 1e-12) / 127, code = X / scale rounded half
// to
//             even and clamped to +-127, both divisions IEEE; n is 0 by convention.
// matmul_int8_rows: Y[M,N] = f32(sum) * (x_scale[M] * w_scale[N]) (+ bias[N]), sum the exact i32 of codes X[M,K] * W[N,K]^T; each operation
//             rounded once, in this order, the last to Y's type.
// w4a4:       Y[M,N] = f32(sum) * ((x_norm[M] * w_norm[N]) * (activation_scale * weight_scale)) (+ bias[N]), sum the exact i32 of
//             x_codebook[X[M,K]] * w_codebook[W[N,K]], both packed 4-bit indices, codebooks of 16 int8 given as data. Each operation
//             rounded once; with `fused` the last product and the bias together.
// rpbh_quantize: X[M,K] permuted, signed, divided by its norm, turned by Hadamard matrices of `block` columns and bucketized: packed
//             indices Y[M,K] (type code4: column 2i in the low nibble of byte i) or the codes of a codebook (type i8), and each row's
//             norm, f32. n is 0 by convention. Bit for bit, every operation in f32 and rounded once (quern/context.h, RotationView, names
//             the operands):
//               v[c] = X[m, permutation[c]] * signs[c]
//               norm = sqrt of the sum of squares: p[c % 256] = fma(v[c], v[c], p[c % 256]) with c ascending, from 256 zeros; then p[i] +=
//                      p[i + h] for i < h, with h = 128, 64, ... 1; the sum is p[0]
//               v[c] = v[c] / (norm + epsilon), an IEEE division
//               within each aligned run of `block` columns, for width = 1, 2, 4, ... block/2: (v[c], v[c + width]) = (v[c] + v[c + width],
//                      v[c] - v[c + width]) for the c with (c & width) == 0
//               v[c] = v[c] * factor, the f32 nearest to 1/sqrt(block)
//               index = how many of the 15 boundaries v[c] exceeds, none if it is NaN; code = codebook[index]
enum class Op : std::uint8_t {
  dequantize,
  mul_mat,
  to_planar,
  to_gguf,
  out_prod,
  mul_mat_id,
  quantize_rows_int8,
  matmul_int8_rows,
  w4a4,
  rpbh_quantize
};
inline constexpr Op kOps[] = {Op::dequantize,         Op::mul_mat,          Op::to_planar, Op::to_gguf,      Op::out_prod, Op::mul_mat_id,
                              Op::quantize_rows_int8, Op::matmul_int8_rows, Op::w4a4,      Op::rpbh_quantize};
// Those on weight formats, which every decoded type answers.
inline constexpr Op kWeightOps[] = {Op::dequantize, Op::mul_mat, Op::to_planar, Op::to_gguf, Op::out_prod, Op::mul_mat_id};

// gguf: raw blocks, row after row, as in the file.
// planar: the same number of bytes; within each tile of 16 rows every block field is gathered into its own plane
// (docs/decisions/0003-planar-layout.md).
enum class Layout : std::uint8_t { gguf, planar };

// Bounds on the normalized mean squared error against double precision (docs/architecture.md, "Accuracy").
// exact: bit for bit; f32: 1e-10; tight: 1e-6; normal: 5e-5; loose: 5e-4. Ordered from strict to loose.
enum class Accuracy : std::uint8_t { exact, f32, tight, normal, loose };

struct Problem {
  Op op = Op::mul_mat;
  WeightType type = WeightType::q4_0;
  Layout layout = Layout::planar;
  std::int64_t m = 1;  // rows of X and Y (tokens)
  std::int64_t n = 0;  // rows of W (outputs)
  std::int64_t k = 0;  // columns of W (the reduction; for out_prod, whose reduction is n, the outputs)
  DType x_type = DType::f32;
  DType y_type = DType::f32;
  bool bias = false;
  Accuracy accuracy = Accuracy::normal;
  // Batch dims 2 and 3 of X and Y; W's batch index is X's divided by the ratio. 1 everywhere for a plain matrix.
  std::int64_t batch2 = 1;
  std::int64_t batch3 = 1;
  std::int64_t ratio2 = 1;
  std::int64_t ratio3 = 1;
  // mul_mat, out_prod: X is stored transposed, [columns, M] with M contiguous.
  bool x_transposed = false;
  // W's values are multiplied by one more f32, read from device memory (NVFP4's tensor scale); mul_mat_id: one per expert.
  bool scale = false;
  // mul_mat_id only. With x_broadcast X is [M,K], one row for all slots of a token, else [M,used,K].
  std::int64_t experts = 1;
  std::int64_t used = 1;
  bool x_broadcast = false;
  // w4a4 only. k_major: W is stored [K/2,N], a byte of every row behind one another. fused: one rounding for product and bias.
  bool k_major = false;
  bool fused = false;
  // rpbh_quantize only: columns that are turned together, a power of two that divides K.
  std::int64_t block = 1;

  auto operator<=>(const Problem&) const = default;
};

constexpr std::string_view to_string(Op op) {
  switch (op) {
    case Op::dequantize:
      return "dequantize";
    case Op::mul_mat:
      return "mul_mat";
    case Op::to_planar:
      return "to_planar";
    case Op::to_gguf:
      return "to_gguf";
    case Op::out_prod:
      return "out_prod";
    case Op::mul_mat_id:
      return "mul_mat_id";
    case Op::quantize_rows_int8:
      return "quantize_rows_int8";
    case Op::matmul_int8_rows:
      return "matmul_int8_rows";
    case Op::w4a4:
      return "w4a4";
    case Op::rpbh_quantize:
      return "rpbh_quantize";
  }
  return "?";
}
constexpr bool is_repack(Op op) { return op == Op::to_planar || op == Op::to_gguf; }
// Whether the op reads activations, so that m, x_type and an accuracy class mean something; the others are exact.
constexpr bool is_product(Op op) { return op == Op::mul_mat || op == Op::out_prod || op == Op::mul_mat_id; }
// Ops on integer codes: bit for bit, whatever the class.
constexpr bool is_integer(Op op) {
  return op == Op::quantize_rows_int8 || op == Op::matmul_int8_rows || op == Op::w4a4 || op == Op::rpbh_quantize;
}
// Which types of codes an integer op takes.
constexpr bool takes_codes(Op op, WeightType type) {
  if (type == WeightType::i8) return op == Op::quantize_rows_int8 || op == Op::matmul_int8_rows || op == Op::rpbh_quantize;
  return type == WeightType::code4 && (op == Op::w4a4 || op == Op::rpbh_quantize);
}
// Whether m counts rows of X.
constexpr bool has_rows(Op op) { return is_product(op) || is_integer(op); }
// Whether X is given as codes, so that x_type means nothing.
constexpr bool has_code_input(Op op) { return op == Op::matmul_int8_rows || op == Op::w4a4; }
// Whether Y are codes, so that y_type means nothing; W is not there, and n is 0.
constexpr bool has_code_output(Op op) { return op == Op::quantize_rows_int8 || op == Op::rpbh_quantize; }
constexpr bool has_bias(Op op) { return op == Op::mul_mat || op == Op::mul_mat_id || op == Op::matmul_int8_rows || op == Op::w4a4; }
constexpr std::string_view to_string(Layout layout) { return layout == Layout::gguf ? "gguf" : "planar"; }
constexpr std::string_view to_string(Accuracy accuracy) {
  switch (accuracy) {
    case Accuracy::exact:
      return "exact";
    case Accuracy::f32:
      return "f32";
    case Accuracy::tight:
      return "tight";
    case Accuracy::normal:
      return "normal";
    case Accuracy::loose:
      return "loose";
  }
  return "?";
}

constexpr std::optional<Op> op_from_name(std::string_view name) {
  for (auto v : kOps)
    if (to_string(v) == name) return v;
  return std::nullopt;
}
constexpr std::optional<Layout> layout_from_name(std::string_view name) {
  for (auto v : {Layout::gguf, Layout::planar})
    if (to_string(v) == name) return v;
  return std::nullopt;
}
constexpr std::optional<Accuracy> accuracy_from_name(std::string_view name) {
  for (auto v : {Accuracy::exact, Accuracy::f32, Accuracy::tight, Accuracy::normal, Accuracy::loose})
    if (to_string(v) == name) return v;
  return std::nullopt;
}

// Rows and columns of one matrix of X and of Y, as the op reads and writes them; packed indices count in bytes. mul_mat_id has M of them, a
// token's slots the rows.
struct Extent {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};
constexpr Extent x_extent(const Problem& p) {
  switch (p.op) {
    case Op::mul_mat:
      return {p.m, p.k};
    case Op::out_prod:
      return {p.m, p.n};
    case Op::mul_mat_id:
      return {p.x_broadcast ? 1 : p.used, p.k};
    case Op::quantize_rows_int8:
    case Op::matmul_int8_rows:
    case Op::rpbh_quantize:
      return {p.m, p.k};
    case Op::w4a4:
      return {p.m, p.k / 2};
    default:
      return {};
  }
}
constexpr Extent y_extent(const Problem& p) {
  switch (p.op) {
    case Op::mul_mat:
      return {p.m, p.n};
    case Op::out_prod:
      return {p.m, p.k};
    case Op::mul_mat_id:
      return {p.used, p.n};
    case Op::quantize_rows_int8:
      return {p.m, p.k};
    case Op::rpbh_quantize:
      return {p.m, p.type == WeightType::code4 ? p.k / 2 : p.k};
    case Op::matmul_int8_rows:
    case Op::w4a4:
      return {p.m, p.n};
    default:
      return {p.n, p.k};
  }
}
// Bytes of an element of X and of Y.
constexpr int x_element_bytes(const Problem& p) { return has_code_input(p.op) ? 1 : size_of(p.x_type); }
constexpr int y_element_bytes(const Problem& p) { return has_code_output(p.op) ? 1 : size_of(p.y_type); }
// Rows and bytes per row of one matrix of W, as they are stored.
constexpr Extent w_stored(const Problem& p) { return p.k_major ? Extent{p.k / 2, p.n} : Extent{p.n, row_bytes(p.type, p.k)}; }
// How many matrices of W there are, and of X and Y, in dims 2 and 3.
struct Batches {
  std::int64_t dim2 = 1;
  std::int64_t dim3 = 1;
  constexpr std::int64_t count() const { return dim2 * dim3; }
};
constexpr Batches w_batches(const Problem& p) {
  if (p.op == Op::mul_mat_id) return {p.experts, 1};
  return {p.batch2 / p.ratio2, p.batch3 / p.ratio3};
}
constexpr Batches xy_batches(const Problem& p) {
  if (p.op == Op::mul_mat_id) return {p.m, 1};
  return {p.batch2, p.batch3};
}
// No output at all: success without a launch.
constexpr bool is_empty(const Problem& p) {
  const Extent y = y_extent(p);
  return y.rows == 0 || y.columns == 0 || xy_batches(p).count() == 0;
}

// The same problem with the fields that mean nothing to its op at one value, so that two ways to write it are one key: an integer op is
// exact, has one layout, and codes have no element type.
constexpr Problem canonical(Problem p) {
  if (!is_integer(p.op)) return p;
  p.accuracy = Accuracy::exact;
  p.layout = Layout::planar;
  if (has_code_input(p.op)) p.x_type = DType::f32;
  if (has_code_output(p.op)) p.y_type = DType::f32;
  if (!p.bias) p.fused = false;
  return p;
}

// One line, every field that its op has, fixed order:
// "mul_mat q4_0 planar m=1 n=14336 k=4096 x=f32 y=f32 bias=0 class=normal batch=1,1 ratio=1,1". Behind it, where they are not the defaults:
// transposed=1, scale=1, k_major=1, fused=1, block=N; for mul_mat_id always experts=E used=U broadcast=0|1.
inline std::string to_string(const Problem& p) {
  std::string s;
  s.append(to_string(p.op)).append(" ").append(to_string(p.type)).append(" ").append(to_string(p.layout));
  s += " m=" + std::to_string(p.m) + " n=" + std::to_string(p.n) + " k=" + std::to_string(p.k);
  s.append(" x=").append(to_string(p.x_type)).append(" y=").append(to_string(p.y_type));
  s += std::string(" bias=") + (p.bias ? "1" : "0");
  s.append(" class=").append(to_string(p.accuracy));
  s += " batch=" + std::to_string(p.batch2) + "," + std::to_string(p.batch3);
  s += " ratio=" + std::to_string(p.ratio2) + "," + std::to_string(p.ratio3);
  if (p.x_transposed) s += " transposed=1";
  if (p.scale) s += " scale=1";
  if (p.k_major) s += " k_major=1";
  if (p.fused) s += " fused=1";
  if (p.block != 1) s += " block=" + std::to_string(p.block);
  if (p.op == Op::mul_mat_id)
    s += " experts=" + std::to_string(p.experts) + " used=" + std::to_string(p.used) + " broadcast=" + (p.x_broadcast ? "1" : "0");
  return s;
}

// The names of all ops, for messages.
inline std::string all_op_names() {
  std::string s;
  for (const Op op : kOps) s.append(s.empty() ? "" : " ").append(to_string(op));
  return s;
}

// Reads the text form. The op and type come first; every other field is optional, in any order, and defaults as in Problem.
// Errors: kInvalidArgument, naming the field and the text found.
Result<Problem> parse_problem(std::string_view text);

// Checks what no kernel could accept: K not a multiple of the block, negative or overflowing sizes, ratios that do not divide, fields that
// the op does not have. Errors: kInvalidArgument, naming the field, the value found and the value needed.
Status validate(const Problem& problem);

}  // namespace quern

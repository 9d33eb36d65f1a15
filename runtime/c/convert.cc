#include "runtime/c/convert.h"

#include <string>
#include <string_view>
#include <utility>

#include "runtime/c/structs.h"

namespace quern::c {
namespace {

// What was appended since the first release makes a struct longer.
static_assert(sizeof(quern_context_options) == kContextOptionsSize && sizeof(quern_context_info) == kContextInfoSize);
static_assert(sizeof(quern_problem) == kProblemSize + 16 && sizeof(quern_plan_options) == kPlanOptionsSize);
static_assert(sizeof(quern_plan_info) == kPlanInfoSize && sizeof(quern_launch_args) == kLaunchArgsSize + 72);
static_assert(sizeof(quern_launch_record) == kLaunchRecordSize + 8);

template <class Cpp>
constexpr bool same(int c, Cpp cpp) {
  return c == static_cast<int>(cpp);
}

static_assert(to_c(ErrorCode::kInvalidArgument) == QUERN_INVALID_ARGUMENT && to_c(ErrorCode::kUnsupported) == QUERN_UNSUPPORTED);
static_assert(to_c(ErrorCode::kCompileFailed) == QUERN_COMPILE_FAILED && to_c(ErrorCode::kLaunchFailed) == QUERN_LAUNCH_FAILED);
static_assert(to_c(ErrorCode::kDeviceLost) == QUERN_DEVICE_LOST && to_c(ErrorCode::kVersionMismatch) == QUERN_VERSION_MISMATCH);
static_assert(to_c(ErrorCode::kCorrupt) == QUERN_CORRUPT && to_c(ErrorCode::kEnvironment) == QUERN_ENVIRONMENT);
static_assert(to_c(ErrorCode::kTimeout) == QUERN_TIMEOUT && to_c(ErrorCode::kCancelled) == QUERN_CANCELLED);

static_assert(same(QUERN_OP_DEQUANTIZE, Op::dequantize) && same(QUERN_OP_MUL_MAT, Op::mul_mat));
static_assert(same(QUERN_OP_TO_PLANAR, Op::to_planar) && same(QUERN_OP_TO_GGUF, Op::to_gguf));
static_assert(same(QUERN_OP_OUT_PROD, Op::out_prod) && same(QUERN_OP_MUL_MAT_ID, Op::mul_mat_id));
static_assert(same(QUERN_OP_QUANTIZE_ROWS_INT8, Op::quantize_rows_int8) && same(QUERN_OP_MATMUL_INT8_ROWS, Op::matmul_int8_rows) &&
              same(QUERN_OP_W4A4, Op::w4a4) && same(QUERN_OP_RPBH_QUANTIZE, Op::rpbh_quantize) && std::size(kOps) == 10);

static_assert(same(QUERN_TYPE_F32, WeightType::f32) && same(QUERN_TYPE_F16, WeightType::f16) && same(QUERN_TYPE_BF16, WeightType::bf16));
static_assert(same(QUERN_TYPE_Q4_0, WeightType::q4_0) && same(QUERN_TYPE_Q4_1, WeightType::q4_1) &&
              same(QUERN_TYPE_Q5_0, WeightType::q5_0));
static_assert(same(QUERN_TYPE_Q5_1, WeightType::q5_1) && same(QUERN_TYPE_Q8_0, WeightType::q8_0) &&
              same(QUERN_TYPE_Q2_K, WeightType::q2_k));
static_assert(same(QUERN_TYPE_Q3_K, WeightType::q3_k) && same(QUERN_TYPE_Q4_K, WeightType::q4_k) &&
              same(QUERN_TYPE_Q5_K, WeightType::q5_k));
static_assert(same(QUERN_TYPE_Q6_K, WeightType::q6_k) && same(QUERN_TYPE_IQ2_XXS, WeightType::iq2_xxs));
static_assert(same(QUERN_TYPE_IQ2_XS, WeightType::iq2_xs) && same(QUERN_TYPE_IQ3_XXS, WeightType::iq3_xxs));
static_assert(same(QUERN_TYPE_IQ1_S, WeightType::iq1_s) && same(QUERN_TYPE_IQ4_NL, WeightType::iq4_nl));
static_assert(same(QUERN_TYPE_IQ3_S, WeightType::iq3_s) && same(QUERN_TYPE_IQ2_S, WeightType::iq2_s));
static_assert(same(QUERN_TYPE_IQ4_XS, WeightType::iq4_xs) && same(QUERN_TYPE_IQ1_M, WeightType::iq1_m));
static_assert(same(QUERN_TYPE_TQ1_0, WeightType::tq1_0) && same(QUERN_TYPE_TQ2_0, WeightType::tq2_0));
static_assert(same(QUERN_TYPE_MXFP4, WeightType::mxfp4) && same(QUERN_TYPE_NVFP4, WeightType::nvfp4));
static_assert(same(QUERN_TYPE_Q1_0, WeightType::q1_0) && same(QUERN_TYPE_Q2_0, WeightType::q2_0) && kWeightTypes.size() == 28);
static_assert(same(QUERN_TYPE_I8, WeightType::i8) && same(QUERN_TYPE_CODE4, WeightType::code4) && kCodeTypes.size() == 2);

static_assert(same(QUERN_LAYOUT_GGUF, Layout::gguf) && same(QUERN_LAYOUT_PLANAR, Layout::planar));
static_assert(same(QUERN_DTYPE_F32, DType::f32) && same(QUERN_DTYPE_F16, DType::f16) && same(QUERN_DTYPE_BF16, DType::bf16));
static_assert(same(QUERN_ACCURACY_EXACT, Accuracy::exact) && same(QUERN_ACCURACY_F32, Accuracy::f32));
static_assert(same(QUERN_ACCURACY_TIGHT, Accuracy::tight) && same(QUERN_ACCURACY_NORMAL, Accuracy::normal) &&
              same(QUERN_ACCURACY_LOOSE, Accuracy::loose));
static_assert(same(QUERN_PROVENANCE_EXACT, Provenance::exact) && same(QUERN_PROVENANCE_NEAREST, Provenance::nearest));
static_assert(same(QUERN_PROVENANCE_FALLBACK, Provenance::fallback) && same(QUERN_PROVENANCE_REQUESTED, Provenance::requested));

std::string text(const char* from) { return from == nullptr ? std::string() : std::string(from); }

void set(std::string& to, const char* from) {
  if (from != nullptr) to = from;
}

// One field of a struct: "problem: op is 17, needed 0 to 5".
template <class Enum>
Status to_enum(const char* field, std::uint32_t found, Enum last, Enum* out) {
  const auto most = static_cast<std::uint32_t>(last);
  if (found > most) return invalid(std::string(field) + " is " + std::to_string(found) + ", needed 0 to " + std::to_string(most));
  *out = static_cast<Enum>(found);
  return {};
}

Status to_bool(const char* field, std::uint32_t found, bool* out) {
  if (found > 1) return invalid(std::string(field) + " is " + std::to_string(found) + ", needed 0 or 1");
  *out = found == 1;
  return {};
}

Status need_zero(const char* field, std::uint32_t found) {
  if (found != 0) return invalid(std::string(field) + " is " + std::to_string(found) + ", needed 0");
  return {};
}

std::int64_t or_one(std::int64_t value) { return value == 0 ? 1 : value; }
std::int64_t or_planned(std::int64_t value) { return value == 0 ? kAsPlanned : value; }

Status set_enums(const quern_problem& in, Problem* out) {
  QUERN_TRY(to_enum("problem: op", in.op, Op::rpbh_quantize, &out->op));
  QUERN_ASSIGN(out->type, to_weight_type(in.type));
  QUERN_ASSIGN(out->layout, to_layout(in.layout));
  QUERN_TRY(to_enum("problem: x_type", in.x_type, DType::bf16, &out->x_type));
  QUERN_TRY(to_enum("problem: y_type", in.y_type, DType::bf16, &out->y_type));
  return to_enum("problem: accuracy", in.accuracy, Accuracy::loose, &out->accuracy);
}

Status set_flags(const quern_problem& in, Problem* out) {
  QUERN_TRY(to_bool("problem: bias", in.bias, &out->bias));
  QUERN_TRY(to_bool("problem: x_transposed", in.x_transposed, &out->x_transposed));
  QUERN_TRY(to_bool("problem: scale", in.scale, &out->scale));
  QUERN_TRY(to_bool("problem: x_broadcast", in.x_broadcast, &out->x_broadcast));
  QUERN_TRY(to_bool("problem: k_major", in.k_major, &out->k_major));
  QUERN_TRY(to_bool("problem: fused", in.fused, &out->fused));
  return need_zero("problem: reserved", in.reserved);
}

Status set_directories(const quern_context_options& in, ContextOptions* out) {
  if (in.system_cache_directory_count == 0) return {};
  QUERN_TRY(need(in.system_cache_directories, "options: system_cache_directories"));
  out->system_cache_directories.clear();
  for (std::size_t i = 0; i < in.system_cache_directory_count; ++i) {
    QUERN_TRY(need(in.system_cache_directories[i], "options: an entry of system_cache_directories"));
    out->system_cache_directories.emplace_back(in.system_cache_directories[i]);
  }
  return {};
}

Status set_limits(const quern_context_options& in, ContextOptions* out) {
  if (in.cache_max_bytes < 0)
    return invalid("options: cache_max_bytes is " + std::to_string(in.cache_max_bytes) + ", needed at least 0 (the default)");
  if (in.compile_wait_ms < 0)
    return invalid("options: compile_wait_ms is " + std::to_string(in.compile_wait_ms) + ", needed at least 0 (the default)");
  if (in.cache_max_bytes > 0) out->cache_max_bytes = in.cache_max_bytes;
  if (in.compile_wait_ms > 0) out->compile_wait = std::chrono::milliseconds(in.compile_wait_ms);
  return {};
}

}  // namespace

Result<WeightType> to_weight_type(std::uint32_t type) {
  if (const auto known = weight_type_from_id(type)) return *known;
  for (const auto& entry : kCodeTypes)
    if (static_cast<std::uint32_t>(entry.type) == type) return entry.type;
  return invalid("weight type is " + std::to_string(type) + ", needed the id of a GGUF type such as 2 (q4_0) or 8 (q8_0)");
}

Result<Layout> to_layout(std::uint32_t layout) {
  Layout out{};
  QUERN_TRY(to_enum("layout", layout, Layout::planar, &out));
  return out;
}

Result<ContextOptions> to_options(const quern_context_options* caller) {
  if (caller == nullptr) return quern::from_environment();
  quern_context_options in;
  QUERN_TRY(read_struct(caller, kContextOptionsSize, "options", &in));
  bool from_environment = false, record = false, apart = false;
  QUERN_TRY(to_bool("options: from_environment", in.from_environment, &from_environment));
  QUERN_TRY(to_bool("options: record_launches", in.record_launches, &record));
  QUERN_TRY(to_bool("options: launch_apart", in.launch_apart, &apart));

  ContextOptions out = from_environment ? quern::from_environment() : ContextOptions();
  set(out.device, in.device);
  set(out.cache_directory, in.cache_directory);
  set(out.nvrtc_library, in.nvrtc_library);
  set(out.driver_library, in.driver_library);
  set(out.host_plugin, in.host_plugin);
  QUERN_TRY(set_directories(in, &out));
  QUERN_TRY(set_limits(in, &out));
  if (record) out.record_launches = true;
  if (apart) out.launch_apart = true;
  if (in.warn != nullptr) out.warn = [warn = in.warn, user = in.warn_user](const std::string& line) { warn(line.c_str(), user); };
  return out;
}

Result<Problem> to_problem(const quern_problem* caller) {
  quern_problem in;
  QUERN_TRY(read_struct(caller, kProblemSize, "problem", &in));
  Problem out;
  QUERN_TRY(set_enums(in, &out));
  QUERN_TRY(set_flags(in, &out));
  out.m = in.m, out.n = in.n, out.k = in.k;
  out.batch2 = or_one(in.batch2), out.batch3 = or_one(in.batch3);
  out.ratio2 = or_one(in.ratio2), out.ratio3 = or_one(in.ratio3);
  out.experts = or_one(in.experts), out.used = or_one(in.used), out.block = or_one(in.block);
  return out;
}

quern_problem from_problem(const Problem& problem) {
  quern_problem out = quern_problem_init();
  out.op = static_cast<std::uint32_t>(problem.op);
  out.type = static_cast<std::uint32_t>(problem.type);
  out.layout = static_cast<std::uint32_t>(problem.layout);
  out.m = problem.m, out.n = problem.n, out.k = problem.k;
  out.x_type = static_cast<std::uint32_t>(problem.x_type);
  out.y_type = static_cast<std::uint32_t>(problem.y_type);
  out.accuracy = static_cast<std::uint32_t>(problem.accuracy);
  out.bias = problem.bias, out.x_transposed = problem.x_transposed, out.scale = problem.scale;
  out.x_broadcast = problem.x_broadcast;
  out.batch2 = problem.batch2, out.batch3 = problem.batch3;
  out.ratio2 = problem.ratio2, out.ratio3 = problem.ratio3;
  out.experts = problem.experts, out.used = problem.used;
  out.k_major = problem.k_major, out.fused = problem.fused, out.block = problem.block == 1 ? 0 : problem.block;
  return out;
}

Result<PlanOptions> to_plan_options(const quern_plan_options* caller) {
  PlanOptions out;
  if (caller == nullptr) return out;
  quern_plan_options in;
  QUERN_TRY(read_struct(caller, kPlanOptionsSize, "plan options", &in));
  QUERN_TRY(to_bool("plan options: lazy", in.lazy, &out.lazy));
  if (in.config == nullptr) return out;
  QUERN_ASSIGN(out.config, parse_config(text(in.config)));
  return out;
}

Result<LaunchArgs> to_launch_args(const quern_launch_args* caller) {
  quern_launch_args in;
  QUERN_TRY(read_struct(caller, kLaunchArgsSize, "launch arguments", &in));
  QUERN_TRY(need_zero("launch arguments: reserved", in.reserved));
  for (const auto& [field, found] : {std::pair{"w.rows", in.w.rows},
                                     {"w.columns", in.w.columns},
                                     {"x.rows", in.x.rows},
                                     {"x.columns", in.x.columns},
                                     {"y.rows", in.y.rows},
                                     {"y.columns", in.y.columns}})
    if (found < 0)
      return invalid(std::string("launch arguments: ") + field + " is " + std::to_string(found) + ", needed at least 0 (as planned)");
  LaunchArgs out;
  out.w = {in.w.data,       or_planned(in.w.rows), or_planned(in.w.columns), in.w.row_bytes, in.w.stride2, in.w.stride3, in.w.scale,
           in.w_row_scales, in.w_row_norms};
  out.x = {in.x.data, or_planned(in.x.rows), or_planned(in.x.columns), in.x.row_stride, in.x.stride2, in.x.stride3, in.x_row_scales};
  out.y = {in.y.data, or_planned(in.y.rows), or_planned(in.y.columns), in.y.row_stride, in.y.stride2, in.y.stride3, in.y_row_scales};
  out.bias = in.bias;
  out.workspace = in.workspace, out.workspace_bytes = in.workspace_bytes;
  out.ids = {in.ids.data, in.ids.row_stride};
  QUERN_TRY(need_zero("launch arguments: rotation.reserved", in.rotation.reserved));
  // Of a caller that knows no codebooks everything here is zero.
  if (in.codebooks.x != nullptr || in.codebooks.w != nullptr)
    out.codebooks = {in.codebooks.x, in.codebooks.w, in.codebooks.activation_scale, in.codebooks.weight_scale};
  out.rotation = {in.rotation.permutation, in.rotation.signs, in.rotation.boundaries, in.rotation.codebook, in.rotation.epsilon};
  return out;
}

}  // namespace quern::c

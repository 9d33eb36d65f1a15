#include "bench/launch_cost.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "runtime/artifact.h"
#include "runtime/context_parts.h"
#include "runtime/cuda/driver_api.h"
#include "runtime/launch_args.h"
#include "tuner/bench_data.h"

namespace quern::bench {
namespace {

using Clock = std::chrono::steady_clock;

// Below the depth at which the driver makes the caller wait for the GPU.
constexpr int kLaunchesPerRound = 200;
constexpr int kRounds = 25;

double microseconds(Clock::time_point from, Clock::time_point to) { return std::chrono::duration<double, std::micro>(to - from).count(); }

struct Operands {
  std::vector<std::unique_ptr<Buffer>> buffers;
  LaunchArgs args;
  KernelArgs kernel;
};

// Zeros are valid weights of every type, and what is computed does not matter here.
Result<void*> zeros(Device& device, std::int64_t bytes, Operands& operands) {
  QUERN_ASSIGN(auto buffer, device.allocate(static_cast<std::size_t>(std::max<std::int64_t>(bytes, 256))));
  QUERN_TRY(device.fill(buffer->data(), 0, buffer->size()));
  operands.buffers.push_back(std::move(buffer));
  return operands.buffers.back()->data();
}

Status add_code_operands(Device& device, const Problem& problem, Operands& o) {
  LaunchArgs& a = o.args;
  QUERN_ASSIGN(void* x_scales, zeros(device, problem.m * 4, o));
  QUERN_ASSIGN(void* w_scales, zeros(device, problem.n * 4, o));
  QUERN_ASSIGN(void* table, zeros(device, problem.k * 4, o));  // at least 256 bytes: codebooks and boundaries, too
  if (has_code_input(problem.op)) a.x.row_scales = static_cast<const float*>(x_scales);
  if (has_code_output(problem.op)) a.y.row_scales = static_cast<float*>(x_scales);
  if (problem.op == Op::matmul_int8_rows) a.w.row_scales = static_cast<const float*>(w_scales);
  const auto* codes = static_cast<const std::int8_t*>(table);
  if (problem.op == Op::w4a4) a.w.row_norms = w_scales, a.codebooks = {.x = codes, .w = codes};
  if (problem.op == Op::rpbh_quantize) {
    a.rotation = {.permutation = static_cast<const std::int32_t*>(table), .signs = codes, .boundaries = static_cast<const float*>(table)};
    a.rotation.codebook = problem.type == WeightType::i8 ? codes : nullptr;
    a.rotation.epsilon = 1;
  }
  return {};
}

Result<Operands> make_operands(Device& device, const Problem& problem, std::size_t workspace_bytes) {
  Operands o;
  const Extent x_shape = x_extent(problem), y_shape = y_extent(problem);
  const std::int64_t matrices = xy_batches(problem).count(), w_bytes = weight_bytes(problem);
  const std::int64_t experts = problem.op == Op::mul_mat_id ? problem.experts : 1;
  const std::int64_t y_bytes = is_repack(problem.op) ? w_bytes : matrices * y_shape.rows * y_shape.columns * y_element_bytes(problem);
  QUERN_ASSIGN(o.args.w.data, zeros(device, w_bytes, o));
  QUERN_ASSIGN(o.args.y.data, zeros(device, y_bytes, o));
  QUERN_ASSIGN(o.args.workspace, zeros(device, static_cast<std::int64_t>(workspace_bytes), o));
  o.args.workspace_bytes = workspace_bytes;
  if (has_rows(problem.op)) {
    QUERN_ASSIGN(o.args.x.data, zeros(device, matrices * x_shape.rows * x_shape.columns * x_element_bytes(problem), o));
  }
  if (problem.bias) {
    QUERN_ASSIGN(o.args.bias, zeros(device, experts * problem.n * size_of(problem.y_type), o));
  }
  if (problem.scale) {
    QUERN_ASSIGN(void* scale, zeros(device, experts * 4, o));
    o.args.w.scale = static_cast<const float*>(scale);
  }
  if (problem.op == Op::mul_mat_id) {
    QUERN_ASSIGN(void* ids, zeros(device, problem.m * problem.used * 4, o));
    o.args.ids.data = static_cast<const std::int32_t*>(ids);
  }
  if (is_integer(problem.op)) QUERN_TRY(add_code_operands(device, problem, o));
  QUERN_TRY(fill_kernel_args(problem, workspace_bytes, o.args, &o.kernel));
  return o;
}

// The least of many rounds: whatever else the machine does only ever adds.
template <class LaunchOnce>
Result<double> fastest_round(Device& device, Stream stream, LaunchOnce launch_once) {
  double best = 1e300;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = Clock::now();
    for (int i = 0; i < kLaunchesPerRound; ++i) QUERN_TRY(launch_once());
    const auto end = Clock::now();
    QUERN_TRY(device.synchronize(stream));
    best = std::min(best, microseconds(start, end) / kLaunchesPerRound);
  }
  return best;
}

struct ReadyKernel {
  std::unique_ptr<Module> module;
  std::vector<Module::Function> functions;
  std::vector<LaunchStep> steps;
};

// The kernel of the plan once more, as bare function handles.
Result<ReadyKernel> load_bare(const ContextParts& parts, const Context& context, const Plan& plan) {
  QUERN_ASSIGN(const KernelSource source, parts.kernels.render(plan.problem(), context.target(), plan.config()));
  if (parts.compiler == nullptr) return Error{parts.compiler_missing};
  QUERN_ASSIGN(const Binary binary, get_or_compile(*parts.store, *parts.compiler, source, context.target()));
  ReadyKernel kernel{.steps = source.steps};
  QUERN_ASSIGN(kernel.module, parts.device->load(binary));
  for (const auto& step : kernel.steps) {
    QUERN_ASSIGN(const auto function, kernel.module->function(step.entry, step.shared_bytes));
    kernel.functions.push_back(function);
  }
  return kernel;
}

}  // namespace

Result<LaunchCost> measure_launch_cost(const Context& context, const Problem& problem, const std::string& driver_library) {
  if (context.target().kind != Target::Kind::cuda)
    return Error{ErrorCode::kUnsupported, "launch cost: needs a CUDA device, found " + context.device_spec(), {}};
  const ContextParts& parts = parts_of(context);
  Device& device = *parts.device;
  QUERN_ASSIGN(const Plan plan, context.plan(problem));
  QUERN_ASSIGN(Operands operands, make_operands(device, problem, plan.workspace_bytes()));
  QUERN_ASSIGN(const ReadyKernel kernel, load_bare(parts, context, plan));
  QUERN_ASSIGN(const auto driver, cuda::open_driver(driver_library));
  QUERN_ASSIGN(const Stream stream, device.create_stream());

  cuda::CUcontext primary = nullptr, ignored = nullptr;
  const int ordinal = std::stoi(context.device_spec().substr(context.device_spec().find(':') + 1));
  cuda::CUdevice handle = 0;
  driver->device_get(&handle, ordinal);
  driver->primary_context_retain(&primary, handle);
  driver->context_push(primary);  // both ways of launching find it current, as a program's own thread would have it
  void* parameters[] = {&operands.kernel};
  const auto bare = [&]() -> Status {
    for (std::size_t i = 0; i < kernel.steps.size(); ++i) {
      const auto& s = kernel.steps[i];
      if (driver->launch_kernel(static_cast<cuda::CUfunction>(kernel.functions[i].handle), s.grid.x, s.grid.y, s.grid.z, s.block.x,
                                s.block.y, s.block.z, s.shared_bytes, static_cast<cuda::CUstream>(stream), parameters,
                                nullptr) != cuda::kSuccess)
        return Error{ErrorCode::kLaunchFailed, "launch cost: cuLaunchKernel refused " + s.entry, {}};
    }
    return {};
  };
  const auto planned = fastest_round(device, stream, [&] { return plan.launch(stream, operands.args); });
  const auto direct = fastest_round(device, stream, bare);
  driver->context_pop(&ignored);
  driver->primary_context_release(handle);
  QUERN_TRY(device.destroy_stream(stream));
  if (!planned) return Error{planned.error()};
  if (!direct) return Error{direct.error()};
  return LaunchCost{.plan_us = *planned, .driver_us = *direct};
}

Result<FirstLaunch> first_launch(const ContextOptions& options, const Problem& problem) {
  const auto start = Clock::now();
  QUERN_ASSIGN(const Context context, Context::open(options));
  QUERN_ASSIGN(const Plan plan, context.plan(problem));
  Device& device = *parts_of(context).device;
  QUERN_ASSIGN(const Operands operands, make_operands(device, problem, plan.workspace_bytes()));
  QUERN_TRY(plan.launch(nullptr, operands.args));
  QUERN_TRY(device.synchronize(nullptr));
  return FirstLaunch{.ms = microseconds(start, Clock::now()) / 1e3, .compile_count = context.compile_count()};
}

}  // namespace quern::bench

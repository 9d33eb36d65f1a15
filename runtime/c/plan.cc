// quern_plan_... and quern_prepare_weights.
#include "runtime/c/convert.h"
#include "runtime/c/handles.h"
#include "runtime/c/structs.h"

using namespace quern;
using namespace quern::c;

quern_status quern_plan_create(const quern_context* context, const quern_problem* problem, const quern_plan_options* options,
                               quern_plan** plan) {
  return guard([&]() -> Status {
    QUERN_TRY(need(plan, "the output plan"));
    *plan = nullptr;
    QUERN_TRY(check(context));
    QUERN_ASSIGN(const auto cpp_problem, to_problem(problem));
    QUERN_ASSIGN(const auto cpp_options, to_plan_options(options));
    QUERN_ASSIGN(auto made, context->context.plan(cpp_problem, cpp_options));
    *plan = new quern_plan(std::move(made));
    return {};
  });
}

quern_status quern_plan_create_prepare_weights(const quern_context* context, uint32_t type, int64_t n, int64_t k, uint32_t from,
                                               quern_plan** plan) {
  return guard([&]() -> Status {
    QUERN_TRY(need(plan, "the output plan"));
    *plan = nullptr;
    QUERN_TRY(check(context));
    QUERN_ASSIGN(const auto weight_type, to_weight_type(type));
    QUERN_ASSIGN(const auto layout, to_layout(from));
    QUERN_ASSIGN(auto made, context->context.plan_prepare_weights(weight_type, n, k, layout));
    *plan = new quern_plan(std::move(made));
    return {};
  });
}

void quern_plan_destroy(quern_plan* plan) { destroy(plan); }

quern_status quern_plan_get_info(const quern_plan* plan, quern_plan_info* info) {
  return guard([&]() -> Status {
    QUERN_TRY(check(plan));
    const Plan& cpp = plan->plan;
    const ResourceUsage usage = cpp.usage();
    quern_plan_info value = quern_plan_info_init();
    value.is_ready = cpp.ready() ? 1 : 0;
    value.provenance = static_cast<std::uint32_t>(cpp.provenance());
    value.accuracy = static_cast<std::uint32_t>(cpp.accuracy());
    value.workspace_bytes = cpp.workspace_bytes();
    value.problem = plan->problem.c_str();
    {
      const std::lock_guard lock(plan->mutex);
      value.config = plan->configs.insert(to_string(cpp.config())).first->c_str();
    }
    value.reason = cpp.reason().c_str();
    value.artifact = cpp.artifact().c_str();
    value.registers = usage.registers;
    value.static_shared_bytes = usage.static_shared_bytes;
    value.local_bytes = usage.local_bytes;
    value.spill_bytes = usage.spill_bytes;
    return write_struct(value, kPlanInfoSize, "plan info", info);
  });
}

quern_status quern_plan_prepare(const quern_plan* plan) {
  return guard([&]() -> Status {
    QUERN_TRY(check(plan));
    return plan->plan.prepare();
  });
}

quern_status quern_plan_check(const quern_plan* plan, const quern_launch_args* args) {
  return guard([&]() -> Status {
    QUERN_TRY(check(plan));
    QUERN_ASSIGN(const auto cpp_args, to_launch_args(args));
    return plan->plan.check(cpp_args);
  });
}

quern_status quern_plan_launch(const quern_plan* plan, void* stream, const quern_launch_args* args) {
  return guard([&]() -> Status {
    QUERN_TRY(check(plan));
    QUERN_ASSIGN(const auto cpp_args, to_launch_args(args));
    return plan->plan.launch(stream, cpp_args);
  });
}

quern_status quern_prepare_weights(const quern_context* context, void* stream, const quern_plan* plan, const void* source,
                                   void* destination, void* workspace, size_t workspace_bytes) {
  return guard([&]() -> Status {
    QUERN_TRY(check(context));
    QUERN_TRY(check(plan));
    return context->context.prepare_weights(stream, plan->plan, source, destination, workspace, workspace_bytes);
  });
}

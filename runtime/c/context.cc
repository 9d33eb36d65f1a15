// quern_context_..., quern_launch_records_... and what needs no handle.
#include <memory>

#include "runtime/c/convert.h"
#include "runtime/c/handles.h"
#include "runtime/c/structs.h"

using namespace quern;
using namespace quern::c;

quern_status quern_context_open(const quern_context_options* options, quern_context** context) {
  return guard([&]() -> Status {
    QUERN_TRY(need(context, "the output context"));
    *context = nullptr;
    QUERN_ASSIGN(const auto cpp_options, to_options(options));
    QUERN_ASSIGN(auto opened, Context::open(cpp_options));
    *context = new quern_context(std::move(opened));
    return {};
  });
}

void quern_context_close(quern_context* context) { destroy(context); }

quern_status quern_context_get_info(const quern_context* context, quern_context_info* info) {
  return guard([&]() -> Status {
    QUERN_TRY(check(context));
    quern_context_info value = quern_context_info_init();
    value.is_lost = context->context.is_lost() ? 1 : 0;
    value.device_spec = context->context.device_spec().c_str();
    value.device = context->device.c_str();
    value.target = context->target.c_str();
    value.compile_count = context->context.compile_count();
    return write_struct(value, kContextInfoSize, "context info", info);
  });
}

quern_status quern_context_is_lost(const quern_context* context, int* is_lost) {
  return guard([&]() -> Status {
    QUERN_TRY(check(context));
    QUERN_TRY(need(is_lost, "the output is_lost"));
    *is_lost = context->context.is_lost() ? 1 : 0;
    return {};
  });
}

quern_status quern_context_synchronize(const quern_context* context, void* stream) {
  return guard([&]() -> Status {
    QUERN_TRY(check(context));
    return context->context.synchronize(stream);
  });
}

quern_status quern_problem_parse(const char* text, quern_problem* problem) {
  return guard([&]() -> Status {
    QUERN_TRY(need(text, "the problem's text"));
    QUERN_TRY(need(problem, "problem"));
    QUERN_ASSIGN(const auto parsed, parse_problem(text));
    const quern_problem value = from_problem(parsed);
    if (!fits(value, problem->struct_size) && problem->struct_size >= kProblemSize)
      return Error{ErrorCode::kUnsupported,
                   "problem's struct_size is " + std::to_string(problem->struct_size) + ", '" + text + "' needs " +
                       std::to_string(sizeof(quern_problem)),
                   {}};
    return write_struct(value, kProblemSize, "problem", problem);
  });
}

quern_status quern_supports(const quern_context* context, const quern_problem* problem) {
  return guard([&]() -> Status {
    QUERN_TRY(check(context));
    QUERN_ASSIGN(const auto cpp_problem, to_problem(problem));
    return context->context.supports(cpp_problem);
  });
}

quern_status quern_weight_bytes(uint32_t type, int64_t n, int64_t k, size_t* bytes) {
  return guard([&]() -> Status {
    QUERN_TRY(need(bytes, "the output bytes"));
    QUERN_ASSIGN(const auto weight_type, to_weight_type(type));
    const Op op = weight_type == WeightType::i8 ? Op::matmul_int8_rows : weight_type == WeightType::code4 ? Op::w4a4 : Op::dequantize;
    QUERN_TRY(validate({.op = op, .type = weight_type, .n = n, .k = k}));
    *bytes = static_cast<std::size_t>(n) * static_cast<std::size_t>(row_bytes(weight_type, k));
    return {};
  });
}

quern_status quern_launch_records_take(const quern_context* context, quern_launch_records** records, size_t* count) {
  return guard([&]() -> Status {
    QUERN_TRY(need(records, "the output records"));
    *records = nullptr;
    QUERN_TRY(check(context));
    QUERN_TRY(need(count, "the output count"));
    auto taken = std::make_unique<quern_launch_records>();
    for (auto& record : context->context.launch_records()) {
      std::string config = to_string(record.config);
      std::string entries;
      for (const auto& entry : record.entries) entries += (entries.empty() ? "" : " ") + entry;
      taken->records.push_back({std::move(record), std::move(config), std::move(entries)});
    }
    *count = taken->records.size();
    *records = taken.release();
    return {};
  });
}

quern_status quern_launch_records_get(const quern_launch_records* records, size_t index, quern_launch_record* record) {
  return guard([&]() -> Status {
    QUERN_TRY(check(records));
    if (index >= records->records.size())
      return invalid("launch record " + std::to_string(index) + " is asked for, there are " + std::to_string(records->records.size()));
    const auto& found = records->records[index];
    quern_launch_record value = quern_launch_record_init();
    value.family = found.record.family.c_str();
    value.config = found.config.c_str();
    value.problem = found.record.problem.c_str();
    value.artifact = found.record.artifact.c_str();
    value.launches = found.record.count;
    value.entries = found.entries.c_str();
    return write_struct(value, kLaunchRecordSize, "launch record", record);
  });
}

void quern_launch_records_free(quern_launch_records* records) { destroy(records); }

// The structs of quern/quern.h to those of quern/context.h and back.
#pragma once

#include "quern/context.h"
#include "quern/quern.h"
#include "quern/result.h"

namespace quern::c {

Result<ContextOptions> to_options(const quern_context_options* in);  // null: from the environment
Result<Problem> to_problem(const quern_problem* in);                 // checks the fields' own ranges; validate() the rest
Result<PlanOptions> to_plan_options(const quern_plan_options* in);   // null: the defaults
Result<LaunchArgs> to_launch_args(const quern_launch_args* in);
quern_problem from_problem(const Problem& problem);

Result<WeightType> to_weight_type(std::uint32_t type);
Result<Layout> to_layout(std::uint32_t layout);

// Sizes of the first release's structs: the least that is accepted, and never changed.
inline constexpr std::size_t kContextOptionsSize = 104;
inline constexpr std::size_t kContextInfoSize = 40;
inline constexpr std::size_t kProblemSize = 120;
inline constexpr std::size_t kPlanOptionsSize = 16;
inline constexpr std::size_t kPlanInfoSize = 72;
inline constexpr std::size_t kLaunchArgsSize = 224;
inline constexpr std::size_t kLaunchRecordSize = 48;

}  // namespace quern::c

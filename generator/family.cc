#include "generator/family.h"

#include <algorithm>
#include <array>

#include "generator/families.h"

namespace quern {

std::span<const Family* const> families() {
  static const std::array<const Family*, 17> kFamilies{
      &generic_family(),  &dequantize_family(), &repack_family(),     &gemv_f32_family(),      &gemv_q8_family(),       &gemm_family(),
      &wgmma_family(),    &gemm_t_family(),     &wgmma_t_family(),    &quantize_rows_family(), &rpbh_quantize_family(), &int8_dot_family(),
      &int8_mma_family(), &w4a4_pairs_family(), &w4a4_table_family(), &w4a4_register_family(), &w4a4_mma_family()};
  return kFamilies;
}

const Family* find_family(std::string_view name) {
  for (const Family* family : families())
    if (family->name() == name) return family;
  return nullptr;
}

std::vector<const Family*> families_for(const Problem& problem, const Target& target) {
  std::vector<const Family*> result;
  for (const Family* family : families())
    if (family->supports(problem, target)) result.push_back(family);
  return result;
}

Status supports(const Problem& problem, const Target& target) {
  QUERN_TRY(validate(problem));
  std::string reasons;  // of the op's own families
  for (const Family* family : families()) {
    const auto status = family->supports(problem, target);
    if (status) return {};
    if (status.error().message.starts_with(std::string(family->name()) + ": op is ")) continue;
    reasons += (reasons.empty() ? "" : "; ") + status.error().message;
  }
  return Error{ErrorCode::kUnsupported, to_string(problem) + ": no family supports it for " + to_string(target) + ": " + reasons, {}};
}

Config default_config(const Problem& problem, const Target& target) {
  // Later families are faster where they apply. Up to 8 rows the GEMV's default is the safer choice: at M=8 on an H200 the tensor cores'
  // best is 10% ahead of it for Q4_0, but their default is 60% behind it for Q8_0.
  auto candidates = families_for(problem, target);
  if (candidates.empty()) return {};
  const Family* best = candidates.back();
  std::int64_t rows = problem.m, gemv_rows = info(problem.type).block_elements == 1 ? 4 : 8;
  if (problem.op == Op::mul_mat_id) {
    // The GEMV reads an expert's weights once per row, the GEMM once per expert that has rows: with two rows per expert on average, 2.3
    // times as often. On an H200 one pass of the GEMM takes as long as 1.7 (Q8_0) to 2.5 (Q4_K) of the GEMV at M=1.
    rows *= problem.used;
    gemv_rows = std::max(gemv_rows, 2 * problem.experts);
  }
  if (is_product(problem.op) && rows <= gemv_rows && candidates.size() > 1 && best->name() == "gemm")
    best = candidates[candidates.size() - 2];
  // The dot products of int8 codes are the faster ones for one and two rows. Where indices have to be looked up tensor cores are faster
  // from one row on, but for a k-major W, which they gather byte by byte.
  // On the host target, where lanes of an mma wait for one another, one row of 300 x 320 by dot products took a tenth of the time.
  const std::int64_t dot_rows = problem.k_major || target.kind == Target::Kind::host ? 8 : problem.op == Op::matmul_int8_rows ? 2 : 0;
  if (is_integer(problem.op) && problem.m <= dot_rows && candidates.size() > 1 && best->name().ends_with("_mma"))
    best = candidates[candidates.size() - 2];
  return best->space(problem, target).default_config();
}

Result<KernelSource> render(const Problem& problem, const Target& target, const Config& config) {
  QUERN_TRY(validate(problem));
  const Family* family = find_family(config.family);
  if (!family) return Error{ErrorCode::kInvalidArgument, "config: no family is called '" + config.family + "'", {}};
  QUERN_TRY(family->supports(problem, target));
  QUERN_TRY(family->space(problem, target).check(config));
  return family->render(problem, target, config);
}

}  // namespace quern

#include "generator/target_limits.h"

namespace quern {

TargetLimits limits_of(const Target& target) {
  TargetLimits limits;
  if (target.kind == Target::Kind::host) {
    limits.shared_bytes_per_block = 227 * 1024;  // the host runs what a data-center GPU runs
    limits.threads_per_sm = 2048;
    limits.tensor_cores_bf16 = true;
    return limits;
  }
  limits.tensor_cores_bf16 = target.sm >= 80;
  switch (target.sm) {
    case 75:
      limits.shared_bytes_per_block = 64 * 1024;
      limits.threads_per_sm = 1024;
      break;
    case 80:
    case 87:
      limits.shared_bytes_per_block = 163 * 1024;
      limits.threads_per_sm = target.sm == 80 ? 2048 : 1536;
      break;
    case 90:
    case 100:
    case 103:
    case 110:
      limits.shared_bytes_per_block = 227 * 1024;
      limits.threads_per_sm = 2048;
      break;
    default:  // 86, 89, 120, 121 and what is not known yet: the smallest of the recent ones
      limits.shared_bytes_per_block = 99 * 1024;
      limits.threads_per_sm = 1536;
      break;
  }
  return limits;
}

}  // namespace quern

// Where candidates come from: the generator's families, or planted ones in a test.
#pragma once

#include <functional>
#include <vector>

#include "generator/family.h"

namespace quern {

struct CandidateSource {
  std::function<std::vector<const Family*>(const Problem&, const Target&)> families;
  std::function<Config(const Problem&, const Target&)> default_config;
  std::function<Result<KernelSource>(const Problem&, const Target&, const Config&)> render;
};

// families_for, default_config and render of the generator.
CandidateSource generated_candidates();

}  // namespace quern

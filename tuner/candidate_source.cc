#include "tuner/candidate_source.h"

namespace quern {

CandidateSource generated_candidates() {
  return CandidateSource{[](const Problem& p, const Target& t) { return families_for(p, t); },
                         [](const Problem& p, const Target& t) { return default_config(p, t); },
                         [](const Problem& p, const Target& t, const Config& c) { return render(p, t, c); }};
}

}  // namespace quern

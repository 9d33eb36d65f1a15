// Which stored configs may answer a problem, best first.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/store.h"
#include "quern/config.h"
#include "quern/context.h"
#include "quern/problem.h"
#include "quern/target.h"

namespace quern {

struct Candidate {
  Config config;
  Provenance provenance = Provenance::fallback;
  std::string reason;    // one line
  std::string artifact;  // hex key of the binary that was measured, or empty
};

struct Lookup {
  std::vector<Candidate> candidates;  // the exact tuning if there is one, then those of similar problems, nearest first
  std::string note;                   // why there is no exact tuning, naming rows of other devices or versions; empty when there is one
};

// How far a tuned problem is from the wanted one; empty when its config must not be used. They must agree in everything but M, N, K and the
// accuracy class (a config tuned within a stricter class is also good for a looser one). Distance = 2 |log2 M'/M| + |log2 N'/N| + |log2
// K'/K|: M weighs double because it moves the balance between reading weights and computing. Beyond a factor of 2 in M or 4 in N or K the
// default config, which knows the shape, is the better guess.
std::optional<double> tuning_distance(const Problem& wanted, const Problem& tuned);

// Reads the store only; the same rows give the same answer (ties go to the lexicographically smaller problem). Tunings of another device
// identity or generator version are never used, only named.
Lookup look_up(cache::Store& store, const Problem& problem, const DeviceIdentity& device, std::string_view generator_version);

}  // namespace quern

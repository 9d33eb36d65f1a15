#include "runtime/lookup.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace quern {
namespace {

// Each neighbour that does not fit may cost a compile before the default is reached.
constexpr std::size_t kMaxNeighbours = 4;

double log2_ratio(std::int64_t a, std::int64_t b) { return std::abs(std::log2(static_cast<double>(a) / static_cast<double>(b))); }

std::string why_not_exact(cache::Store& store, const std::string& problem, const std::string& device, std::string_view generator_version) {
  for (const auto& winner : store.winners({}, {})) {
    if (winner.key.problem != problem) continue;
    if (winner.key.device != device) return "tuned for another device (" + winner.key.device + "), not used here";
    if (winner.key.generator_version != generator_version)
      return "tuned by generator version " + winner.key.generator_version + ", this one is " + std::string(generator_version) +
             ": not used";
  }
  return "not tuned on this kind of device";
}

struct Neighbour {
  double distance = 0;
  cache::Winner winner;
};

std::vector<Neighbour> neighbours(cache::Store& store, const Problem& problem, const std::string& device,
                                  std::string_view generator_version) {
  std::vector<Neighbour> found;
  const std::string wanted = to_string(problem);
  for (auto& winner : store.winners(device, generator_version)) {
    if (winner.key.problem == wanted) continue;
    const auto tuned = parse_problem(winner.key.problem);
    if (!tuned) continue;
    if (const auto distance = tuning_distance(problem, *tuned)) found.push_back({*distance, std::move(winner)});
  }
  std::sort(found.begin(), found.end(), [](const Neighbour& a, const Neighbour& b) {
    return std::tie(a.distance, a.winner.key.problem) < std::tie(b.distance, b.winner.key.problem);
  });
  return found;
}

}  // namespace

std::optional<double> tuning_distance(const Problem& wanted, const Problem& tuned) {
  Problem same = tuned;
  same.m = wanted.m, same.n = wanted.n, same.k = wanted.k, same.accuracy = wanted.accuracy;
  if (same != wanted || tuned.accuracy > wanted.accuracy) return std::nullopt;
  if (std::min({wanted.m, wanted.n, wanted.k, tuned.m, tuned.n, tuned.k}) <= 0) return std::nullopt;
  const double m = log2_ratio(tuned.m, wanted.m), n = log2_ratio(tuned.n, wanted.n), k = log2_ratio(tuned.k, wanted.k);
  if (m > 1 || n > 2 || k > 2) return std::nullopt;
  return 2 * m + n + k;
}

Lookup look_up(cache::Store& store, const Problem& problem, const DeviceIdentity& device, std::string_view generator_version) {
  const std::string wanted = to_string(problem), where = to_string(device);
  Lookup lookup;
  if (auto winner = store.find_winner({wanted, where, std::string(generator_version)}))
    lookup.candidates.push_back({winner->config, Provenance::exact, "tuned for this problem on " + where, winner->artifact});
  else
    lookup.note = why_not_exact(store, wanted, where, generator_version);
  auto near = neighbours(store, problem, where, generator_version);
  if (near.size() > kMaxNeighbours) near.resize(kMaxNeighbours);
  for (const auto& [distance, winner] : near)
    lookup.candidates.push_back(
        {winner.config, Provenance::nearest, "tuned for the nearest problem '" + winner.key.problem + "' on " + where, winner.artifact});
  return lookup;
}

}  // namespace quern

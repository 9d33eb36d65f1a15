#include "generator/search_space.h"

#include <algorithm>

namespace quern {

namespace {

Config config_of_defaults(const std::string& family, const std::vector<Parameter>& parameters) {
  Config config{family, {}};
  for (const auto& p : parameters) config.values.push_back({p.name, p.default_value});
  return config;
}

}  // namespace

Parameter& DefaultChooser::find(std::string_view name) {
  return *std::find_if(parameters_.begin(), parameters_.end(), [&](const Parameter& p) { return p.name == name; });
}

void DefaultChooser::start(std::string_view name, std::int64_t value) { find(name).default_value = value; }

void DefaultChooser::wish(std::string_view name, std::int64_t value) {
  Parameter& parameter = find(name);
  const auto before = parameter.default_value;
  parameter.default_value = value;
  if (!constraint_(config_of_defaults(family_, parameters_)).empty()) parameter.default_value = before;
}

Config SearchSpace::default_config() const { return config_of_defaults(family_, parameters_); }

Config SearchSpace::completed(const Config& config) const {
  Config result = default_config();
  for (const auto& given : config.values) {
    const auto at = std::find_if(result.values.begin(), result.values.end(), [&](const auto& v) { return v.name == given.name; });
    if (at == result.values.end()) return config;
    at->value = given.value;
  }
  return result;
}

Status SearchSpace::check_given(const Config& config) const {
  auto fail = [&](const std::string& what) { return Error{ErrorCode::kInvalidArgument, "config " + to_string(config) + ": " + what, {}}; };
  auto add = [](std::string& list, const std::string& one) { list += (list.empty() ? "" : ", ") + one; };
  for (const auto& v : config.values) {
    const auto p = std::find_if(parameters_.begin(), parameters_.end(), [&](const Parameter& one) { return one.name == v.name; });
    std::string offered;
    if (p == parameters_.end()) {
      for (const auto& one : parameters_) add(offered, one.name);
      return fail(family_ + " has no parameter '" + v.name + "', needed one of " + offered);
    }
    if (std::find(p->values.begin(), p->values.end(), v.value) != p->values.end()) continue;
    for (auto o : p->values) add(offered, std::to_string(o));
    return fail(v.name + " is " + std::to_string(v.value) + ", needed one of " + offered);
  }
  return {};
}

Status SearchSpace::check(const Config& config) const {
  auto fail = [&](const std::string& what) { return Error{ErrorCode::kInvalidArgument, "config " + to_string(config) + ": " + what, {}}; };
  if (config.family != family_) return fail("family is '" + config.family + "', needed '" + family_ + "'");
  if (config.values.size() != parameters_.size())
    return fail("has " + std::to_string(config.values.size()) + " parameters, needed " + std::to_string(parameters_.size()));
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (config.values[i].name != parameters_[i].name)
      return fail("parameter " + std::to_string(i) + " is '" + config.values[i].name + "', needed '" + parameters_[i].name + "'");
  QUERN_TRY(check_given(config));
  for (const auto& constraint : constraints_)
    if (std::string reason = constraint(config); !reason.empty()) return fail(reason);
  return {};
}

std::vector<Config> SearchSpace::enumerate() const {
  std::vector<Config> result;
  std::vector<std::size_t> at(parameters_.size(), 0);
  Config config = default_config();
  while (true) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) config.values[i].value = parameters_[i].values[at[i]];
    if (std::all_of(constraints_.begin(), constraints_.end(), [&](const auto& c) { return c(config).empty(); })) result.push_back(config);
    std::size_t i = parameters_.size();
    while (i > 0 && ++at[i - 1] == parameters_[i - 1].values.size()) at[--i] = 0;
    if (i == 0) return result;
  }
}

std::uint64_t SearchSpace::combinations() const {
  std::uint64_t product = 1;
  for (const auto& p : parameters_) product *= p.values.size();
  return product;
}

}  // namespace quern

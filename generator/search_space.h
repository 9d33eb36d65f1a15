// What a family offers for a problem: named parameters, their values, constraints, and a default that needs no tuning.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "quern/config.h"

namespace quern {

struct Parameter {
  std::string name;
  std::vector<std::int64_t> values;  // ascending
  std::int64_t default_value = 0;    // one of values
};

// Returns an empty string for an allowed config, else the reason, naming the parameter, its value and the value needed.
using Constraint = std::function<std::string(const Config&)>;

// Builds the default config wish by wish: `start` puts a value without a check, `wish` takes one only where the config of all defaults
// stays allowed, so that later wishes give way to earlier ones.
class DefaultChooser {
 public:
  DefaultChooser(std::string family, std::vector<Parameter>& parameters, const Constraint& constraint)
      : family_(std::move(family)), parameters_(parameters), constraint_(constraint) {}
  void start(std::string_view name, std::int64_t value);
  void wish(std::string_view name, std::int64_t value);

 private:
  Parameter& find(std::string_view name);

  std::string family_;
  std::vector<Parameter>& parameters_;
  const Constraint& constraint_;
};

class SearchSpace {
 public:
  using Constraint = quern::Constraint;

  SearchSpace(std::string family, std::vector<Parameter> parameters, std::vector<Constraint> constraints = {})
      : family_(std::move(family)), parameters_(std::move(parameters)), constraints_(std::move(constraints)) {}

  const std::string& family() const { return family_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }

  Config default_config() const;
  // Of the parameters that `config` gives: kInvalidArgument for one that there is not or a value that is not offered.
  Status check_given(const Config& config) const;
  // Parameters that `config` does not give have the default's values; what else is wrong with it check() says.
  Config completed(const Config& config) const;
  // Ok, or kInvalidArgument: unknown, missing or extra parameter, value not offered, constraint broken.
  Status check(const Config& config) const;
  // All valid configs in lexicographic order of the parameters' values; the same order on every machine.
  std::vector<Config> enumerate() const;
  // How many combinations there are before constraints.
  std::uint64_t combinations() const;

 private:
  std::string family_;
  std::vector<Parameter> parameters_;
  std::vector<Constraint> constraints_;
};

}  // namespace quern

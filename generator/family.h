// A kernel family: which problems it can answer, with which configs, and the source of each. Stateless and thread-safe.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "generator/search_space.h"
#include "quern/kernel.h"
#include "quern/problem.h"
#include "quern/target.h"

namespace quern {

class Family {
 public:
  virtual ~Family() = default;

  // Lower-case, stable: part of every config's text.
  virtual std::string_view name() const = 0;
  // Ok, or kUnsupported with the property of the problem that this family lacks. Problems are valid (validate()).
  virtual Status supports(const Problem& problem, const Target& target) const = 0;
  // Requires supports(). Never empty; its default config is valid.
  virtual SearchSpace space(const Problem& problem, const Target& target) const = 0;
  // Requires a config that is valid in space(). Errors: kInvalidArgument naming the parameter.
  virtual Result<KernelSource> render(const Problem& problem, const Target& target, const Config& config) const = 0;
};

// Every family, simplest first. The first that supports a problem always includes `generic`, which supports every legal one.
std::span<const Family* const> families();
const Family* find_family(std::string_view name);

// Families that support the problem within its accuracy class, simplest first.
std::vector<const Family*> families_for(const Problem& problem, const Target& target);
// Ok when some family answers the problem: then default_config does. Errors: validate()'s, or kUnsupported with every family's reason.
Status supports(const Problem& problem, const Target& target);
// The config that needs no tuning: the best family's default for this shape. Its family is empty where none answers the problem
// (families_for is empty: a batched dequantize, say).
Config default_config(const Problem& problem, const Target& target);
// Checks the config against its family's space, then renders. Errors: kUnsupported or kInvalidArgument, naming what does not fit.
Result<KernelSource> render(const Problem& problem, const Target& target, const Config& config);

}  // namespace quern

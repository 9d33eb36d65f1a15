// The problems that a command works on: those of a model file or of a problem file, narrowed by options.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "quern/problem.h"
#include "quern/result.h"

namespace CLI {
class App;
}

namespace quern::tools {

struct ProblemSelection {
  std::string file;
  // For a model these say which problems its matrices make; for a problem file, which of its problems to keep. Empty: the default, or all.
  std::vector<std::string> ops, layouts, types;
  std::vector<std::int64_t> ms;
  std::string accuracy;  // empty: as the file says, or normal
  std::string x_dtype, y_dtype;
};

// Adds the file and --op --layout --type --m --class --x-dtype --y-dtype.
void add_selection(CLI::App& sub, ProblemSelection& selection);

struct SelectedProblems {
  std::vector<Problem> problems;   // not empty
  std::vector<std::string> notes;  // what was left out and why, one line each
  std::string if_none = {};        // what to say where the filters leave nothing; empty: the first note
};
// Errors: kInvalidArgument for a file that cannot be read, or from which nothing remains; those of the readers.
Result<SelectedProblems> select_problems(const ProblemSelection& selection);

// Names for --op, --type and the like. Types are those that can be computed with.
std::vector<std::string> op_names();
std::vector<std::string> type_names();
std::vector<std::string> layout_names();
std::vector<std::string> accuracy_names();
std::vector<std::string> dtype_names();

// For tables: "mul_mat q4_0 14336x4096 m=1" and, where they are not the default, layout, element types, bias, class, batch.
std::string short_text(const Problem& problem);
// As to_string, or JSON: one object as in a problem file. Errors: kInvalidArgument.
Result<Problem> problem_from_text(const std::string& text);

}  // namespace quern::tools

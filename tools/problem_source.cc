#include "tools/problem_source.h"

#include <fmt/format.h>

#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <set>

#include "generator/source_text.h"
#include "tuner/gguf.h"
#include "tuner/model.h"
#include "tuner/problems_json.h"

namespace quern::tools {
namespace {

constexpr std::int64_t kLargestM = std::int64_t{1} << 31;

Error bad_input(const std::string& what) { return {ErrorCode::kInvalidArgument, what, {}}; }

Status check_readable(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return bad_input(path + ": " + std::strerror(errno));
  if (S_ISDIR(status.st_mode)) return bad_input(path + ": is a directory, needed a GGUF or JSON file");
  if (!S_ISREG(status.st_mode)) return bad_input(path + ": is not a regular file, needed a GGUF or JSON file");  // a pipe may never end
  std::ifstream file(path, std::ios::binary);
  if (!file) return bad_input(path + ": cannot be read");
  return {};
}

// By contents: problem files hold JSON, which cannot begin with these letters.
bool is_model(const std::string& path) {
  char magic[4] = {};
  std::ifstream(path, std::ios::binary).read(magic, sizeof magic);
  return std::memcmp(magic, "GGUF", 4) == 0 || path.ends_with(".gguf");
}

template <class T, class FromName>
std::vector<T> from_names(const std::vector<std::string>& names, FromName from_name) {
  std::vector<T> values;
  for (const auto& name : names)
    if (const auto value = from_name(name)) values.push_back(*value);
  return values;
}

template <class T>
bool among(const std::vector<T>& wanted, const T& value) {
  return wanted.empty() || std::find(wanted.begin(), wanted.end(), value) != wanted.end();
}

ModelProblemOptions model_options(const ProblemSelection& selection) {
  ModelProblemOptions options;
  if (!selection.ops.empty()) options.ops = from_names<Op>(selection.ops, op_from_name);
  if (!selection.layouts.empty()) options.layouts = from_names<Layout>(selection.layouts, layout_from_name);
  if (!selection.ms.empty()) options.ms = selection.ms;
  if (const auto dtype = dtype_from_name(selection.x_dtype)) options.x_type = *dtype;
  if (const auto dtype = dtype_from_name(selection.y_dtype)) options.y_type = *dtype;
  if (const auto accuracy = accuracy_from_name(selection.accuracy)) options.accuracy = *accuracy;
  return options;
}

// Tensors left out for one reason make one line.
void add_skipped(const Model& model, std::vector<std::string>& notes) {
  std::map<std::string, std::vector<std::string>> by_reason;
  for (const auto& tensor : model.skipped) by_reason[tensor.reason].push_back(tensor.name);
  for (const auto& [reason, names] : by_reason) {
    const std::string more = names.size() > 1 ? " and " + std::to_string(names.size() - 1) + " more" : "";
    notes.push_back("skipped " + names.front() + more + ": " + reason);
  }
}

Result<SelectedProblems> from_model(const ProblemSelection& selection) {
  QUERN_ASSIGN(const GgufFile file, GgufFile::open(selection.file));
  const Model model = group_matrices(file.contents(), has_decoder);
  SelectedProblems selected{.problems = problems_of_model(model, model_options(selection)), .notes = model.notes};
  add_skipped(model, selected.notes);
  // Shapes beyond what a problem may have: the same check that a list of problems gets.
  std::set<std::string> beyond;
  std::erase_if(selected.problems, [&](const Problem& p) {
    const auto legal = validate(p);
    if (!legal) beyond.insert(fmt::format("skipped {} {} x {}: {}", to_string(p.type), p.n, p.k, legal.error().message));
    return !legal;
  });
  selected.notes.insert(selected.notes.end(), beyond.begin(), beyond.end());
  return selected;
}

Result<SelectedProblems> from_problem_file(const ProblemSelection& selection) {
  SelectedProblems selected;
  QUERN_ASSIGN(selected.problems, read_problems_file(selection.file));
  if (!selected.problems.empty())
    selected.if_none = "none of its " + std::to_string(selected.problems.size()) + " problems is one of those asked for";
  const auto ops = from_names<Op>(selection.ops, op_from_name);
  const auto layouts = from_names<Layout>(selection.layouts, layout_from_name);
  std::erase_if(selected.problems,
                [&](const Problem& p) { return !among(ops, p.op) || !among(layouts, p.layout) || !among(selection.ms, p.m); });
  for (auto& problem : selected.problems) {
    if (const auto dtype = dtype_from_name(selection.x_dtype)) problem.x_type = *dtype;
    if (const auto dtype = dtype_from_name(selection.y_dtype)) problem.y_type = *dtype;
    if (const auto accuracy = accuracy_from_name(selection.accuracy)) problem.accuracy = *accuracy;
    problem = canonical(problem);  // what means nothing to an op stays out of its key
  }
  return selected;
}

}  // namespace

std::vector<std::string> op_names() {
  std::vector<std::string> names;
  for (const Op op : kOps) names.emplace_back(to_string(op));
  return names;
}
std::vector<std::string> layout_names() { return {"planar", "gguf"}; }
std::vector<std::string> accuracy_names() { return {"exact", "f32", "tight", "normal", "loose"}; }
std::vector<std::string> dtype_names() { return {"f32", "f16", "bf16"}; }
std::vector<std::string> type_names() {
  std::vector<std::string> names;
  for (const auto& info : kWeightTypes)
    if (has_decoder(info.type)) names.emplace_back(info.name);
  for (const auto& info : kCodeTypes) names.emplace_back(info.name);
  return names;
}

void add_selection(CLI::App& sub, ProblemSelection& selection) {
  sub.add_option("FILE", selection.file, "A model (GGUF), or a list of problems (JSON)")->required();
  sub.add_option("--op", selection.ops, "Ops")->delimiter(',')->check(CLI::IsMember(op_names()));
  sub.add_option("--type", selection.types, "Only weights of these types")->delimiter(',')->check(CLI::IsMember(type_names()));
  sub.add_option("--m", selection.ms, "Rows of X, e.g. 1,8,64,512 (the default for a model)")
      ->delimiter(',')
      ->check(CLI::Range(std::int64_t{1}, kLargestM));
  sub.add_option("--layout", selection.layouts, "Weight layouts")->delimiter(',')->check(CLI::IsMember(layout_names()));
  sub.add_option("--class", selection.accuracy, "Accuracy class")->check(CLI::IsMember(accuracy_names()));
  sub.add_option("--x-dtype", selection.x_dtype, "Element type of X")->check(CLI::IsMember(dtype_names()));
  sub.add_option("--y-dtype", selection.y_dtype, "Element type of Y")->check(CLI::IsMember(dtype_names()));
}

Result<SelectedProblems> select_problems(const ProblemSelection& selection) {
  QUERN_TRY(check_readable(selection.file));
  QUERN_ASSIGN(SelectedProblems selected, is_model(selection.file) ? from_model(selection) : from_problem_file(selection));
  const auto types = from_names<WeightType>(selection.types, weight_type_from_name);
  std::erase_if(selected.problems, [&](const Problem& p) { return !among(types, p.type); });
  if (!selected.problems.empty()) return selected;
  const std::string why = !selected.if_none.empty() ? selected.if_none
                          : selected.notes.empty()  ? "no matrix in it"
                                                    : selected.notes.front();
  return bad_input(selection.file + ": nothing to tune: " + why);
}

std::string short_text(const Problem& p) {
  const Problem defaults{.op = p.op, .accuracy = is_product(p.op) ? Accuracy::normal : Accuracy::exact};
  std::string text(to_string(p.op));
  text.append(" ").append(to_string(p.type)).append(" ") += std::to_string(p.n) + "x" + std::to_string(p.k);
  if (has_rows(p.op)) text += " m=" + std::to_string(p.m);
  if (p.layout != (p.op == Op::to_planar ? Layout::gguf : Layout::planar)) text.append(" ").append(to_string(p.layout));
  if (p.x_type != defaults.x_type && has_rows(p.op) && !has_code_input(p.op)) text.append(" x=").append(to_string(p.x_type));
  if (p.y_type != defaults.y_type) text.append(" y=").append(to_string(p.y_type));
  if (p.bias) text += " bias";
  if (p.accuracy != defaults.accuracy) text.append(" ").append(to_string(p.accuracy));
  if (p.batch2 * p.batch3 != 1) text += " batch=" + std::to_string(p.batch2) + "," + std::to_string(p.batch3);
  if (p.ratio2 * p.ratio3 != 1) text += " ratio=" + std::to_string(p.ratio2) + "," + std::to_string(p.ratio3);
  if (p.x_transposed) text += " transposed";
  if (p.scale) text += " scale";
  if (p.op == Op::mul_mat_id) text += " used=" + std::to_string(p.used) + " of " + std::to_string(p.experts);
  if (p.x_broadcast) text += " broadcast";
  if (p.k_major) text += " k-major";
  if (p.fused) text += " fused";
  if (p.block != 1) text += " block=" + std::to_string(p.block);
  return text;
}

Result<Problem> problem_from_text(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\n");
  if (first == std::string::npos || (text[first] != '{' && text[first] != '[')) {
    QUERN_ASSIGN(const Problem problem, parse_problem(text));
    QUERN_TRY(validate(problem));
    return problem;
  }
  QUERN_ASSIGN(const auto problems, parse_problems_json(text[first] == '{' ? "[" + text + "]" : text));
  if (problems.size() != 1) return bad_input("found " + std::to_string(problems.size()) + " problems, needed one");
  return problems.front();
}

}  // namespace quern::tools

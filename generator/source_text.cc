#include "generator/source_text.h"

#include <algorithm>
#include <set>

#include "templates/embedded.h"

namespace quern {
namespace {

const EmbeddedFile* find_embedded(std::string_view name) {
  for (const auto& file : embedded_files())
    if (file.name == name) return &file;
  return nullptr;
}

// Names in `#include "..."` lines, in order.
std::vector<std::string_view> included_names(std::string_view text) {
  constexpr std::string_view kDirective = "#include \"";
  std::vector<std::string_view> names;
  for (std::size_t at = text.find(kDirective); at != std::string_view::npos; at = text.find(kDirective, at + 1)) {
    std::size_t start = at + kDirective.size(), end = text.find('"', start);
    names.push_back(text.substr(start, end - start));
  }
  return names;
}

// Every embedded file that `text` reaches, sorted by name.
std::vector<SourceHeader> reachable_headers(std::string_view text) {
  std::set<std::string_view> seen;
  std::vector<std::string_view> open = included_names(text);
  std::vector<SourceHeader> headers;
  while (!open.empty()) {
    std::string_view name = open.back();
    open.pop_back();
    if (!seen.insert(name).second) continue;
    const EmbeddedFile* file = find_embedded(name);
    if (!file) continue;  // the compiler will name it
    headers.push_back({std::string(name), std::string(file->text)});
    for (auto inner : included_names(file->text)) open.push_back(inner);
  }
  std::sort(headers.begin(), headers.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return headers;
}

}  // namespace

int ConfigReader::take(std::string_view name) {
  taken_.emplace_back(name);
  if (auto value = config_.find(name)) return static_cast<int>(*value);
  missing_.emplace_back(name);
  return 0;
}

Status ConfigReader::finish() const {
  if (!missing_.empty())
    return Error{ErrorCode::kInvalidArgument, "config " + to_string(config_) + ": needs parameter '" + missing_.front() + "'", {}};
  for (const auto& v : config_.values)
    if (std::find(taken_.begin(), taken_.end(), v.name) == taken_.end())
      return Error{
          ErrorCode::kInvalidArgument, "config " + to_string(config_) + ": parameter '" + v.name + "' is not used by the family", {}};
  return {};
}

SourceText::SourceText(std::string_view family, const Problem& problem) : problem_(problem) {
  source_.name = std::string(family) + "_" + std::string(to_string(problem.type));
}

SourceText& SourceText::include(std::string_view header) {
  includes_ += "#include \"" + std::string(header) + "\"\n";
  return *this;
}

SourceText& SourceText::problem_types() {
  auto flag = [](bool value) { return value ? "true" : "false"; };
  if (is_integer(problem_.op)) {
    include("families/element.cuh");
    declarations_ += "using X = quern::" + std::string(to_string(problem_.x_type)) + ";\n";
    declarations_ += "using Y = quern::" + std::string(to_string(problem_.y_type)) + ";\n";
    declarations_ += std::string("using In = quern::Input<X, false>;\nusing Out = quern::Output<Y, ") + flag(problem_.bias) + ", false>;\n";
    return *this;
  }
  std::string type(to_string(problem_.type));
  include("decode/" + type + ".cuh");
  declarations_ += "using Weight = quern::decode::" + type + ";\n";
  declarations_ += std::string("using Layout = quern::") + (problem_.layout == Layout::planar ? "PlanarLayout" : "GgufLayout") + ";\n";
  declarations_ += "using X = quern::" + std::string(to_string(problem_.x_type)) + ";\n";
  declarations_ += "using Y = quern::" + std::string(to_string(problem_.y_type)) + ";\n";
  if (is_repack(problem_.op)) return *this;
  include("families/element.cuh");
  declarations_ += std::string("using In = quern::Input<X, ") + flag(problem_.x_transposed) + ">;\n";
  declarations_ += std::string("using Out = quern::Output<Y, ") + flag(problem_.bias) + ", " + flag(problem_.scale) + ">;\n";
  if (!is_product(problem_.op)) return *this;
  include("families/matrices.cuh");
  declarations_ += std::string("using Matrices = quern::") + (routed() ? "RoutedRows" : "BatchMatrices") + "<X, Y>;\n";
  return *this;
}

SourceText& SourceText::geometry(std::string_view type, const std::vector<std::pair<std::string, long long>>& fields) {
  std::string list;
  for (const auto& [name, value] : fields) list += (list.empty() ? "." : ", .") + name + " = " + std::to_string(value);
  declarations_ += "constexpr quern::" + std::string(type) + " kGeometry{" + list + "};\n";
  return *this;
}

SourceText& SourceText::entry(LaunchStep step, int min_blocks, std::string_view parameter, const std::string& statements, Wait wait) {
  if (source_.steps.empty()) wait = Wait::at_entry;  // whose launch is before it is not known
  kernels_ += "\nQUERN_KERNEL(" + step.entry + ", " + std::to_string(step.block.x) + ", " + std::to_string(min_blocks) +
              ")(QUERN_GRID_CONSTANT quern::KernelArgs " + std::string(parameter) + ") {\n";
  if (wait == Wait::at_entry) kernels_ += "  quern::ptx::wait_previous();\n  quern::ptx::allow_next();\n";
  kernels_ += "  " + statements + "\n}\n";
  step.overlaps_previous = true;
  source_.steps.push_back(std::move(step));
  return *this;
}

SourceText& SourceText::kernel(LaunchStep step, int min_blocks, std::string_view body, Wait wait) {
  return entry(std::move(step), min_blocks, "args", std::string(body), wait);
}

SourceText& SourceText::kernel_per_matrix(LaunchStep step, int min_blocks, std::string_view body, Wait wait) {
  const std::int64_t matrices = is_product(problem_.op) ? xy_batches(problem_).count() * (routed() ? problem_.used : 1) : 1;
  if (matrices == 1 && !routed()) return kernel(std::move(step), min_blocks, body, wait);
  per_matrix_ = true;
  matrices_ = matrices;
  step.grid.y = static_cast<std::uint32_t>(matrices);
  std::string select = "Matrices::select(args, all, quern::ptx::block_y(), kMatrixWorkspace)";
  if (routed())
    select = "if (!" + select + ") return quern::write_no_expert<Y, " + std::to_string(step.block.x) + ">(args);";
  else
    select += ";";
  return entry(std::move(step), min_blocks, "all", "quern::KernelArgs args;\n  " + select + "\n  " + std::string(body), wait);
}

KernelSource SourceText::finish(std::size_t workspace_bytes, Accuracy accuracy) && {
  if (per_matrix_) {
    workspace_bytes = (workspace_bytes + 255) / 256 * 256;
    declarations_ += "constexpr long long kMatrixWorkspace = " + std::to_string(workspace_bytes) + ";\n";
    workspace_bytes *= static_cast<std::size_t>(matrices_);
  }
  source_.text = includes_ + "\nnamespace {\n" + declarations_ + "}  // namespace\n" + kernels_;
  source_.headers = reachable_headers(source_.text);
  source_.workspace_bytes = workspace_bytes;
  source_.accuracy = accuracy;
  return std::move(source_);
}

bool has_decoder(WeightType type) { return find_embedded("decode/" + std::string(to_string(type)) + ".cuh") != nullptr; }

}  // namespace quern

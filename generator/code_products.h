// What the families of code products share: their parameters and the rules of their search spaces, each in one place.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "generator/family_support.h"
#include "generator/search_space.h"
#include "generator/source_text.h"
#include "geometry/code_rows.h"

namespace quern {

using GeometryFields = std::vector<std::pair<std::string, long long>>;

// Reasons are empty strings where nothing speaks against a config.

Status supports_code_op(std::string_view family, const Problem& p, Op op);

// By dot products. `least_dot`: the smallest block that there is, its row of X staged.
Status supports_staged(std::string_view family, long long bytes, long long limit);
CodeDotGeometry least_dot(const Problem& p, int row_bytes, int pieces, int table_bytes);
CodeDotGeometry take_dot(ConfigReader& reader, const Problem& p, CodeDotGeometry g);
GeometryFields fields_of(const CodeDotGeometry& g);
std::string check_rows_of_x(int m, const Problem& p);
std::string check_shared(long long bytes, long long limit);
std::string check_dot(const CodeDotGeometry& g, const Problem& p, int least_lanes, long long shared_limit);

// On tensor cores. `most_fragments`: of W by those of X that a warp's registers hold.
Status supports_code_mma(std::string_view family, const Problem& p, const Target& target, bool tensor_cores);
std::vector<Parameter> mma_parameters();
CodeMmaGeometry take_mma(ConfigReader& reader, const Problem& p, int row_bytes, int pieces);
GeometryFields fields_of(const CodeMmaGeometry& g);
std::string check_mma(const CodeMmaGeometry& g, const Problem& p, int most_fragments, long long shared_limit);
void wish_mma(DefaultChooser& choose, const Problem& p);

}  // namespace quern

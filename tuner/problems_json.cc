#include "tuner/problems_json.h"

#include <algorithm>
#include <fstream>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

namespace quern {
namespace {

using Json = nlohmann::json;

// A problem needs three levels. Printing a value recurses, so what nests deeper must never become one.
constexpr int kMaxDepth = 16;

// One entry of the list while it is read; `index` and `field` name the place in every message.
struct Entry {
  std::size_t index;
  const Json& object;

  Error error(std::string_view field, const std::string& found, const std::string& needed) const {
    return Error{ErrorCode::kInvalidArgument,
                 "problem " + std::to_string(index) + ": field \"" + std::string(field) + "\": found " + found + ", needed " + needed,
                 {}};
  }
  // A value as it stands in the file, on one line and of bounded length.
  static std::string shown(const Json& value) {
    std::string s = value.dump(-1, ' ', true, Json::error_handler_t::replace);
    return s.size() > 60 ? s.substr(0, 57) + "..." : s;
  }
};

Result<std::int64_t> integer(const Entry& entry, std::string_view field, const Json& value, std::int64_t least) {
  const std::string needed = "an integer of at least " + std::to_string(least);
  if (!value.is_number_integer()) return entry.error(field, Entry::shown(value), needed);
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX))
    return entry.error(field, Entry::shown(value), needed + " below 2^63");
  const auto number = value.get<std::int64_t>();
  if (number < least) return entry.error(field, Entry::shown(value), needed);
  return number;
}

template <class T>
Result<T> named(const Entry& entry, std::string_view field, const Json& value, std::optional<T> (*from_name)(std::string_view),
                const std::string& needed) {
  if (value.is_string())
    if (const auto found = from_name(value.get_ref<const std::string&>())) return *found;
  return entry.error(field, Entry::shown(value), needed);
}

Result<bool> flag(const Entry& entry, std::string_view field, const Json& value) {
  if (!value.is_boolean()) return entry.error(field, Entry::shown(value), "true or false");
  return value.get<bool>();
}

// A number for dim 2, or [dim 2, dim 3].
Status pair_field(const Entry& entry, std::string_view field, const Json& value, std::int64_t& second, std::int64_t& third) {
  if (value.is_array()) {
    if (value.size() != 2) return entry.error(field, Entry::shown(value), "an integer, or an array of two");
    QUERN_ASSIGN(second, integer(entry, field, value[0], 1));
    QUERN_ASSIGN(third, integer(entry, field, value[1], 1));
    return {};
  }
  QUERN_ASSIGN(second, integer(entry, field, value, 1));
  return {};
}

constexpr const char* kKeys =
    "op type n k m layout x_dtype y_dtype bias class batch ratio epilogue x_transposed scale experts used x_broadcast k_major fused block";

Status apply_field(const Entry& entry, const std::string& key, const Json& value, Problem& p) {
  if (key == "op") {
    QUERN_ASSIGN(p.op, named<Op>(entry, key, value, op_from_name, "one of " + all_op_names()));
  } else if (key == "type") {
    QUERN_ASSIGN(p.type, named<WeightType>(entry, key, value, weight_type_from_name, "a weight type such as q4_0"));
  } else if (key == "n") {
    QUERN_ASSIGN(p.n, integer(entry, key, value, has_code_output(p.op) ? 0 : 1));
  } else if (key == "k") {
    QUERN_ASSIGN(p.k, integer(entry, key, value, 1));
  } else if (key == "m") {
    QUERN_ASSIGN(p.m, integer(entry, key, value, 1));
  } else if (key == "layout") {
    QUERN_ASSIGN(p.layout, named<Layout>(entry, key, value, layout_from_name, "gguf or planar"));
  } else if (key == "x_dtype") {
    QUERN_ASSIGN(p.x_type, named<DType>(entry, key, value, dtype_from_name, "f32, f16 or bf16"));
  } else if (key == "y_dtype") {
    QUERN_ASSIGN(p.y_type, named<DType>(entry, key, value, dtype_from_name, "f32, f16 or bf16"));
  } else if (key == "bias") {
    QUERN_ASSIGN(p.bias, flag(entry, key, value));
  } else if (key == "x_transposed") {
    QUERN_ASSIGN(p.x_transposed, flag(entry, key, value));
  } else if (key == "scale") {
    QUERN_ASSIGN(p.scale, flag(entry, key, value));
  } else if (key == "x_broadcast") {
    QUERN_ASSIGN(p.x_broadcast, flag(entry, key, value));
  } else if (key == "k_major") {
    QUERN_ASSIGN(p.k_major, flag(entry, key, value));
  } else if (key == "fused") {
    QUERN_ASSIGN(p.fused, flag(entry, key, value));
  } else if (key == "block") {
    QUERN_ASSIGN(p.block, integer(entry, key, value, 1));
  } else if (key == "experts") {
    QUERN_ASSIGN(p.experts, integer(entry, key, value, 1));
  } else if (key == "used") {
    QUERN_ASSIGN(p.used, integer(entry, key, value, 1));
  } else if (key == "class") {
    QUERN_ASSIGN(p.accuracy, named<Accuracy>(entry, key, value, accuracy_from_name, "exact, f32, tight, normal or loose"));
  } else if (key == "batch") {
    QUERN_TRY(pair_field(entry, key, value, p.batch2, p.batch3));
  } else if (key == "ratio") {
    QUERN_TRY(pair_field(entry, key, value, p.ratio2, p.ratio3));
  } else if (key == "epilogue") {
    if (value != "none") return entry.error(key, Entry::shown(value), "\"none\"");
  } else {
    return entry.error(key, "an unknown field", std::string("one of: ") + kKeys);
  }
  return {};
}

// What the fields left out mean depends on the op, so the op is read first.
Result<Problem> defaults(const Entry& entry) {
  Problem p;
  QUERN_TRY(apply_field(entry, "op", entry.object.at("op"), p));
  if (!is_product(p.op)) p.accuracy = Accuracy::exact;
  if (p.op == Op::to_planar) p.layout = Layout::gguf;
  return p;
}

Result<Problem> read_entry(std::size_t index, const Json& object) {
  const Entry entry{index, object};
  if (!object.is_object())
    return Error{
        ErrorCode::kInvalidArgument, "problem " + std::to_string(index) + ": found " + Entry::shown(object) + ", needed an object", {}};
  if (!object.contains("op")) return entry.error("op", "nothing", "a value");
  QUERN_ASSIGN(Problem p, defaults(entry));
  for (const char* key : {"type", "n", "k"})
    if (!object.contains(key) && !(has_code_output(p.op) && std::string_view(key) == "n")) return entry.error(key, "nothing", "a value");
  if (has_rows(p.op) && !object.contains("m")) return entry.error("m", "nothing", "an integer of at least 1");
  for (const auto& [key, value] : object.items()) QUERN_TRY(apply_field(entry, key, value, p));
  if (auto legal = validate(p); !legal)
    return Error{ErrorCode::kInvalidArgument, "problem " + std::to_string(index) + ": " + legal.error().message, {}};
  return canonical(p);
}

Problem defaulted_like(const Problem& p) {
  Problem d;
  d.op = p.op;
  if (!is_product(p.op)) d.accuracy = Accuracy::exact;
  if (p.op == Op::to_planar) d.layout = Layout::gguf;
  return d;
}

std::string pair_text(std::int64_t second, std::int64_t third) {
  return third == 1 ? std::to_string(second) : "[" + std::to_string(second) + ", " + std::to_string(third) + "]";
}

void add_problem(std::vector<Problem>& problems, const Problem& p) {
  if (std::find(problems.begin(), problems.end(), p) == problems.end()) problems.push_back(p);
}

}  // namespace

Result<std::vector<Problem>> parse_problems_json(std::string_view text) {
  Json root;
  bool too_deep = false;
  // Of two fields of one name the last would win, and the first be lost silently.
  std::vector<std::set<std::string>> names;
  std::string twice;
  const auto shallow = [&](int depth, Json::parse_event_t event, const Json& parsed) {
    too_deep = too_deep || depth > kMaxDepth;
    if (event == Json::parse_event_t::object_start) names.emplace_back();
    if (event == Json::parse_event_t::object_end) names.pop_back();
    if (event == Json::parse_event_t::key && !names.back().insert(parsed.get<std::string>()).second) twice = parsed.get<std::string>();
    return depth <= kMaxDepth;
  };
  try {
    root = Json::parse(text, shallow);
  } catch (const Json::parse_error& e) {
    // `byte` counts from 1 and is one past the end where more was needed.
    const std::size_t at = std::min<std::size_t>(e.byte == 0 ? 0 : e.byte - 1, text.size());
    const std::string found = at == text.size() ? "its end" : Entry::shown(Json(std::string(text.substr(at, 20))));
    return Error{ErrorCode::kInvalidArgument,
                 "problem list: not JSON: at byte " + std::to_string(at) + " found " + found +
                     R"(, needed an array of problems such as [{"op": "mul_mat", "type": "q4_0", "n": 64, "k": 32, "m": 1}])",
                 {}};
  } catch (const Json::exception&) {
    return Error{ErrorCode::kInvalidArgument, "problem list: not JSON: a number is too large", {}};
  }
  if (too_deep)
    return Error{ErrorCode::kInvalidArgument,
                 "problem list: nested more than " + std::to_string(kMaxDepth) + " deep, needed an array of problems",
                 {}};
  if (!twice.empty()) return Error{ErrorCode::kInvalidArgument, "problem list: " + twice + " is given already", {}};
  if (!root.is_array())
    return Error{ErrorCode::kInvalidArgument, "problem list: found " + Entry::shown(root) + ", needed an array of problems", {}};
  std::vector<Problem> problems;
  for (std::size_t i = 0; i < root.size(); ++i) {
    QUERN_ASSIGN(Problem p, read_entry(i, root[i]));
    problems.push_back(p);
  }
  return problems;
}

Result<std::vector<Problem>> read_problems_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file || file.bad()) return Error{ErrorCode::kInvalidArgument, path + ": cannot be read", {}};
  auto problems = parse_problems_json(text.view());
  if (!problems) problems.error().message = path + ": " + problems.error().message;
  return problems;
}

std::string problems_to_json(std::span<const Problem> problems) {
  std::string out = "[";
  const char* separator = "\n";
  for (const Problem& p : problems) {
    const Problem d = defaulted_like(p);
    auto quoted = [](std::string_view name, std::string_view value) {
      return "\"" + std::string(name) + "\": \"" + std::string(value) + "\"";
    };
    out += separator;
    out += "  {" + quoted("op", to_string(p.op)) + ", " + quoted("type", to_string(p.type));
    if (!has_code_output(p.op)) out += ", \"n\": " + std::to_string(p.n);
    out += ", \"k\": " + std::to_string(p.k) + ", \"m\": " + std::to_string(p.m);
    if (p.layout != d.layout) out += ", " + quoted("layout", to_string(p.layout));
    if (p.x_type != d.x_type) out += ", " + quoted("x_dtype", to_string(p.x_type));
    if (p.y_type != d.y_type) out += ", " + quoted("y_dtype", to_string(p.y_type));
    if (p.bias) out += ", \"bias\": true";
    if (p.accuracy != d.accuracy) out += ", " + quoted("class", to_string(p.accuracy));
    if (p.batch2 != 1 || p.batch3 != 1) out += ", \"batch\": " + pair_text(p.batch2, p.batch3);
    if (p.ratio2 != 1 || p.ratio3 != 1) out += ", \"ratio\": " + pair_text(p.ratio2, p.ratio3);
    if (p.x_transposed) out += ", \"x_transposed\": true";
    if (p.scale) out += ", \"scale\": true";
    if (p.k_major) out += ", \"k_major\": true";
    if (p.fused) out += ", \"fused\": true";
    if (p.block != 1) out += ", \"block\": " + std::to_string(p.block);
    if (p.op == Op::mul_mat_id) {
      out += ", \"experts\": " + std::to_string(p.experts) + ", \"used\": " + std::to_string(p.used);
      if (p.x_broadcast) out += ", \"x_broadcast\": true";
    }
    out += "}";
    separator = ",\n";
  }
  return out + "\n]\n";
}

std::vector<Problem> problems_of_model(const Model& model, const ModelProblemOptions& options) {
  std::vector<Problem> problems;
  for (const MatrixGroup& group : model.matrices)
    for (const Op op : options.ops) {
      Problem p;
      p.op = op;
      p.type = group.type;
      p.n = group.n;
      p.k = group.k;
      if (is_integer(op)) continue;  // a model's weights are no bare codes
      // Experts are multiplied by routed rows alone; what moves no arithmetic works on one of them at a time.
      if (is_product(op) && (op == Op::mul_mat_id) != (group.experts > 1)) continue;
      if (op == Op::mul_mat_id) p.experts = group.experts, p.used = model.experts_used, p.x_broadcast = group.x_broadcast;
      if (op == Op::to_planar || op == Op::to_gguf) {
        p.layout = op == Op::to_planar ? Layout::gguf : Layout::planar;
        p.accuracy = Accuracy::exact;
        add_problem(problems, p);
        continue;
      }
      for (const Layout layout : options.layouts) {
        p.layout = layout;
        p.y_type = options.y_type;
        p.accuracy = is_product(op) ? options.accuracy : Accuracy::exact;
        if (is_product(op)) p.x_type = options.x_type;
        for (const std::int64_t m : is_product(op) ? options.ms : std::vector<std::int64_t>{1}) {
          p.m = m;
          add_problem(problems, p);
        }
      }
    }
  return problems;
}

}  // namespace quern

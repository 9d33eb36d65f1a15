#include "quern/problem.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <vector>

namespace quern {
namespace {

Error invalid(std::string message) { return {ErrorCode::kInvalidArgument, std::move(message), {}}; }

std::vector<std::string_view> words(std::string_view text) {
  std::vector<std::string_view> result;
  while (!text.empty()) {
    std::size_t start = text.find_first_not_of(" \t\n");
    if (start == std::string_view::npos) break;
    std::size_t end = text.find_first_of(" \t\n", start);
    result.push_back(text.substr(start, end == std::string_view::npos ? end : end - start));
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end);
  }
  return result;
}

bool parse_integer(std::string_view text, std::int64_t& value) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

// "6,2", or "6" for 6,1.
bool parse_pair(std::string_view text, std::int64_t& first, std::int64_t& second) {
  std::size_t comma = text.find(',');
  if (comma == std::string_view::npos) return second = 1, parse_integer(text, first);
  return comma != std::string_view::npos && parse_integer(text.substr(0, comma), first) && parse_integer(text.substr(comma + 1), second);
}

bool parse_flag(std::string_view text, bool& value) {
  value = text == "1";
  return text == "0" || text == "1";
}

template <class T>
bool assign(T& to, const std::optional<T>& from) {
  if (from) to = *from;
  return from.has_value();
}

// False when the value does not parse; `known` is cleared when no field has this name.
bool parse_field(Problem& p, std::string_view name, std::string_view value, bool& known) {
  if (name == "m") return parse_integer(value, p.m);
  if (name == "n") return parse_integer(value, p.n);
  if (name == "k") return parse_integer(value, p.k);
  if (name == "x") return assign(p.x_type, dtype_from_name(value));
  if (name == "y") return assign(p.y_type, dtype_from_name(value));
  if (name == "class") return assign(p.accuracy, accuracy_from_name(value));
  if (name == "layout") return assign(p.layout, layout_from_name(value));
  if (name == "batch") return parse_pair(value, p.batch2, p.batch3);
  if (name == "ratio") return parse_pair(value, p.ratio2, p.ratio3);
  if (name == "experts") return parse_integer(value, p.experts);
  if (name == "used") return parse_integer(value, p.used);
  if (name == "bias") return parse_flag(value, p.bias);
  if (name == "transposed") return parse_flag(value, p.x_transposed);
  if (name == "scale") return parse_flag(value, p.scale);
  if (name == "broadcast") return parse_flag(value, p.x_broadcast);
  if (name == "k_major") return parse_flag(value, p.k_major);
  if (name == "fused") return parse_flag(value, p.fused);
  if (name == "block") return parse_integer(value, p.block);
  known = false;
  return false;
}

// What the value of a field may be, for messages.
std::string legal_values(std::string_view name) {
  const auto is_one_of = [&](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (is_one_of({"x", "y"})) return "f32, f16 or bf16";
  if (name == "class") return "exact, f32, tight, normal or loose";
  if (name == "layout") return "gguf or planar";
  if (is_one_of({"batch", "ratio"})) return "an integer, or two such as 6,2";
  if (is_one_of({"bias", "transposed", "scale", "broadcast", "k_major", "fused"})) return "0 or 1";
  return "an integer below 2^63";
}

// Multiplies, or returns false when the product does not fit 63 bits.
bool multiply(std::int64_t& product, std::int64_t factor) { return !__builtin_mul_overflow(product, factor, &product); }

// A block of `block` columns per Hadamard matrix.
Status validate_rotation(const Problem& p) {
  if (p.block < 1 || (p.block & (p.block - 1)) != 0)
    return invalid("problem: block is " + std::to_string(p.block) + ", needed a power of two");
  if (p.k % p.block != 0)
    return invalid("problem: k is " + std::to_string(p.k) + ", needed a multiple of the block of " + std::to_string(p.block));
  return {};
}

// Bare codes, no batches, and sums that fit 32 bits.
Status validate_integer_op(const Problem& p) {
  const std::string op(to_string(p.op)), type(to_string(p.type));
  if (!is_integer(p.op)) {
    if (p.type != WeightType::i8 && p.type != WeightType::code4) return {};
    return invalid("problem: type is " + type + ", bare codes without a scale, which " + op + " does not take");
  }
  const bool packed = p.op == Op::w4a4, either = p.op == Op::rpbh_quantize;
  if (!takes_codes(p.op, p.type))
    return invalid("problem: type is " + type + ", " + op + " needs " + (either ? "i8 or code4" : packed ? "code4" : "i8"));
  if (p.batch2 != 1 || p.batch3 != 1)
    return invalid("problem: batch is " + std::to_string(p.batch2) + "," + std::to_string(p.batch3) + ", " + op + " needs 1,1");
  if (has_code_output(p.op) && p.n != 0) return invalid("problem: n is " + std::to_string(p.n) + ", " + op + " has no weights and needs 0");
  if (either) return validate_rotation(p);
  const std::int64_t multiple = packed ? 64 : p.op == Op::quantize_rows_int8 ? 4 : 1;
  if (p.k % multiple != 0)
    return invalid("problem: k is " + std::to_string(p.k) + ", " + op + " needs a multiple of " + std::to_string(multiple));
  if (has_code_output(p.op)) return {};
  // A product of two codes is at most 2^14, so that 2^17 of them may reach 2^31.
  const std::int64_t longest = ((std::int64_t{1} << 17) - 1) / multiple * multiple;
  if (p.k > longest) return invalid("problem: k is " + std::to_string(p.k) + ", " + op + " needs at most " + std::to_string(longest));
  return {};
}

// Fields that only some ops have must be left at their defaults in the others: two texts must not name one computation.
Status validate_op_fields(const Problem& p) {
  const std::string op(to_string(p.op));
  auto refuse = [&](const std::string& what) { return invalid("problem: " + what + ", which " + op + " does not have"); };
  if (p.bias && !has_bias(p.op)) return refuse("a bias is asked for");
  if ((p.k_major || p.fused) && p.op != Op::w4a4) return refuse(p.k_major ? "a k-major W is asked for" : "a fused epilogue is asked for");
  if (p.block != 1 && p.op != Op::rpbh_quantize) return refuse("a block is asked for");
  if (p.scale && (is_repack(p.op) || is_integer(p.op))) return refuse("a weight scale is asked for");
  if (p.x_transposed && !(p.op == Op::mul_mat || p.op == Op::out_prod)) return refuse("a transposed X is asked for");
  if (p.op != Op::mul_mat_id) {
    if (p.experts != 1 || p.used != 1 || p.x_broadcast) return refuse("experts, used or broadcast is set");
    return {};
  }
  if (p.experts < 1) return invalid("problem: experts is " + std::to_string(p.experts) + ", needed at least 1");
  if (p.used < 1) return invalid("problem: used is " + std::to_string(p.used) + ", needed at least 1");
  if (p.batch2 != 1 || p.batch3 != 1)
    return invalid("problem: batch is " + std::to_string(p.batch2) + "," + std::to_string(p.batch3) + ", mul_mat_id needs 1,1");
  return {};
}

}  // namespace

Result<Problem> parse_problem(std::string_view text) {
  auto fields = words(text);
  if (fields.size() < 2) return invalid("problem: found '" + std::string(text) + "', needed 'OP TYPE [LAYOUT] n=N k=K [...]'");
  Problem p;
  auto op = op_from_name(fields[0]);
  if (!op) return invalid("problem: found op '" + std::string(fields[0]) + "', needed one of " + all_op_names());
  auto type = weight_type_from_name(fields[1]);
  if (!type) return invalid("problem: found weight type '" + std::string(fields[1]) + "', needed a GGUF type name such as q4_0");
  p.op = *op;
  p.type = *type;
  std::vector<std::string_view> given;
  for (std::size_t i = 2; i < fields.size(); ++i) {
    const std::size_t equals = fields[i].find('=');
    const std::string found = "problem: found '" + std::string(fields[i]) + "', ";
    std::string_view name = fields[i].substr(0, equals);
    bool known = true;
    if (equals == std::string_view::npos) {
      const auto layout = layout_from_name(fields[i]);
      if (!layout) return invalid(found + "needed name=value, gguf or planar");
      p.layout = *layout;
      name = "layout";
    } else if (!parse_field(p, name, fields[i].substr(equals + 1), known)) {
      return invalid(found + "needed " +
                     (known
                          ? legal_values(name)
                          : "one of m n k x y bias class layout batch ratio transposed scale experts used broadcast k_major fused block"));
    }
    // The last of two would win, and the first be lost silently.
    if (std::find(given.begin(), given.end(), name) != given.end()) return invalid(found + std::string(name) + " is given already");
    given.push_back(name);
  }
  // Without n there would be nothing to compute, which succeeds at once.
  for (const auto& [name, needed] : {std::pair{"n", "n=N"}, std::pair{"k", "k=K"}})
    if (!(has_code_output(p.op) && *name == 'n') && std::find(given.begin(), given.end(), name) == given.end())
      return invalid("problem: found no " + std::string(name) + " in '" + std::string(text) + "', needed " + needed);
  QUERN_TRY(validate(p));
  return canonical(p);
}

Status validate(const Problem& p) {
  const auto& type = info(p.type);
  auto at_least = [](const char* name, std::int64_t value, std::int64_t least) -> Status {
    if (value >= least) return {};
    return invalid(std::string("problem: ") + name + " is " + std::to_string(value) + ", needed at least " + std::to_string(least));
  };
  QUERN_TRY(at_least("m", p.m, 0));
  QUERN_TRY(at_least("n", p.n, 0));
  QUERN_TRY(at_least("k", p.k, 1));
  QUERN_TRY(at_least("batch dim 2", p.batch2, 1));
  QUERN_TRY(at_least("batch dim 3", p.batch3, 1));
  QUERN_TRY(at_least("ratio of dim 2", p.ratio2, 1));
  QUERN_TRY(at_least("ratio of dim 3", p.ratio3, 1));
  if (p.k % type.block_elements != 0 && p.op != Op::w4a4)  // which has a rule of its own, below
    return invalid("problem: k is " + std::to_string(p.k) + ", needed a multiple of " + std::string(type.name) + "'s block of " +
                   std::to_string(type.block_elements));
  if (p.batch2 % p.ratio2 != 0)
    return invalid("problem: batch dim 2 is " + std::to_string(p.batch2) + ", needed a multiple of its ratio " + std::to_string(p.ratio2));
  if (p.batch3 % p.ratio3 != 0)
    return invalid("problem: batch dim 3 is " + std::to_string(p.batch3) + ", needed a multiple of its ratio " + std::to_string(p.ratio3));
  // A tile of 16 rows stays below 4 GiB and an index along K below 2^31: kernels count inside rows in 32 bits.
  if (p.k > (std::int64_t{1} << 25)) return invalid("problem: k is " + std::to_string(p.k) + ", needed at most 33554432");
  QUERN_TRY(validate_op_fields(p));
  QUERN_TRY(validate_integer_op(p));
  // Every byte offset of W, X and Y must fit 62 bits.
  constexpr std::int64_t kLimit = std::int64_t{1} << 62;
  for (auto [rows, columns] : {std::pair{p.n, p.k}, std::pair{p.m, p.k}, std::pair{p.m, p.n}}) {
    std::int64_t bytes = 8;
    if (!multiply(bytes, rows) || !multiply(bytes, columns) || !multiply(bytes, p.batch2) || !multiply(bytes, p.batch3) ||
        !multiply(bytes, p.experts) || !multiply(bytes, p.used) || bytes > kLimit)
      return invalid("problem: a matrix of " + std::to_string(rows) + " x " + std::to_string(columns) +
                     " elements has more bytes than 2^62");
  }
  return {};
}

}  // namespace quern

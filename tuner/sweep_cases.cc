// Which cases the sweep is made of; running them is in sweep.cc.
#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <set>

#include "generator/source_text.h"
#include "tuner/random_weights.h"
#include "tuner/sweep.h"

namespace quern {
namespace {

struct Shape {
  std::int64_t m, n, k;
};

constexpr std::int64_t kGap = 8;  // elements: 16 or 32 bytes, as a view of a wider matrix has

// Reductions of one block, an odd number of blocks, and two lengths that models have.
std::vector<std::int64_t> lengths(WeightType type) {
  const std::int64_t block = info(type).block_elements;
  if (block == 1) return {1, 37, 1024, 2880};
  return {block, 3 * block, 1024 / block * block, 2880 / block * block};
}

// Of every product. mul_mat_id takes m for its tokens.
std::vector<Shape> product_shapes(WeightType type, bool full) {
  const auto k = lengths(type);
  std::vector<Shape> shapes;
  // Most families take dense rows in runs of 128 only.
  if (info(type).block_elements == 1) shapes = {{1, 129, 128}, {4, 35, 384}, {33, 35, 1024}, {129, 129, 128}};
  if (!full) {
    shapes.insert(shapes.end(), {{1, 1, k[0]},
                                 {1, 129, k[1]},
                                 {2, 16, k[2]},
                                 {3, 3, k[1]},
                                 {5, 129, k[0]},
                                 {8, 16, k[3]},
                                 {1, 2049, k[0]},
                                 {0, 16, k[0]},
                                 {9, 3, k[0]},
                                 {16, 129, k[1]},
                                 {33, 16, k[2]},
                                 {64, 3, k[1]},
                                 {129, 129, k[1]}});
    return shapes;
  }
  std::size_t turn = 0;
  for (const std::int64_t m : {0, 1, 2, 3, 5, 8, 9, 16, 33, 64, 129, 512})
    for (const std::int64_t n : {1, 3, 16, 129, 2049}) shapes.push_back({m, n, k[turn++ % k.size()]});
  return shapes;
}

// Of the integer ops: heads and layers of models, reductions of one chunk, of no whole ones, and long ones. {m, n, k}
std::vector<Shape> integer_shapes(bool full, bool on_gpu) {
  if (!full)
    return {{1, 129, 64},  {2, 3, 64},     {3, 129, 512}, {4, 777, 256}, {8, 257, 1024}, {9, 35, 2046},
            {16, 37, 960}, {33, 129, 128}, {0, 16, 64},   {1, 1, 16},    {5, 2049, 64}};
  std::vector<Shape> shapes{{0, 16, 64}, {5, 35, 2046}, {1, 1, 4}, {7, 3, 20}};
  std::vector<std::pair<std::int64_t, std::int64_t>> matrices{{129, 64},    {3, 64},      {129, 512},   {2048, 1024},
                                                              {1024, 2048}, {2047, 1024}, {2049, 2048}, {2048, 960},
                                                              {2048, 6144}, {257, 16384}, {129, 128},   {777, 4096}};
  if (on_gpu) matrices.insert(matrices.end(), {{2049, 16384}, {32768, 2048}, {32769, 2048}, {51865, 2048}, {151644, 2048}});
  for (const auto& [n, k] : matrices)
    for (const std::int64_t m : {1, 2, 3, 4, 8, 9, 16, 33}) shapes.push_back({m, n, k});
  return shapes;
}

// Shapes for the further configs: all rows of a tile and a remainder, and more than one pass over K.
std::vector<Shape> config_shapes(WeightType type, bool full) {
  auto k = lengths(type);
  if (info(type).block_elements == 1) k[1] = 384, k[3] = 1152;
  if (!full) return {{3, 35, k[1]}, {70, 35, k[1]}};
  return {{1, 2049, k[3]}, {3, 35, k[1]}, {8, 129, k[2]}, {16, 129, k[3]}, {70, 35, k[1]}, {257, 300, k[2]}};
}

std::vector<Shape> weight_shapes(WeightType type, bool full) {
  const auto k = lengths(type);
  if (!full) return {{1, 1, k[0]}, {1, 3, k[1]}, {1, 16, k[2]}, {1, 129, k[1]}, {1, 35, k[3]}};
  std::vector<Shape> shapes;
  for (const std::int64_t n : {1, 3, 15, 16, 17, 129, 2049})
    for (const std::int64_t length : k) shapes.push_back({1, n, length});
  return shapes;
}

// Types that stand for the ways in which decoders differ: one scale, signed bytes, offsets and packed scales, bytes at odd addresses,
// codebooks, dense. The quick sweep of all types gives these every configuration and every shape in both layouts; the others have their
// shapes shared out between the layouts.
constexpr WeightType kRepresentatives[] = {WeightType::q4_0,  WeightType::q8_0,   WeightType::q4_k,
                                           WeightType::mxfp4, WeightType::iq2_xs, WeightType::f16};

template <class T>
bool wanted(const std::vector<T>& filter, const T& value) {
  return filter.empty() || std::find(filter.begin(), filter.end(), value) != filter.end();
}

// Experts rotate: one for all, fewer than there are rows, and so many that most have none.
void route(Problem& p, std::size_t turn) {
  constexpr std::int64_t kExperts[] = {4, 1, 8, 128}, kUsed[] = {2, 1, 3, 8, 4};
  p.experts = kExperts[turn % 4];
  p.used = kUsed[turn % 5];
  p.x_broadcast = turn / 2 % 2 == 1;
  // 128 large matrices take longer to make than to multiply by.
  while (p.experts > 1 && p.experts * p.n * p.k > 4'000'000) p.experts /= 2;
}

// Settings that rotate over the shapes, so that all meet in few cases. A combination that the family does not support is replaced by a
// plainer one.
std::vector<SweepCase> variants(const Problem& base, std::size_t turn, std::uint64_t seed) {
  constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16};
  SweepCase plain{base, {}, {}, {}};
  plain.data.seed = seed + turn;
  if (base.op == Op::mul_mat_id) route(plain.problem, turn);
  if (is_repack(base.op)) return {plain};
  plain.problem.y_type = kTypes[turn % 3];
  SweepCase typed = plain;
  std::vector<SweepCase> out;
  if (is_product(base.op)) {
    typed.problem.x_type = kTypes[turn / 3 % 3];
    typed.problem.bias = base.op != Op::out_prod && turn % 2 == 1;
    SweepCase rich = typed;
    rich.problem.scale = turn % 3 == 2;
    rich.problem.x_transposed = base.op == Op::out_prod && turn % 2 == 1;
    if (turn % 4 == 3) {
      rich.data.x_gap = rich.data.y_gap = kGap;
      if (base.layout == Layout::gguf) rich.data.w_gap = 2 * info(base.type).block_bytes;
    }
    if (base.op != Op::mul_mat_id && turn % 5 == 4 && base.m * base.n < 4096) {
      rich.problem.batch2 = 4;
      rich.problem.ratio2 = 2;
      rich.problem.batch3 = 2;
    }
    out.push_back(rich);
    out.push_back(typed);
    typed.problem.x_type = DType::f32;
    out.push_back(typed);
  } else {
    SweepCase scaled = plain;
    scaled.problem.scale = turn % 3 == 2;
    out.push_back(scaled);
  }
  out.push_back(plain);
  SweepCase bare = plain;
  bare.problem.y_type = DType::f32;
  out.push_back(bare);
  return out;
}

// The first variant that the family supports, held to the strictest class it supports; nothing, and why, when there is none.
struct Found {
  std::optional<SweepCase> found;
  std::string reason;
};
Found supported(const Family& family, const std::vector<SweepCase>& candidates, const Target& target) {
  Found result;
  for (SweepCase c : candidates)
    for (const Accuracy accuracy : {Accuracy::exact, Accuracy::f32, Accuracy::tight, Accuracy::normal, Accuracy::loose}) {
      c.problem.accuracy = accuracy;
      if (!validate(c.problem)) continue;
      if (auto status = family.supports(c.problem, target); !status) {
        result.reason = status.error().message;
        continue;
      }
      result.found = c;
      return result;
    }
  return result;
}

class CaseList {
 public:
  CaseList(const SweepOptions& options, const Target& target) : options_(options), target_(target), families_(all_families()) {}

  void add(Op op, WeightType type, Layout layout) {
    Problem base;
    base.op = op;
    base.type = type;
    base.layout = layout;
    for (const Family* family : families_)
      if (wanted(options_.families, std::string(family->name()))) {
        const std::size_t first = cases_.size();
        add_family(*family, base);
        thin_out(first);
      }
  }

  // An op on bare codes: types, bias, gaps and the codes' first byte rotate over the shapes.
  void add_integer(Op op, WeightType type) {
    const bool on_gpu = target_.kind == Target::Kind::cuda;
    for (const Family* family : families_) {
      if (!wanted(options_.families, std::string(family->name()))) continue;
      const std::size_t first = cases_.size();
      std::size_t turn = 0;
      for (const Shape& s : integer_shapes(options_.full, on_gpu)) {
        SweepCase c = integer_case(op, type, s, turn++);
        add_integer_case(*family, c);
        if (op != Op::w4a4 || !options_.full) continue;
        c.problem.k_major = !c.problem.k_major;
        add_integer_case(*family, std::move(c));
      }
      for (const Shape& s : {Shape{3, 300, 320}, Shape{8, 70, 4096}, Shape{40, 70, 200}}) {
        SweepCase c = integer_case(op, type, s, 1);
        add_integer_configs(*family, c);
        if (op != Op::w4a4) continue;
        c.problem.k_major = true;
        add_integer_configs(*family, std::move(c));
      }
      thin_out(first);
    }
  }

  // Shapes that once broke something: more than 65535 rows or batches, offsets past 2^31.
  void add_large(Layout layout) {
    const Shape shapes[] = {{1, 125696, 32}, {2, 250880, 32}, {1, 524289, 4096}};
    for (const Family* family : families_) {
      if (!wanted(options_.families, std::string(family->name()))) continue;
      for (const Shape& s : shapes) add_default(*family, at(Problem{Op::mul_mat, WeightType::q4_0, layout}, s), 0);
      Problem many = at(Problem{Op::mul_mat, WeightType::q4_0, layout}, {1, 1, 32});
      many.batch2 = 65536;
      add_default(*family, many, 0);
    }
  }

  std::vector<SweepCase> take() { return std::move(cases_); }

 private:
  // Every family that answers anything, simplest first. The source is asked with each op, so that planted ones are found too.
  std::vector<const Family*> all_families() const {
    std::vector<const Family*> out;
    for (const Op op : kOps)
      for (const WeightTypeInfo& type : kWeightTypes)
        for (const std::int64_t m : {1, 64}) {
          Problem p;
          p.op = op;
          p.type = type.type;
          p.layout = op == Op::to_planar ? Layout::gguf : Layout::planar;
          p.m = has_rows(op) ? m : 1;
          p.n = 64;
          p.k = 1024;
          p.accuracy = Accuracy::loose;
          if (is_integer(op))
            p.type = takes_codes(op, WeightType::i8) ? WeightType::i8 : WeightType::code4, p.n = has_code_output(op) ? 0 : 64;
          if (!is_integer(op) && !has_decoder(p.type)) continue;
          for (const Family* f : options_.candidates.families(p, target_))
            if (std::find(out.begin(), out.end(), f) == out.end()) out.push_back(f);
        }
    return out;
  }

  // Lengths rounded to what the op takes. Every further case differs from the one before it in all that does not tell families apart.
  SweepCase integer_case(Op op, WeightType type, const Shape& s, std::size_t turn) const {
    constexpr DType kTypes[] = {DType::bf16, DType::f16, DType::f32};
    constexpr std::int64_t kOffsets[] = {0, 1, 3}, kBlocks[] = {64, 2, 128, 16, 1024};
    SweepCase c;
    Problem& p = c.problem;
    p = at(Problem{.op = op, .type = type, .accuracy = Accuracy::exact}, s);
    if (has_code_output(op)) p.n = 0;
    if (op == Op::rpbh_quantize)
      p.block = std::min(kBlocks[turn % 5], std::int64_t{1} << (std::bit_width(static_cast<std::uint64_t>(s.k)) - 1));
    const std::int64_t multiple = op == Op::quantize_rows_int8 ? 4 : op == Op::w4a4 ? 64 : std::max(p.block, std::int64_t{1});
    p.k = std::max(p.k / multiple, std::int64_t{1}) * multiple;
    (has_code_output(op) ? p.x_type : p.y_type) = kTypes[turn % 3];
    p.bias = has_bias(op) && turn % 2 == 1;
    p.fused = op == Op::w4a4 && turn % 4 == 1;
    p.k_major = op == Op::w4a4 && turn % 5 >= 3;
    c.data.seed = options_.seed + turn;
    c.data.offset = kOffsets[turn / 3 % 3];
    c.data.sorted_codebooks = op == Op::w4a4 && turn / 2 % 2 == 0;
    if (turn % 4 == 3) c.data.x_gap = c.data.y_gap = c.data.w_gap = kGap;
    return c;
  }
  void add_integer_case(const Family& family, SweepCase c) {
    if (!family.supports(c.problem, target_)) return;
    c.config = family.space(c.problem, target_).default_config();
    cases_.push_back(std::move(c));
  }
  void add_integer_configs(const Family& family, SweepCase c) {
    c.data.offset = 0;
    if (!family.supports(c.problem, target_)) return;
    const SearchSpace space = family.space(c.problem, target_);
    for (Config& config : covering_configs(space)) {
      cases_.push_back(c);
      cases_.back().config = config;
      // How a codebook with a sign per half is looked up is a second kernel within the first: each config is checked with it, too.
      const auto halves = std::find_if(config.values.begin(), config.values.end(), [](const auto& v) { return v.name == "halves"; });
      if (halves == config.values.end()) continue;
      halves->value = 1;
      if (!space.check(config)) continue;
      c.data.sorted_codebooks = true;
      cases_.push_back(c);
      cases_.back().config = config;
      c.data.sorted_codebooks = false;
    }
  }

  static Problem at(Problem p, const Shape& s) {
    p.m = s.m;
    p.n = s.n;
    p.k = s.k;
    return p;
  }

  bool is_thorough(WeightType type) const {
    return options_.full || !options_.types.empty() ||
           std::find(std::begin(kRepresentatives), std::end(kRepresentatives), type) != std::end(kRepresentatives);
  }

  bool add_default(const Family& family, const Problem& problem, std::size_t turn) {
    auto [found, reason] = supported(family, variants(problem, turn, options_.seed), target_);
    if (!found) {
      last_reason_ = reason;
      return false;
    }
    found->config = family.space(found->problem, target_).default_config();
    cases_.push_back(std::move(*found));
    return true;
  }

  void add_family(const Family& family, const Problem& base) {
    // A family of another op is not a hole in the coverage.
    bool any = false, answers_op = false;
    std::size_t turn = static_cast<std::size_t>(base.type) % 7;
    const bool full = options_.full, thorough = is_thorough(base.type);
    std::size_t share = base.layout == Layout::planar ? 1 : 0;
    for (const Shape& s : is_product(base.op) ? product_shapes(base.type, full) : weight_shapes(base.type, full)) {
      if (thorough || share++ % 2 == 0) any = add_default(family, at(base, s), turn) || any;
      ++turn;
    }
    if (thorough)
      for (const Shape& s :
           is_product(base.op) ? config_shapes(base.type, full) : std::vector<Shape>{weight_shapes(base.type, full).back()})
        any = add_configs(family, at(base, s)) || any;
    const Problem middle = at(base, {1, 64, 1024});
    if (any || add_default(family, middle, 0)) return;
    const std::string reason = last_reason_;
    for (const WeightTypeInfo& type : kWeightTypes)
      for (const Layout layout : {Layout::gguf, Layout::planar}) {
        Problem p = middle;
        p.type = type.type;
        p.layout = layout;
        p.accuracy = is_product(p.op) ? Accuracy::loose : Accuracy::exact;
        answers_op = answers_op || static_cast<bool>(family.supports(p, target_));
      }
    if (answers_op) cases_.push_back(SweepCase{middle, {std::string(family.name()), {}}, {}, reason});
  }

  // Keeps every nth of the cases from `first` on, and starts elsewhere each time, so that all shapes and configs are met.
  void thin_out(std::size_t first) {
    const std::size_t count = cases_.size() - first, every = static_cast<std::size_t>(options_.every);
    if (count == 0) return;
    std::size_t kept = first;
    for (std::size_t i = thinned_++ % std::min(every, count); i < count; i += every) cases_[kept++] = cases_[first + i];
    cases_.resize(kept);
  }

  bool add_configs(const Family& family, const Problem& problem) {
    SweepCase plain{problem, {}, {}, {}};
    plain.data.seed = options_.seed;
    if (problem.op == Op::mul_mat_id) route(plain.problem, static_cast<std::size_t>(problem.m));
    const auto found = supported(family, {plain}, target_).found;
    if (!found) return false;
    for (Config& config : covering_configs(family.space(found->problem, target_))) {
      cases_.push_back(*found);
      cases_.back().config = std::move(config);
    }
    return true;
  }

  const SweepOptions& options_;
  const Target& target_;
  std::vector<const Family*> families_;
  std::vector<SweepCase> cases_;
  std::size_t thinned_ = 0;
  std::string last_reason_;
};

}  // namespace

std::vector<Config> covering_configs(const SearchSpace& space) {
  const auto all = space.enumerate();
  using Value = std::pair<std::string, std::int64_t>;
  std::set<Value> missing;
  for (const Config& c : all)
    for (const auto& v : c.values) missing.insert({v.name, v.value});
  auto remove = [&](const Config& c) {
    for (const auto& v : c.values) missing.erase({v.name, v.value});
  };
  remove(space.default_config());
  std::vector<Config> chosen;
  while (!missing.empty()) {
    const Config* best = nullptr;
    std::size_t best_count = 0;
    for (const Config& c : all) {
      std::size_t count = 0;
      for (const auto& v : c.values) count += missing.contains({v.name, v.value});
      if (count > best_count) best = &c, best_count = count;
    }
    chosen.push_back(*best);
    remove(*best);
  }
  return chosen;
}

std::vector<SweepCase> sweep_cases(const SweepOptions& options, const Target& target) {
  CaseList list(options, target);
  for (const Op op : kOps) {
    if (!wanted(options.ops, op)) continue;
    if (is_integer(op)) {
      for (const WeightTypeInfo& type : kCodeTypes)
        if (takes_codes(op, type.type) && wanted(options.types, type.type) && wanted(options.layouts, Layout::planar))
          list.add_integer(op, type.type);
      continue;
    }
    for (const WeightTypeInfo& type : kWeightTypes) {
      if (!wanted(options.types, type.type) || !has_decoder(type.type)) continue;
      for (const Layout layout : {Layout::gguf, Layout::planar}) {
        const bool source = op == Op::to_planar ? layout == Layout::gguf : op == Op::to_gguf ? layout == Layout::planar : true;
        if (source && wanted(options.layouts, layout)) list.add(op, type.type, layout);
      }
    }
  }
  if (options.full && target.kind == Target::Kind::cuda && wanted(options.ops, Op::mul_mat) && wanted(options.types, WeightType::q4_0))
    for (const Layout layout : {Layout::gguf, Layout::planar})
      if (wanted(options.layouts, layout)) list.add_large(layout);
  return list.take();
}

std::vector<SweepCase> sweep_model_cases(const std::string& gguf_path, const Model& model, const SweepOptions& options,
                                         const Target& target, std::int64_t rows) {
  std::vector<SweepCase> cases;
  Random random(options.seed);
  for (const MatrixGroup& group : model.matrices) {
    if (!wanted(options.types, group.type)) continue;
    for (const std::string& tensor : group.tensors) {
      SweepCase c;
      c.data.seed = random.bits() >> 12;  // stays an exact integer in any JSON reader
      c.data.gguf_path = gguf_path;
      c.data.tensor = tensor;
      c.problem.type = group.type;
      c.problem.n = std::min(rows, group.n);
      c.problem.k = group.k;
      // Rows of any of the experts, or of two neighbours.
      c.data.first_row = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(group.n * group.experts - c.problem.n + 1)));
      for (const Op op : {Op::dequantize, Op::to_planar, Op::to_gguf, Op::mul_mat, Op::out_prod})
        for (const Layout layout : {Layout::gguf, Layout::planar})
          for (const std::int64_t m : is_product(op) ? std::vector<std::int64_t>{1, 9} : std::vector<std::int64_t>{1}) {
            c.problem.op = op;
            c.problem.layout = layout;
            c.problem.m = m;
            c.problem.accuracy = is_product(op) ? Accuracy::loose : Accuracy::exact;
            const bool source = op == Op::to_planar ? layout == Layout::gguf : op == Op::to_gguf ? layout == Layout::planar : true;
            if (!source || !wanted(options.ops, op) || !wanted(options.layouts, layout)) continue;
            for (const Family* family : options.candidates.families(c.problem, target)) {
              if (!wanted(options.families, std::string(family->name()))) continue;
              if (auto found = supported(*family, {c}, target).found) {
                found->config = family->space(found->problem, target).default_config();
                cases.push_back(std::move(*found));
              }
            }
          }
    }
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < cases.size(); i += static_cast<std::size_t>(options.every)) cases[kept++] = cases[i];
  cases.resize(kept);
  return cases;
}

}  // namespace quern

// quern bench: speed, beside the read ceiling and cuBLAS, all measured in one run.
#include "bench/bench.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <iterator>
#include <memory>

#include "bench/launch_cost.h"
#include "generator/family.h"
#include "tools/command.h"
#include "tools/interrupt.h"
#include "tools/json_output.h"
#include "tools/problem_source.h"
#include "tools/progress.h"
#include "tools/table.h"
#include "tuner/workbench.h"

namespace quern::tools {
namespace {

constexpr const char* kFirstLaunchCommand = "__first-launch";

struct Options {
  std::string device;
  std::vector<std::string> ops{"mul_mat"}, types, layouts{"planar"};
  std::vector<std::string> shapes;
  std::vector<std::int64_t> ms;
  std::string accuracy, y_dtype;
  bool every_family = false;
  std::vector<std::string> configs;
  bool json = false;
};

struct Shape {
  std::int64_t n = 0, k = 0;
};

// "14336,4096" or "14336x4096".
Result<Shape> parse_shape(const std::string& text) {
  Shape shape;
  char separator = 0, extra = 0;
  if (std::sscanf(text.c_str(), "%ld%c%ld%c", &shape.n, &separator, &shape.k, &extra) == 3 && (separator == ',' || separator == 'x') &&
      shape.n > 0 && shape.k > 0)
    return shape;
  return Error{ErrorCode::kInvalidArgument, "--shape '" + text + "': needs N,K such as 14336,4096, both above zero", {}};
}

// On the host a kernel of this size takes a thousand times longer than on a GPU, and its time is of no interest.
std::vector<std::string> default_shapes(bool host) {
  return host ? std::vector<std::string>{"256,512"} : std::vector<std::string>{"14336,4096"};
}
std::vector<std::int64_t> default_ms(bool host) {
  return host ? std::vector<std::int64_t>{1, 8} : std::vector<std::int64_t>{1, 2, 4, 8, 16, 64, 512, 2048};
}

std::vector<std::string> default_types(Op op) {
  if (!is_integer(op)) return {"q4_0", "q8_0", "q4_k"};
  return {op == Op::w4a4 || op == Op::rpbh_quantize ? "code4" : "i8"};
}

// The integer ops lie between layers that hold bf16.
Problem integer_problem(Problem p) {
  p.x_type = p.y_type = DType::bf16;
  if (!has_code_output(p.op)) return p;
  const Problem quantizer = bench::quantizer_of({.op = p.op == Op::rpbh_quantize ? Op::w4a4 : Op::matmul_int8_rows, .m = p.m, .k = p.k});
  p.n = 0, p.block = quantizer.block;
  return p;
}

// What no problem could make right is refused: a family or a parameter that there is not, a value that is not offered.
Result<std::vector<Config>> parse_configs(const std::vector<std::string>& texts, const std::vector<Problem>& problems,
                                          const Target& target) {
  std::vector<Config> configs;
  for (const auto& text : texts) {
    const auto refuse = [&](const std::string& what) { return Error{ErrorCode::kInvalidArgument, "--config '" + text + "': " + what, {}}; };
    auto config = parse_config(text);
    if (!config) return refuse(config.error().message);
    const Family* family = find_family(config->family);
    if (family == nullptr) return refuse("no family is called '" + config->family + "'");
    const auto problem =
        std::find_if(problems.begin(), problems.end(), [&](const Problem& p) { return bool(family->supports(p, target)); });
    if (problem != problems.end())  // else each row says why
      if (const auto given = family->space(*problem, target).check_given(*config); !given) return refuse(given.error().message);
    configs.push_back(std::move(*config));
  }
  return configs;
}

Result<std::vector<Problem>> make_problems(const Options& options, bool host) {
  std::vector<Problem> problems;
  for (const auto& op : options.ops)
    for (const auto& type : options.types.empty() ? default_types(*op_from_name(op)) : options.types)
      for (const auto& text : options.shapes.empty() ? default_shapes(host) : options.shapes) {
        QUERN_ASSIGN(const Shape shape, parse_shape(text));
        for (const auto& layout : options.layouts)
          for (const auto m : options.ms.empty() ? default_ms(host) : options.ms) {
            Problem p{.op = *op_from_name(op),
                      .type = *weight_type_from_name(type),
                      .layout = *layout_from_name(layout),
                      .n = shape.n,
                      .k = shape.k};
            p.m = has_rows(p.op) ? m : 1;
            if (is_integer(p.op)) p = integer_problem(p);
            if (!is_product(p.op)) p.accuracy = Accuracy::exact;
            if (p.op == Op::to_planar) p.layout = Layout::gguf;
            if (p.op == Op::to_gguf) p.layout = Layout::planar;
            if (!options.accuracy.empty()) p.accuracy = *accuracy_from_name(options.accuracy);
            if (!options.y_dtype.empty()) p.y_type = *dtype_from_name(options.y_dtype);
            QUERN_TRY(validate(p));
            p = canonical(p);
            if (std::find(problems.begin(), problems.end(), p) == problems.end()) problems.push_back(p);
          }
      }
  return problems;
}

struct LaunchFigures {
  std::optional<bench::LaunchCost> cost;
  std::optional<bench::FirstLaunch> first;  // of a second process
};

// Starts this program again: a fresh process, with nothing but the store.
std::optional<bench::FirstLaunch> first_launch_elsewhere(const Environment& environment, const std::string& device,
                                                         const Problem& problem) {
  const std::string command =
      fmt::format("'{}' {} --device {} '{}'", environment.executable, kFirstLaunchCommand, device, to_string(problem));
  std::FILE* pipe = popen(command.c_str(), "re");
  if (pipe == nullptr) return std::nullopt;
  std::array<char, 256> line{};
  const bool answered = std::fgets(line.data(), line.size(), pipe) != nullptr;
  if (pclose(pipe) != 0 || !answered) return std::nullopt;
  const Json answer = Json::parse(line.data(), nullptr, false);
  if (!answer.is_object()) return std::nullopt;
  return bench::FirstLaunch{.ms = answer.value("ms", 0.0), .compile_count = answer.value("compile_count", std::uint64_t{0})};
}

// How much longer than one row of X the same weights take: by the same family, or by the same of the given configs, where each has rows of
// its own.
std::optional<double> over_one_row(const std::vector<bench::Row>& rows, const bench::Row& r, bool every_family) {
  Problem one = r.problem;
  one.m = 1;
  for (const auto& other : rows)
    if (other.problem == one && other.given == r.given && other.us > 0 && r.us > 0 && r.problem.m > 1 &&
        (!every_family || other.config.family == r.config.family))
      return r.us / other.us;
  return std::nullopt;
}

std::optional<double> with_quantizer(const bench::Row& r) { return r.quantize_us ? std::optional(r.us + *r.quantize_us) : std::nullopt; }

Json row_json(const bench::Row& r, std::optional<double> over_m1) {
  const bool ok = r.verdict == Verdict::ok;
  const auto when_ok = [&](double value) { return ok ? Json(value) : Json(nullptr); };
  return {{"op", to_string(r.problem.op)},
          {"type", to_string(r.problem.type)},
          {"layout", to_string(r.problem.layout)},
          {"m", r.problem.m},
          {"n", r.problem.n},
          {"k", r.problem.k},
          {"class", to_string(r.problem.accuracy)},
          {"family", r.config.family},
          {"config", to_string(r.config)},
          {"provenance", to_string(r.provenance)},
          {"verdict", to_string(r.verdict)},
          {"reason", r.reason},
          {"us", when_ok(r.us)},
          {"us_l2_warm", when_ok(r.us_l2_warm)},
          {"spread", when_ok(r.spread)},
          {"unstable", r.unstable},
          {"bytes", r.bytes},
          {"read_ceiling_us", json_or_null(r.read_ceiling_us)},
          {"plain_read_us", json_or_null(r.plain_read_us)},
          {"workspace_bytes", r.workspace_bytes},
          {"bf16_us", json_or_null(r.bf16_us)},
          {"cast_gemm_us", json_or_null(r.cast_gemm_us)},
          {"default_config", to_string(r.default_config)},
          {"default_us", json_or_null(r.default_us)},
          {"x_dtype", to_string(r.problem.x_type)},
          {"y_dtype", to_string(r.problem.y_type)},
          {"over_m1", json_or_null(over_m1)},
          {"quantize_us", json_or_null(r.quantize_us)},
          {"quantize_config", r.quantize_us ? Json(to_string(r.quantize_config)) : Json(nullptr)},
          {"sum_us", json_or_null(with_quantizer(r))},
          {"peers", Json::object()}};
}

void print_rows_json(const std::vector<bench::Row>& rows, bool every_family, const LaunchFigures& launch, const Context& context,
                     const std::string& cublas) {
  Json object{{"device", to_string(context.device())}, {"rows", Json::array()}, {"cublas", cublas.empty() ? Json(nullptr) : Json(cublas)}};
  for (const auto& r : rows) object["rows"].push_back(row_json(r, over_one_row(rows, r, every_family)));
  object["launch"] = nullptr;
  if (launch.cost)
    object["launch"] = {
        {"plan_us", launch.cost->plan_us}, {"driver_us", launch.cost->driver_us}, {"overhead_us", launch.cost->overhead_us()}};
  object["second_process"] = nullptr;
  if (launch.first) object["second_process"] = {{"first_launch_ms", launch.first->ms}, {"compile_count", launch.first->compile_count}};
  print_json(object);
}

// Columns that no row fills are left out, where they are for some ops only.
void print_rows(const std::vector<bench::Row>& rows, bool every_family, const std::vector<std::string>& given, int columns) {
  using Align = Table::Align;
  const auto optional_us = [](const std::optional<double>& us) { return us ? human_us(*us) : std::string("-"); };
  const bool quantized = std::any_of(rows.begin(), rows.end(), [](const auto& r) { return has_code_input(r.problem.op); });
  const bool compared =
      std::any_of(rows.begin(), rows.end(), [&](const auto& r) { return over_one_row(rows, r, every_family).has_value(); });
  std::vector<Table::Column> titles{{"problem"}};
  if (every_family) titles.push_back({given.empty() ? "family" : "given"});
  titles.push_back({"us", Align::right});
  if (compared) titles.push_back({"of m=1", Align::right});
  if (quantized) titles.insert(titles.end(), {{"quantize", Align::right}, {"sum", Align::right}});
  for (const char* title : {"warm", "read", "of read", "bf16", "cast", "extra", "default"}) titles.push_back({title, Align::right});
  titles.push_back({"config", Align::left, true});
  const std::size_t width = titles.size();
  Table table(std::move(titles));
  for (const auto& r : rows) {
    std::vector<std::string> cells{short_text(r.problem)};
    if (every_family) cells.push_back(given.empty() ? r.config.family : given[r.given]);
    if (r.verdict != Verdict::ok) {
      cells.resize(width - 1, "-");
      cells.push_back(std::string(to_string(r.verdict)) + ": " + r.reason);
      table.add(std::move(cells));
      continue;
    }
    const auto over = over_one_row(rows, r, every_family);
    cells.push_back(human_us(r.us) + (r.unstable ? "?" : ""));
    if (compared) cells.push_back(over ? fmt::format("{:.2f}x", *over) : "-");
    if (quantized) cells.insert(cells.end(), {optional_us(r.quantize_us), optional_us(with_quantizer(r))});
    const std::string share = r.read_ceiling_us ? fmt::format("{:.0f}%", *r.read_ceiling_us / r.us * 100) : "-";
    const std::string from = r.provenance == Provenance::exact ? "" : fmt::format("({}) ", to_string(r.provenance));
    cells.insert(cells.end(),
                 {human_us(r.us_l2_warm), optional_us(r.read_ceiling_us), share, optional_us(r.bf16_us), optional_us(r.cast_gemm_us),
                  human_bytes(static_cast<double>(r.workspace_bytes)), optional_us(r.default_us), from + to_string(r.config)});
    table.add(std::move(cells));
  }
  fmt::print("{}", table.render(columns));
  fmt::print(
      "us: whole op, weights rotating; warm: weights in the L2; read: the fastest read of the weights' bytes; bf16: cuBLAS "
      "on dense weights\n"
      "cast: dequantize to f32, then cuBLAS in TF32; extra: workspace; default: the op's default config, timed beside each row; ?: "
      "scattered\n");
  if (quantized) fmt::print("X is given as codes; quantize: making them of bf16 rows, alone; sum: us + quantize\n");
}

void print_launch(const LaunchFigures& launch) {
  if (launch.cost)
    fmt::print("warm launch: {:.2f} us, the driver's own {:.2f} us, overhead {:.2f} us\n", launch.cost->plan_us, launch.cost->driver_us,
               launch.cost->overhead_us());
  if (launch.first)
    fmt::print("second process: first launch done {:.0f} ms after it opened its context, {} kernels compiled\n", launch.first->ms,
               launch.first->compile_count);
}

Result<std::vector<bench::Row>> measure_rows(const Environment& environment, const std::vector<Problem>& problems,
                                             const bench::BenchParts& parts) {
  Progress progress("bench", stderr, environment.progress_bar, environment.progress_columns);
  std::vector<bench::Row> rows;
  std::size_t done = 0;
  for (const auto& problem : problems) {
    if (interrupted().load()) break;
    progress.update(static_cast<double>(done), static_cast<double>(problems.size()), short_text(problem));
    QUERN_ASSIGN(auto measured, bench::bench_problem(parts, problem, MeasureSettings{}));
    std::move(measured.begin(), measured.end(), std::back_inserter(rows));
    ++done;
  }
  return rows;
}

int run_bench(const Environment& environment, const Options& options) {
  ContextOptions context_options = environment.context;
  if (!options.device.empty()) context_options.device = options.device;
  const auto context = Context::open(context_options);
  if (!context) return fail(context.error());
  const bool host = context->target().kind == Target::Kind::host;
  const auto problems = make_problems(options, host);
  if (!problems) return fail(problems.error());
  const auto configs = parse_configs(options.configs, *problems, context->target());
  if (!configs) return fail(configs.error());
  const bool by_family = options.every_family || !options.configs.empty();
  const ContextParts& live = parts_of(*context);
  if (!live.compiler) return fail(live.compiler_missing);

  auto cublas = host ? Result<bench::Cublas>(Error{}) : bench::Cublas::open(environment.cublas);
  if (!host && !cublas) remark("bench: bf16 is not measured: " + cublas.error().message);
  Workbench workbench(
      {.device = live.device.get(), .compiler = live.compiler.get(), .store = live.store.get(), .render = live.kernels.render});
  const auto rows = measure_rows(environment, *problems,
                                 {.measurer = &workbench,
                                  .context = &*context,
                                  .cublas = cublas ? &*cublas : nullptr,
                                  .every_family = options.every_family,
                                  .configs = *configs});
  if (!rows) return fail(rows.error());
  const bool stopped = interrupted().load();
  if (rows->empty()) return fail(kFailedCheck, "interrupted: nothing was timed");

  LaunchFigures launch;
  if (!host && !stopped)
    if (const auto cost = bench::measure_launch_cost(*context, problems->front(), context_options.driver_library)) launch.cost = *cost;
  if (!stopped && rows->front().verdict == Verdict::ok)
    launch.first = first_launch_elsewhere(environment, context->device_spec(), problems->front());

  if (options.json) {
    print_rows_json(*rows, by_family, launch, *context, cublas ? cublas->location() : "");
  } else {
    fmt::print("{}\n", to_string(context->device()));
    if (host) fmt::print("times are this machine's CPU: they compare kernels here and say nothing about a GPU\n");
    print_rows(*rows, by_family, options.configs, environment.columns);
    print_launch(launch);
  }
  if (stopped) return fail(kFailedCheck, "interrupted: the rows are those that were timed before");
  for (const auto& r : *rows)
    if (r.verdict != Verdict::ok) return fail(kFailedCheck, short_text(r.problem) + ": " + to_string(r.verdict) + ": " + r.reason);
  return kDone;
}

int run_first_launch(const Environment& environment, const std::string& device, const std::string& text) {
  const auto problem = problem_from_text(text);
  if (!problem) return fail(problem.error());
  ContextOptions options = environment.context;
  options.device = device;
  const auto first = bench::first_launch(options, *problem);
  if (!first) return fail(first.error());
  print_json({{"ms", first->ms}, {"compile_count", first->compile_count}});
  return kDone;
}

void add_first_launch(CLI::App& app, Session& session) {
  auto* sub = app.add_subcommand(kFirstLaunchCommand, "")->group("");
  auto device = std::make_shared<std::string>();
  auto problem = std::make_shared<std::string>();
  sub->add_option("--device", *device)->required();
  sub->add_option("PROBLEM", *problem)->required();
  sub->callback([&session, device, problem] { session.exit_code = run_first_launch(session.environment, *device, *problem); });
}

}  // namespace

void add_bench(CLI::App& app, Session& session) {
  auto* sub = app.add_subcommand("bench", "Time kernels beside the read ceiling and cuBLAS");
  auto options = std::make_shared<Options>();
  sub->add_option("--device", options->device, "auto, host or cuda:N")->check(not_empty);
  // How many experts a routed product has, no option says: `quern tune` times it from a list of problems.
  auto ops = op_names();
  std::erase(ops, std::string(to_string(Op::mul_mat_id)));
  sub->add_option("--op", options->ops, "Ops")->delimiter(',')->check(CLI::IsMember(ops))->capture_default_str();
  sub->add_option("--type", options->types, "Weight types (default: q4_0,q8_0,q4_k; of the integer ops their codes)")
      ->delimiter(',')
      ->check(CLI::IsMember(type_names()));
  sub->add_option("--shape", options->shapes, "N,K; may be repeated (default: 14336,4096)");
  sub->add_option("--m", options->ms, "Rows of X (default: 1,2,4,8,16,64,512,2048)")
      ->delimiter(',')
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 31));
  sub->add_option("--layout", options->layouts, "Weight layouts")
      ->delimiter(',')
      ->check(CLI::IsMember(layout_names()))
      ->capture_default_str();
  sub->add_option("--class", options->accuracy, "Accuracy class")->check(CLI::IsMember(accuracy_names()));
  sub->add_option("--y-dtype", options->y_dtype, "Element type of Y (default: f32; of the integer ops bf16)")
      ->check(CLI::IsMember(dtype_names()));
  auto* every =
      sub->add_flag("--every-family", options->every_family, "A row per family that supports the problem, each with its best config");
  sub->add_option("--config", options->configs, "This config, e.g. gemm:stages=3, the rest as in its family's default; may be repeated")
      ->excludes(every);
  sub->add_flag("--json", options->json, "One JSON object on stdout");
  sub->callback([&session, options] { session.exit_code = run_bench(session.environment, *options); });
  add_first_launch(app, session);
}

}  // namespace quern::tools

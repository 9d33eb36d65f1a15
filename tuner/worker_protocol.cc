#include "tuner/worker_protocol.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace quern::protocol {
namespace {

using Json = nlohmann::json;

// Everything below throws on a malformed line; decode_* turn that into kCorrupt.

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }
double number(const Json& value) { return value.is_null() ? std::numeric_limits<double>::infinity() : value.get<double>(); }

template <class T>
T value_or_throw(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

Json to_json(const MeasureSettings& s) {
  return {{"time", s.time},
          {"keep_spilling", s.keep_spilling},
          {"max_samples", s.max_samples},
          {"max_seconds", s.max_seconds},
          {"spread_limit", s.spread_limit},
          {"repeats", s.repeats},
          {"hopeless_us", s.hopeless_us}};
}
MeasureSettings settings_from(const Json& j) {
  MeasureSettings s;
  j.at("time").get_to(s.time);
  j.at("keep_spilling").get_to(s.keep_spilling);
  j.at("max_samples").get_to(s.max_samples);
  j.at("max_seconds").get_to(s.max_seconds);
  j.at("spread_limit").get_to(s.spread_limit);
  j.at("repeats").get_to(s.repeats);
  j.at("hopeless_us").get_to(s.hopeless_us);
  return s;
}

Json to_json(const DataOptions& d) {
  return {{"seed", d.seed},           {"rotate", d.rotate},
          {"x_gap", d.x_gap},         {"y_gap", d.y_gap},
          {"w_gap", d.w_gap},         {"offset", d.offset},
          {"gguf_path", d.gguf_path}, {"tensor", d.tensor},
          {"first_row", d.first_row}, {"sorted_codebooks", d.sorted_codebooks}};
}
DataOptions data_from(const Json& j) {
  DataOptions d;
  j.at("seed").get_to(d.seed);
  j.at("rotate").get_to(d.rotate);
  j.at("x_gap").get_to(d.x_gap);
  j.at("y_gap").get_to(d.y_gap);
  j.at("w_gap").get_to(d.w_gap);
  j.at("offset").get_to(d.offset);
  j.at("gguf_path").get_to(d.gguf_path);
  j.at("tensor").get_to(d.tensor);
  j.at("first_row").get_to(d.first_row);
  j.at("sorted_codebooks").get_to(d.sorted_codebooks);
  return d;
}

Json to_json(const DeviceInfo& d) {
  return {{"spec", d.spec},
          {"host", d.target.kind == Target::Kind::host},
          {"sm", d.target.sm},
          {"exact_arch", d.target.exact_arch},
          {"name", d.identity.name},
          {"sm_count", d.identity.sm_count},
          {"memory_mib", d.identity.memory_mib},
          {"clock_mhz_class", d.identity.clock_mhz_class},
          {"architecture", d.identity.architecture},
          {"l2_bytes", d.l2_bytes},
          {"memory_bytes", d.memory_bytes},
          {"max_shared_bytes", d.max_shared_bytes},
          {"driver_version", d.driver_version}};
}
DeviceInfo device_from(const Json& j) {
  DeviceInfo d;
  j.at("spec").get_to(d.spec);
  d.target.kind = j.at("host").get<bool>() ? Target::Kind::host : Target::Kind::cuda;
  j.at("sm").get_to(d.target.sm);
  j.at("exact_arch").get_to(d.target.exact_arch);
  j.at("name").get_to(d.identity.name);
  j.at("sm_count").get_to(d.identity.sm_count);
  j.at("memory_mib").get_to(d.identity.memory_mib);
  j.at("clock_mhz_class").get_to(d.identity.clock_mhz_class);
  j.at("architecture").get_to(d.identity.architecture);
  j.at("l2_bytes").get_to(d.l2_bytes);
  j.at("memory_bytes").get_to(d.memory_bytes);
  j.at("max_shared_bytes").get_to(d.max_shared_bytes);
  j.at("driver_version").get_to(d.driver_version);
  return d;
}

Json to_json(const Measurement& m) {
  return {{"config", to_string(m.config)}, {"verdict", static_cast<int>(m.verdict)}, {"reason", m.reason},
          {"nmse", number(m.nmse)},        {"max_error", number(m.max_error)},       {"us", number(m.us)},
          {"spread", number(m.spread)},    {"us_l2_warm", number(m.us_l2_warm)},     {"unstable", m.unstable},
          {"artifact", m.artifact}};
}
Measurement measurement_from(const Json& j) {
  Measurement m;
  m.config = value_or_throw(parse_config(j.at("config").get<std::string>()));
  const int verdict = j.at("verdict").get<int>();
  if (verdict < 0 || verdict > static_cast<int>(Verdict::rejected)) throw std::runtime_error("verdict out of range");
  m.verdict = static_cast<Verdict>(verdict);
  j.at("reason").get_to(m.reason);
  m.nmse = number(j.at("nmse"));
  m.max_error = number(j.at("max_error"));
  m.us = number(j.at("us"));
  m.spread = number(j.at("spread"));
  m.us_l2_warm = number(j.at("us_l2_warm"));
  j.at("unstable").get_to(m.unstable);
  j.at("artifact").get_to(m.artifact);
  return m;
}

Json to_json(const Timing& t) { return {{"median", t.us_median}, {"p10", t.us_p10}, {"p90", t.us_p90}, {"samples", t.samples}}; }
Timing timing_from(const Json& j) {
  return {j.at("median").get<double>(), j.at("p10").get<double>(), j.at("p90").get<double>(), j.at("samples").get<int>()};
}

std::string line_of(const Json& j) { return j.dump(-1, ' ', true, Json::error_handler_t::replace); }

Request request_from(const Json& j) {
  const auto what = j.at("do").get<std::string>();
  if (what == "prepare") return Prepare{value_or_throw(parse_problem(j.at("problem").get<std::string>())), data_from(j.at("data"))};
  if (what == "measure") return Measure{value_or_throw(parse_config(j.at("config").get<std::string>())), settings_from(j.at("settings"))};
  if (what == "ceiling") return Ceiling{j.at("bytes").get<std::int64_t>()};
  if (what != "compare") throw std::runtime_error("unknown request");
  Compare compare{{}, settings_from(j.at("settings"))};
  for (const Json& c : j.at("configs")) compare.configs.push_back(value_or_throw(parse_config(c.get<std::string>())));
  return compare;
}

Answer answer_from(const Json& j) {
  if (j.contains("ok")) return Done{};
  if (j.contains("device")) return device_from(j.at("device"));
  if (j.contains("measurement")) return Measured{measurement_from(j.at("measurement")), j.at("lost").get<bool>()};
  if (j.contains("us")) return CeilingFound{j.at("us").is_null() ? std::nullopt : std::optional(j.at("us").get<double>())};
  if (j.contains("timings")) {
    Compared compared;
    for (const Json& t : j.at("timings")) compared.timings.push_back(timing_from(t));
    return compared;
  }
  const Json& e = j.at("error");
  const int code = e.at("code").get<int>();
  if (code < 0 || code > static_cast<int>(ErrorCode::kCancelled)) throw std::runtime_error("error code out of range");
  return Error{static_cast<ErrorCode>(code), e.at("message").get<std::string>(), {}};
}

template <class T, class From>
Result<T> decode(const std::string& line, From from) {
  try {
    return from(Json::parse(line));
  } catch (const std::exception& e) {
    return Error{ErrorCode::kCorrupt, "worker protocol: \"" + line.substr(0, 120) + "\": " + e.what(), {}};
  }
}

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

}  // namespace

std::string encode(const Request& request) {
  return line_of(std::visit(Overloaded{[](const Prepare& r) -> Json {
                                         return {{"do", "prepare"}, {"problem", to_string(r.problem)}, {"data", to_json(r.data)}};
                                       },
                                       [](const Measure& r) -> Json {
                                         return {{"do", "measure"}, {"config", to_string(r.config)}, {"settings", to_json(r.settings)}};
                                       },
                                       [](const Ceiling& r) -> Json {
                                         return {{"do", "ceiling"}, {"bytes", r.bytes}};
                                       },
                                       [](const Compare& r) -> Json {
                                         Json configs = Json::array();
                                         for (const Config& c : r.configs) configs.push_back(to_string(c));
                                         return {{"do", "compare"}, {"configs", configs}, {"settings", to_json(r.settings)}};
                                       }},
                            request));
}

std::string encode(const Answer& answer) {
  return line_of(std::visit(Overloaded{[](const Done&) -> Json {
                                         return {{"ok", true}};
                                       },
                                       [](const DeviceInfo& d) -> Json {
                                         return {{"device", to_json(d)}};
                                       },
                                       [](const Measured& a) -> Json {
                                         return {{"measurement", to_json(a.measurement)}, {"lost", a.lost}};
                                       },
                                       [](const CeilingFound& a) -> Json {
                                         return {{"us", a.us ? Json(*a.us) : Json(nullptr)}};
                                       },
                                       [](const Error& e) -> Json {
                                         return {{"error", {{"code", static_cast<int>(e.code)}, {"message", e.message}}}};
                                       },
                                       [](const Compared& a) -> Json {
                                         Json timings = Json::array();
                                         for (const Timing& t : a.timings) timings.push_back(to_json(t));
                                         return {{"timings", timings}};
                                       }},
                            answer));
}

Result<Request> decode_request(const std::string& line) { return decode<Request>(line, request_from); }
Result<Answer> decode_answer(const std::string& line) { return decode<Answer>(line, answer_from); }

}  // namespace quern::protocol

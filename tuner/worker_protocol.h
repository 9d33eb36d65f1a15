// What parent and worker say to each other: one JSON object a line.
//
//   worker, once   {"device": {...}}                                         or {"error": {...}}: it could not start
//   parent         {"do": "prepare", "problem": text, "data": {...}}         answer: {"ok": true}
//                  {"do": "measure", "config": text, "settings": {...}}      answer: {"measurement": {...}, "lost": bool}
//                  {"do": "compare", "configs": [text...], "settings": ...}  answer: {"timings": [{...}...]}
//                  {"do": "ceiling", "bytes": n}                             answer: {"us": x or null}
//   any answer may be {"error": {"code": n, "message": text}}
//
// JSON, because a line can be read by people and a torn line is recognized as one; a number that is not finite travels as null and becomes
// infinity. Requests and answers alternate, so no identifiers are needed.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tuner/measurer.h"

namespace quern::protocol {

struct Prepare {
  Problem problem;
  DataOptions data;
};
struct Measure {
  Config config;
  MeasureSettings settings;
};
struct Compare {
  std::vector<Config> configs;
  MeasureSettings settings;
};
struct Ceiling {
  std::int64_t bytes = 0;
};
using Request = std::variant<Prepare, Measure, Compare, Ceiling>;

struct Done {};
struct Measured {
  Measurement measurement;
  bool lost = false;  // the worker's device context is gone; it ends after this answer
};
struct Compared {
  std::vector<Timing> timings;
};
struct CeilingFound {
  std::optional<double> us;
};
using Answer = std::variant<Done, DeviceInfo, Measured, Compared, CeilingFound, Error>;

// Without the line feed.
std::string encode(const Request& request);
std::string encode(const Answer& answer);
// Errors: kCorrupt, quoting the line.
Result<Request> decode_request(const std::string& line);
Result<Answer> decode_answer(const std::string& line);

}  // namespace quern::protocol

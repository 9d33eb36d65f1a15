// Measurement: what became of one config on one problem on one device.
#pragma once

#include <cstdint>
#include <string>

#include "quern/config.h"

namespace quern {

// ok: verified and timed. Every other verdict disqualifies, is remembered with its reason, and is not tried again with the same artifact.
enum class Verdict : std::uint8_t {
  ok,
  wrong_output,
  incomplete_output,
  out_of_bounds_write,
  compile_failed,
  launch_failed,
  crashed,
  timed_out,
  out_of_memory,
  rejected
};

constexpr const char* to_string(Verdict v) {
  switch (v) {
    case Verdict::ok:
      return "ok";
    case Verdict::wrong_output:
      return "wrong_output";
    case Verdict::incomplete_output:
      return "incomplete_output";
    case Verdict::out_of_bounds_write:
      return "out_of_bounds_write";
    case Verdict::compile_failed:
      return "compile_failed";
    case Verdict::launch_failed:
      return "launch_failed";
    case Verdict::crashed:
      return "crashed";
    case Verdict::timed_out:
      return "timed_out";
    case Verdict::out_of_memory:
      return "out_of_memory";
    case Verdict::rejected:
      return "rejected";
  }
  return "?";
}

struct Measurement {
  Config config;
  Verdict verdict = Verdict::ok;
  std::string reason;     // empty when ok
  double nmse = 0;        // against double precision
  double max_error = 0;   // worst element, relative to the sum of absolute products
  double us = 0;          // median time of the whole op, weights rotating through more than 3x the L2
  double spread = 0;      // (p90 - p10) / median
  double us_l2_warm = 0;  // the same with one copy of the weights
  bool unstable = false;  // the device was busy or throttling while this was timed
  std::string artifact;   // key of the binary that was measured, 64 hex digits
};

}  // namespace quern

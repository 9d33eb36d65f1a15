// Planted candidates: a family whose configs name how a kernel misbehaves, and the compiler and device that make them do so. The device
// computes right answers through the oracle and then spoils them, so that the tuner's checks meet real buffers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/compiler.h"
#include "tuner/candidate_source.h"
#include "tuner/workbench.h"

namespace quern::planted {

enum Behaviour : std::int64_t {
  kRight,
  kCrash,  // SIGSEGV
  kHang,
  kHalfOutput,      // writes the first half only
  kFenceWrite,      // one byte past the output
  kGapWrite,        // the element after the first row, where a gap is
  kWorkspaceFence,  // one byte before the workspace
  kWrongElement,    // the last output is off by 10% of its scale
  kNan,             // the first output is NaN
  kLaunchFails,
  kDeviceLost,
  kCompileFails,
  kNoisy,           // right, but timings scatter
  kReadsWorkspace,  // relies on scratch being zero
  kSloppy,          // every output off by 2% of its scale: beyond tight and normal, within loose's worst element
};

// "planted" with the parameters `behaviour` and `us` (what the device reports as its time), every combination of the values given.
// `family` and `planted_space` with other values stand for a template that gained a value.
std::unique_ptr<Family> family(std::vector<std::int64_t> behaviours, std::vector<std::int64_t> us, std::string name = "planted");
Config config(std::int64_t behaviour, std::int64_t us, const std::string& name = "planted");
// Candidates of these families; the default is the first family's default.
CandidateSource source(std::vector<const Family*> families);

std::unique_ptr<Compiler> compiler();
// Appends one line to `log_path` (unless empty) for every launch: the kernel's text.
std::unique_ptr<Device> device(std::string log_path = {});

// A problem that the planted device computes: mul_mat q4_0, gguf layout, f32.
Problem problem(std::int64_t m = 3, std::int64_t n = 20, std::int64_t k = 64);

}  // namespace quern::planted

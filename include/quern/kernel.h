// What the stages hand to one another between a config and a launch: source text, binary, resource usage.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "quern/problem.h"

namespace quern {

struct Dim3 {
  std::uint32_t x = 1, y = 1, z = 1;
  auto operator<=>(const Dim3&) const = default;
};

// One kernel launch of an op. Every kernel takes exactly one parameter: a quern::KernelArgs by value (templates/args.h).
struct LaunchStep {
  std::string entry;  // extern "C" name inside the module
  Dim3 grid;
  Dim3 block;
  std::uint32_t shared_bytes = 0;  // dynamic shared memory
  // May start while the launch before it on its stream still runs, whosever that is: the kernel itself waits until that one has ended and
  // its writes are visible (ptx::wait_previous). Where the device cannot overlap launches this changes nothing.
  bool overlaps_previous = false;
  bool operator==(const LaunchStep&) const = default;
};

// A file that the rendered text includes: name as written in #include, and its text.
struct SourceHeader {
  std::string name;
  std::string text;
  bool operator==(const SourceHeader&) const = default;
};

// Rendered text with everything that decides what it compiles to. `text` + `headers` + `options` are hashed into the artifact key;
// steps and workspace are functions of problem and config and need not be.
struct KernelSource {
  std::string name;  // for messages and profilers: family and type
  std::string text;
  std::vector<SourceHeader> headers;  // every embedded template file that `text` can reach, in a fixed order
  std::vector<std::string> options;   // compiler options besides the target, in a fixed order
  std::vector<LaunchStep> steps;      // launched in order on one stream; empty when there is nothing to compute
  std::size_t workspace_bytes = 0;    // scratch the caller passes to every launch; contents need no initialization
  Accuracy accuracy = Accuracy::f32;  // the class this kernel states it meets
};

struct ResourceUsage {
  int registers = 0;  // per thread, the largest over the module's entries
  int static_shared_bytes = 0;
  int local_bytes = 0;  // per thread: stack frame and spills
  int spill_bytes = 0;  // stores + loads, from the compiler's log
  bool operator==(const ResourceUsage&) const = default;
};

// What a compiler made of a KernelSource for one target.
struct Binary {
  enum class Format : std::uint8_t { cubin, ptx, host_object };
  Format format = Format::cubin;
  std::vector<std::byte> bytes;
  ResourceUsage usage;
  std::string log;
  double compile_ms = 0;
};

}  // namespace quern

// Target: what code is generated for. DeviceIdentity: on what a measurement was taken.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace quern {

struct Target {
  enum class Kind : std::uint8_t { cuda, host };
  Kind kind = Kind::host;
  int sm = 0;               // compute capability times ten (75, 80, 90, 120); 0 on the host
  bool exact_arch = false;  // architecture-specific features (sm_90a): code runs on exactly this architecture

  auto operator<=>(const Target&) const = default;
};

// "sm_90a", "sm_80" or "host".
inline std::string to_string(const Target& t) {
  if (t.kind == Target::Kind::host) return "host";
  return "sm_" + std::to_string(t.sm) + (t.exact_arch ? "a" : "");
}

// Everything about a device that a tuning depends on. Two GPUs with equal identities share tunings; others never do silently.
struct DeviceIdentity {
  std::string name;  // as the driver reports it
  int sm_count = 0;
  std::int64_t memory_mib = 0;  // rounded down to a GiB, so that reserved memory does not split identities
  int clock_mhz_class = 0;      // maximum SM clock rounded to 50 MHz
  std::string architecture;     // to_string(Target)

  auto operator<=>(const DeviceIdentity&) const = default;
};

// One line: "NVIDIA H200 | sm_90a | 132 SMs | 140 GiB | 2000 MHz".
inline std::string to_string(const DeviceIdentity& d) {
  return d.name + " | " + d.architecture + " | " + std::to_string(d.sm_count) + " SMs | " + std::to_string(d.memory_mib / 1024) +
         " GiB | " + std::to_string(d.clock_mhz_class) + " MHz";
}

}  // namespace quern

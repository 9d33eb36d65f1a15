// Versions that isolate what one quern makes from what another may use.
#pragma once

namespace quern {

inline constexpr const char* kVersion = "0.1.0";

// Changes whenever the same problem and config may render or mean something else. It is part of every artifact key and of
// every measurement, so rows of another generator are kept but never loaded. Overridable at build time to test exactly that.
#ifdef QUERN_GENERATOR_VERSION_OVERRIDE
inline constexpr const char* kGeneratorVersion = QUERN_GENERATOR_VERSION_OVERRIDE;
#else
inline constexpr const char* kGeneratorVersion = "4";
#endif

}  // namespace quern

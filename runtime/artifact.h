// From rendered source to a binary, through the store: the one place that decides what an artifact's key is made of.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cache/store.h"
#include "quern/kernel.h"
#include "quern/result.h"
#include "quern/target.h"
#include "quern/version.h"
#include "runtime/compiler.h"

namespace quern {

struct ArtifactKey {
  cache::Key key;
  std::string dump;  // what was hashed, for people
};

// Everything that decides the binary: the text, each header's name and text, the options, the target, the compiler and quern's generator
// version, in this order. The source's name, its geometry and its workspace are functions of the problem and decide nothing here.
ArtifactKey artifact_key(const KernelSource& source, const Target& target, std::string_view compiler_identity,
                         std::string_view generator_version = kGeneratorVersion);

// What to render and compile for on `device`: the device's own target, or the same architecture without its architecture-specific features
// when the compiler is too old to know those (it then answers with PTX).
Target compile_target(const Compiler& compiler, const Target& device);

// Reads the binary from the store, or compiles it and stores it; one process compiles, the others wait for it. `compiled`, when given,
// tells whether the compiler ran here. Errors: the compiler's; a store that fails is a miss.
Result<Binary> get_or_compile(cache::Store& store, const Compiler& compiler, const KernelSource& source, const Target& target,
                              bool* compiled = nullptr);

// Between a compiler's result and what the store keeps. `to_binary` is empty when the artifact has a format that this version does not
// know.
cache::Artifact to_artifact(const Binary& binary, const KernelSource& source, const Target& target, std::string_view compiler_identity,
                            std::string_view key_dump);
std::optional<Binary> to_binary(const cache::Artifact& artifact);

}  // namespace quern

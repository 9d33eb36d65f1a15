#include "runtime/artifact.h"

#include <nlohmann/json.hpp>

namespace quern {
namespace {

constexpr std::string_view format_name(Binary::Format format) {
  switch (format) {
    case Binary::Format::cubin:
      return "cubin";
    case Binary::Format::ptx:
      return "ptx";
    case Binary::Format::host_object:
      return "host_object";
  }
  return "?";
}

std::optional<Binary::Format> format_from_name(std::string_view name) {
  for (auto format : {Binary::Format::cubin, Binary::Format::ptx, Binary::Format::host_object})
    if (format_name(format) == name) return format;
  return std::nullopt;
}

std::string usage_to_json(const ResourceUsage& usage) {
  return nlohmann::ordered_json{{"registers", usage.registers},
                                {"static_shared_bytes", usage.static_shared_bytes},
                                {"local_bytes", usage.local_bytes},
                                {"spill_bytes", usage.spill_bytes}}
      .dump();
}

// Usage informs people and the tuner's static check; a row without it is still a kernel, so what is missing or malformed reads as 0.
ResourceUsage usage_from_json(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto number = [&](const char* name) {
    if (!json.is_object()) return 0;
    const auto found = json.find(name);
    return found != json.end() && found->is_number_integer() ? found->get<int>() : 0;
  };
  return {.registers = number("registers"),
          .static_shared_bytes = number("static_shared_bytes"),
          .local_bytes = number("local_bytes"),
          .spill_bytes = number("spill_bytes")};
}

}  // namespace

ArtifactKey artifact_key(const KernelSource& source, const Target& target, std::string_view compiler_identity,
                         std::string_view generator_version) {
  cache::KeyBuilder builder;
  builder.field("kind", "kernel").field("text", source.text);
  for (const auto& header : source.headers) builder.field("header", header.name).field("header text", header.text);
  for (const auto& option : source.options) builder.field("option", option);
  builder.field("target", to_string(target)).field("compiler", compiler_identity).field("generator", generator_version);
  return {builder.finish(), builder.dump()};
}

Target compile_target(const Compiler& compiler, const Target& device) {
  if (compiler.supports(device)) return device;
  Target portable = device;
  portable.exact_arch = false;
  return compiler.supports(portable) ? portable : device;
}

cache::Artifact to_artifact(const Binary& binary, const KernelSource& source, const Target& target, std::string_view compiler_identity,
                            std::string_view key_dump) {
  return {.bytes = binary.bytes,
          .format = std::string(format_name(binary.format)),
          .name = source.name,
          .target = to_string(target),
          .compiler = std::string(compiler_identity),
          .generator_version = kGeneratorVersion,
          .usage_json = usage_to_json(binary.usage),
          .log = binary.log,
          .key_dump = std::string(key_dump),
          .compile_ms = binary.compile_ms};
}

std::optional<Binary> to_binary(const cache::Artifact& artifact) {
  const auto format = format_from_name(artifact.format);
  if (!format) return std::nullopt;
  return Binary{.format = *format,
                .bytes = artifact.bytes,
                .usage = usage_from_json(artifact.usage_json),
                .log = artifact.log,
                .compile_ms = artifact.compile_ms};
}

Result<Binary> get_or_compile(cache::Store& store, const Compiler& compiler, const KernelSource& source, const Target& target,
                              bool* compiled) {
  bool ran = false;
  const std::string identity = compiler.identity();
  const ArtifactKey key = artifact_key(source, target, identity);
  const auto make = [&]() -> Result<cache::Artifact> {
    ran = true;
    QUERN_ASSIGN(const Binary binary, compiler.compile(source, target));
    return to_artifact(binary, source, target, identity, key.dump);
  };
  bool made = false;
  QUERN_ASSIGN(const cache::Artifact artifact, store.find_or_make(key.key, make, &made));
  if (auto binary = to_binary(artifact)) {
    if (compiled != nullptr) *compiled = ran;
    return std::move(*binary);
  }
  if (compiled != nullptr) *compiled = true;
  return compiler.compile(source, target);  // a row this version cannot read is a miss
}

}  // namespace quern

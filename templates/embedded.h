// The template files as text, built into the library.
#pragma once

#include <span>
#include <string_view>

namespace quern {

struct EmbeddedFile {
  std::string_view name;  // as written in #include: "decode/q4_0.cuh"
  std::string_view text;
};

std::span<const EmbeddedFile> embedded_files();

}  // namespace quern

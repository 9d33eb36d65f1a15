// clang in process: kernel text and its headers from memory to a relocatable object in memory. Touches no file and starts no process.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace quern::host {

struct SourceFile {
  std::string name;  // as written in #include
  std::string text;
};

struct CompileInput {
  std::string name;
  std::string text;
  std::vector<SourceFile> headers;
  std::vector<std::string> options;  // clang -cc1 options
};

struct CompileOutput {
  bool ok = false;
  std::string object;
  std::string log;  // diagnostics with file, line and column
};

// "clang 14.0.6 x86-64-v3": with the source and options it decides every byte of an object.
const std::string& compiler_identity();
// Thread-safe.
CompileOutput compile_kernel(const CompileInput& input);

}  // namespace quern::host

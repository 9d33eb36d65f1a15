#include "tools/command.h"

#include <algorithm>
#include <cstdio>

namespace quern::tools {
namespace {

constexpr int kLogLines = 12;

std::string one_line(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';  // a name from a file may hold a terminal's escapes
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

void print_log(const std::string& log) {
  std::size_t at = 0;
  for (int line = 0; line < kLogLines && at < log.size(); ++line) {
    const std::size_t end = std::min(log.find('\n', at), log.size());
    std::fprintf(stderr, "  %s\n", log.substr(at, end - at).c_str());
    at = end + 1;
  }
}

}  // namespace

int exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return kUsage;
    case ErrorCode::kEnvironment:
    case ErrorCode::kDeviceLost:
    case ErrorCode::kVersionMismatch:
    case ErrorCode::kTimeout:  // a store that another process keeps locked
      return kNoEnvironment;
    case ErrorCode::kUnsupported:
    case ErrorCode::kCompileFailed:
    case ErrorCode::kLaunchFailed:
    case ErrorCode::kCorrupt:
    case ErrorCode::kCancelled:
      return kFailedCheck;
  }
  return kFailedCheck;
}

std::string not_empty(const std::string& value) { return value.empty() ? "found '', needed a text" : ""; }

int fail(const Error& error) {
  std::fprintf(stderr, "quern: %s\n", one_line(error.message).c_str());
  if (error.code == ErrorCode::kCompileFailed) print_log(error.log);
  return exit_code(error.code);
}

int fail(ExitCode code, const std::string& message) {
  std::fprintf(stderr, "quern: %s\n", one_line(message).c_str());
  return code;
}

void remark(const std::string& text) { std::fprintf(stderr, "%s\n", one_line(text).c_str()); }

}  // namespace quern::tools

// Errors as values: one type, used wherever the caller decides what happens next.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace quern {

enum class ErrorCode {
  kInvalidArgument,  // the caller passed something that no version could accept
  kUnsupported,      // legal, but nothing here can do it; the message says what would be needed
  kCompileFailed,    // the compiler refused the rendered source; `log` holds its output
  kLaunchFailed,     // the device refused or faulted
  kDeviceLost,       // the device context is unusable from here on
  kVersionMismatch,  // written by another version of quern; left untouched
  kCorrupt,          // bytes that do not match their hash or their format
  kEnvironment,      // something missing on this machine: driver, NVRTC, LLVM plugin, disk space
  kTimeout,
  kCancelled,
};

inline const char* to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid argument";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kCompileFailed:
      return "compile failed";
    case ErrorCode::kLaunchFailed:
      return "launch failed";
    case ErrorCode::kDeviceLost:
      return "device lost";
    case ErrorCode::kVersionMismatch:
      return "version mismatch";
    case ErrorCode::kCorrupt:
      return "corrupt";
    case ErrorCode::kEnvironment:
      return "environment";
    case ErrorCode::kTimeout:
      return "timeout";
    case ErrorCode::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

// `message` is one line that names the thing, the value found and the value needed. `log` is optional detail of any length.
struct Error {
  ErrorCode code = ErrorCode::kInvalidArgument;
  std::string message;
  std::string log;
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  explicit operator bool() const { return state_.index() == 0; }
  T& value() { return std::get<0>(state_); }
  const T& value() const { return std::get<0>(state_); }
  T& operator*() { return value(); }
  const T& operator*() const { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  Error& error() { return std::get<1>(state_); }
  const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  explicit operator bool() const { return !error_.has_value(); }
  Error& error() { return *error_; }
  const Error& error() const { return *error_; }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

// Returns from the enclosing function when `expr` failed. The enclosing function returns Result or Status.
#define QUERN_TRY(expr)                                                              \
  do {                                                                               \
    if (auto quern_try_ = (expr); !quern_try_) return std::move(quern_try_.error()); \
  } while (false)

#define QUERN_CONCAT_(a, b) a##b
#define QUERN_CONCAT(a, b) QUERN_CONCAT_(a, b)
// QUERN_ASSIGN(auto x, f()): declares x from a Result, or returns its error.
#define QUERN_ASSIGN(decl, expr)                                                                               \
  auto QUERN_CONCAT(quern_result_, __LINE__) = (expr);                                                         \
  if (!QUERN_CONCAT(quern_result_, __LINE__)) return std::move(QUERN_CONCAT(quern_result_, __LINE__).error()); \
  decl = std::move(*QUERN_CONCAT(quern_result_, __LINE__))

}  // namespace quern

// The border between C++ and C: results become codes, exceptions stop here, and each thread keeps its last error.
#pragma once

#include <exception>
#include <new>
#include <string>

#include "quern/quern.h"
#include "quern/result.h"

namespace quern::c {

constexpr quern_status to_c(ErrorCode code) { return static_cast<quern_status>(static_cast<int>(code) + 1); }

// Keep the error as the calling thread's last one and return its code. None of them throws: where memory is short a fixed text stands in.
quern_status fail(Error error) noexcept;
quern_status fail_out_of_memory() noexcept;
quern_status fail_internal(const char* what) noexcept;

// Runs `body`, which returns a Status, and turns whatever comes of it into a code.
template <class Body>
quern_status guard(Body body) noexcept {
  try {
    Status status = body();
    return status ? QUERN_OK : fail(std::move(status.error()));
  } catch (const std::bad_alloc&) {
    return fail_out_of_memory();
  } catch (const std::exception& exception) {
    return fail_internal(exception.what());
  } catch (...) {
    return fail_internal("an exception of an unknown type");
  }
}

inline Error invalid(std::string message) { return {ErrorCode::kInvalidArgument, std::move(message), {}}; }

inline Status need(const void* pointer, const char* name) {
  if (pointer == nullptr) return invalid(std::string(name) + " is null");
  return {};
}

}  // namespace quern::c

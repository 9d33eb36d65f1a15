#include "runtime/c/border.h"

#include <algorithm>
#include <cstdio>

#include "quern/version.h"

namespace quern::c {
namespace {

struct LastError {
  std::string message, log;
  char fixed[256] = "";  // where there was no memory for `message`
  bool use_fixed = false;
};
thread_local LastError last;

quern_status fail_fixed(quern_status status, const char* format, const char* what) noexcept {
  std::snprintf(last.fixed, sizeof last.fixed, format, what);
  last.log.clear();
  last.use_fixed = true;
  return status;
}

}  // namespace

quern_status fail(Error error) noexcept {
  last.message = std::move(error.message);
  std::replace_if(
      last.message.begin(), last.message.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');  // one line
  last.log = std::move(error.log);
  last.use_fixed = false;
  return to_c(error.code);
}

quern_status fail_out_of_memory() noexcept { return fail_fixed(QUERN_OUT_OF_MEMORY, "%s", "this process is out of memory"); }

quern_status fail_internal(const char* what) noexcept { return fail_fixed(QUERN_INTERNAL, "a fault inside quern: %s", what); }

}  // namespace quern::c

const char* quern_last_error(void) { return quern::c::last.use_fixed ? quern::c::last.fixed : quern::c::last.message.c_str(); }

const char* quern_last_error_log(void) { return quern::c::last.log.c_str(); }

const char* quern_version(void) { return quern::kVersion; }

uint32_t quern_abi_version(void) { return QUERN_ABI_VERSION; }

const char* quern_status_name(quern_status status) {
  switch (status) {
    case QUERN_OK:
      return "ok";
    case QUERN_OUT_OF_MEMORY:
      return "out of memory";
    case QUERN_INTERNAL:
      return "internal";
    default:
      return quern::to_string(static_cast<quern::ErrorCode>(static_cast<int>(status) - 1));
  }
}

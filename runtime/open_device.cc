// From a device's name to a device.
#include <charconv>
#include <string>

#include "runtime/compiler.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/device.h"
#include "runtime/host_device.h"

namespace quern {
namespace {

Result<int> cuda_ordinal(const std::string& spec) {
  constexpr std::string_view kPrefix = "cuda:";
  int ordinal = -1;
  const char* begin = spec.data() + kPrefix.size();
  const char* end = spec.data() + spec.size();
  if (spec.starts_with(kPrefix) && begin != end) {
    const auto parsed = std::from_chars(begin, end, ordinal);
    if (parsed.ec == std::errc() && parsed.ptr == end && ordinal >= 0) return ordinal;
  }
  return Error{ErrorCode::kInvalidArgument, "device '" + spec + "' is not one of: auto, host, cuda:N with N = 0, 1, ...", {}};
}

}  // namespace

Result<std::unique_ptr<Device>> open_device(const std::string& spec, const LibraryPaths& paths) {
  if (spec == "host") return open_host_device(paths);
  if (spec != "auto") {
    QUERN_ASSIGN(const int ordinal, cuda_ordinal(spec));
    return cuda::open_cuda_device(ordinal, paths.driver);
  }
  auto gpu = cuda::open_cuda_device(0, paths.driver);
  if (gpu) return gpu;
  auto host = open_host_device(paths);
  if (host) return host;
  return Error{ErrorCode::kEnvironment, "no device: " + gpu.error().message + "; " + host.error().message, {}};
}

}  // namespace quern

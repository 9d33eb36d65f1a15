// libFuzzer entry of the GGUF reader: no input may crash it, and what it accepts must keep the promises of gguf.h.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "tuner/model.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void check_accepted(const quern::GgufContents& contents) {
  for (const auto& tensor : contents.tensors) {
    require(tensor.n_dims <= 4);
    if (tensor.bytes > 0)
      require(tensor.offset >= contents.data_offset && tensor.offset <= contents.file_bytes &&
              tensor.bytes <= contents.file_bytes - tensor.offset);
    require(contents.find(tensor.name) == &tensor);  // names are unique
  }
  const auto model = quern::group_matrices(contents, [](quern::WeightType) { return true; });
  std::size_t grouped = model.skipped.size();
  for (const auto& group : model.matrices) grouped += group.tensors.size();
  require(grouped == contents.tensors.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto contents = quern::parse_gguf({reinterpret_cast<const std::byte*>(data), size});
  if (contents)
    check_accepted(*contents);
  else
    require(contents.error().message.starts_with("offset ") && contents.error().message.find('\n') == std::string::npos);
  return 0;
}

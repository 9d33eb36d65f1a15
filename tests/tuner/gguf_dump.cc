// gguf_dump MODEL ROWS: what the reader and the oracle make of a model, as text for scripts/compare_model.py.
//   tensor NAME TYPE_ID OFFSET BYTES NE...
//   row NAME INDEX HEX       the f32 bits of a decoded row, little endian; ROWS random rows of every tensor, the first and the last among
//   them group TYPE N K COUNT / skipped NAME REASON / note TEXT
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>

#include "tuner/gguf.h"
#include "tuner/model.h"
#include "tuner/oracle.h"
#include "tuner/random_weights.h"

namespace {

using quern::GgufFile;
using quern::GgufTensor;

void print_row(const GgufTensor& tensor, std::int64_t index, const std::vector<std::byte>& row) {
  std::vector<float> values(static_cast<std::size_t>(tensor.ne[0]));
  quern::dequantize_row(*tensor.type, row.data(), tensor.ne[0], values.data());
  std::printf("row %s %lld ", tensor.name.c_str(), static_cast<long long>(index));
  for (const float value : values) {
    unsigned char bytes[4];
    std::memcpy(bytes, &value, 4);
    for (const unsigned char byte : bytes) std::printf("%02x", byte);
  }
  std::printf("\n");
}

bool print_tensor(const GgufFile& file, const GgufTensor& tensor, int rows, quern::Random& random) {
  std::printf("tensor %s %u %llu %llu", tensor.name.c_str(), tensor.type_id, static_cast<unsigned long long>(tensor.offset),
              static_cast<unsigned long long>(tensor.bytes));
  for (std::uint32_t d = 0; d < tensor.n_dims; ++d) std::printf(" %lld", static_cast<long long>(tensor.ne[d]));
  std::printf("\n");
  if (!tensor.type || tensor.bytes == 0) return true;
  const std::int64_t total = tensor.ne[1] * tensor.ne[2] * tensor.ne[3];
  std::set<std::int64_t> chosen = {0, total - 1};
  while (static_cast<std::int64_t>(chosen.size()) < std::min<std::int64_t>(rows, total))
    chosen.insert(static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(total))));
  for (const std::int64_t index : chosen) {
    const auto row = file.read_rows(tensor, index, 1);
    if (!row) return std::fprintf(stderr, "%s\n", row.error().message.c_str()), false;
    print_row(tensor, index, *row);
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: gguf_dump MODEL ROWS\n"), 2;
  const auto file = GgufFile::open(argv[1]);
  if (!file) return std::fprintf(stderr, "%s\n", file.error().message.c_str()), 1;
  quern::Random random(1);
  for (const auto& tensor : file->contents().tensors)
    if (!print_tensor(*file, tensor, std::atoi(argv[2]), random)) return 1;
  const quern::Model model = quern::group_matrices(file->contents(), [](quern::WeightType) { return true; });
  for (const auto& group : model.matrices)
    std::printf("group %s %lld %lld %zu\n", std::string(to_string(group.type)).c_str(), static_cast<long long>(group.n),
                static_cast<long long>(group.k), group.tensors.size());
  for (const auto& skipped : model.skipped) std::printf("skipped %s %s\n", skipped.name.c_str(), skipped.reason.c_str());
  for (const auto& note : model.notes) std::printf("note %s\n", note.c_str());
  return 0;
}

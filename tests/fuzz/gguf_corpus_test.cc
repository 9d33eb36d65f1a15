// Runs the committed fuzzing corpus, whole and cut at every byte, through the fuzzer's entry: it aborts on a broken promise.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "tuner/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

std::vector<std::uint8_t> read_file(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::vector<std::vector<std::uint8_t>> corpus() {
  std::vector<std::vector<std::uint8_t>> files;
  for (const auto& entry : std::filesystem::directory_iterator(QUERN_FUZZ_CORPUS)) files.push_back(read_file(entry.path()));
  return files;
}

TEST(GgufCorpus, IsSmallAndHoldsValidAndBrokenFiles) {
  std::size_t accepted = 0, rejected = 0;
  const auto files = corpus();
  EXPECT_LE(files.size(), 64u);
  for (const auto& file : files) {
    EXPECT_LE(file.size(), 4096u);
    const bool valid = static_cast<bool>(quern::parse_gguf(std::as_bytes(std::span(file))));
    ++(valid ? accepted : rejected);
  }
  EXPECT_GE(accepted, 5u);
  EXPECT_GE(rejected, 20u);
}

TEST(GgufCorpus, EveryFileCutAtEveryByteKeepsThePromises) {
  for (const auto& file : corpus())
    for (std::size_t size = 0; size <= file.size(); ++size) {
      const std::vector<std::uint8_t> exact(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size));  // a sanitizer sees its end
      LLVMFuzzerTestOneInput(exact.data(), exact.size());
    }
}

TEST(GgufCorpus, EveryByteChangedKeepsThePromises) {
  for (auto file : corpus())
    for (auto& byte : file) {
      const std::uint8_t before = byte;
      for (const std::uint8_t value : {0x00, 0x01, 0x7F, 0x80, 0xFF}) {
        byte = value;
        LLVMFuzzerTestOneInput(file.data(), file.size());
      }
      byte = before;
    }
}

}  // namespace

// Reader of GGUF files (versions 2 and 3, little endian). It trusts nothing: every count, length, size and offset is checked before it is
// used, and nothing is allocated for a number that the file only claims. Tensor data is not read until asked for.
//
//   file   = "GGUF" version:u32 tensor_count:u64 metadata_count:u64 entry* tensor* padding data
//   entry  = key:string type:u32 value
//   tensor = name:string n_dims:u32 dim:u64{n_dims} type:u32 offset:u64      (offset counts from the start of data)
//   string = length:u64 byte*
//   array  = element_type:u32 count:u64 value*
//
// The padding brings `data` and every tensor in it to a multiple of general.alignment (32 unless the metadata says otherwise).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quern/result.h"
#include "quern/weight_type.h"

namespace quern {

struct GgufTensor {
  std::string name;
  std::uint32_t type_id = 0;                   // as in the file
  std::optional<WeightType> type;              // absent when it is not a weight type of quern (integers, f64, ids of the future)
  std::uint32_t n_dims = 0;                    // as in the file, 0..4
  std::array<std::int64_t, 4> ne{1, 1, 1, 1};  // ne[0] is the row length (K), ne[1] the rows (N); may be 0
  std::uint64_t offset = 0;                    // absolute, in the file
  std::uint64_t bytes = 0;                     // 0 when a dimension is 0, or when the size of the type is not known

  bool operator==(const GgufTensor&) const = default;
};

struct GgufContents {
  std::uint32_t version = 0;
  std::string architecture;                   // general.architecture; empty when absent
  std::string name;                           // general.name; empty when absent
  std::optional<std::uint32_t> experts_used;  // <architecture>.expert_used_count; absent too when it is no u32
  std::uint32_t alignment = 32;
  std::uint64_t data_offset = 0;  // absolute start of the data section
  std::uint64_t file_bytes = 0;
  std::vector<GgufTensor> tensors;  // in the file's order; names are unique

  // Null when there is none of that name. Linear.
  const GgufTensor* find(std::string_view tensor_name) const;
};

// Parses a whole file held in memory. Errors name the offset, the value found and the value needed; kCorrupt for bytes that cannot be a
// GGUF file, kUnsupported for a valid one that is not read here (big endian, version 1, one part of a split model).
// A file without tensors is valid.
Result<GgufContents> parse_gguf(std::span<const std::byte> file);

// An open file. Reads with pread: the methods are thread-safe, and a file that shrinks meanwhile gives an error, not a signal.
class GgufFile {
 public:
  // Errors: those of parse_gguf, prefixed by the path; kInvalidArgument when the file cannot be opened.
  static Result<GgufFile> open(const std::string& path);

  GgufFile(GgufFile&& other) noexcept;
  GgufFile& operator=(GgufFile&& other) noexcept;
  GgufFile(const GgufFile&) = delete;
  GgufFile& operator=(const GgufFile&) = delete;
  ~GgufFile();

  const GgufContents& contents() const { return contents_; }

  // The tensor's data, all of it. Errors: kUnsupported when the size of its type is not known, kCorrupt when the file has become too short.
  Result<std::vector<std::byte>> read_tensor(const GgufTensor& tensor) const;
  // Rows [first, first + count) of ne[1]*ne[2]*ne[3], packed. Errors: as read_tensor; kInvalidArgument for rows that the tensor lacks.
  Result<std::vector<std::byte>> read_rows(const GgufTensor& tensor, std::int64_t first, std::int64_t count) const;

 private:
  GgufFile(int descriptor, std::string path, GgufContents contents);

  int descriptor_ = -1;
  std::string path_;
  GgufContents contents_;
};

}  // namespace quern

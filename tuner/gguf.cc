#include "tuner/gguf.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace quern {
namespace {

static_assert(std::endian::native == std::endian::little, "fields are read in the file's byte order");

// The format's limit for keys; tensor names share it here (the format asks for 64, some writers exceed it).
constexpr std::uint64_t kMaxNameBytes = 65535;
constexpr std::uint64_t kMaxTextBytes = 65535;  // of the metadata strings that are kept
constexpr std::uint32_t kMaxAlignment = 65536;
constexpr int kMaxArrayDepth = 4;
// Ids below this may come to mean something, and a file that uses one can still be listed; above it the bytes are garbage.
constexpr std::uint32_t kTypeIdLimit = 256;

enum ValueType : std::uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64, kValueTypes };

// Bytes of one value; the least there can be for strings (length) and arrays (element type, count).
constexpr std::uint64_t kValueBytes[kValueTypes] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};

// Types that are not weights but whose size is known, so that the layout of their data can be checked.
struct PlainType {
  std::uint32_t id;
  int block_elements, block_bytes;
};
constexpr PlainType kPlainTypes[] = {{9, 32, 36}, {15, 256, 292}, {24, 1, 1}, {25, 1, 2}, {26, 1, 4}, {27, 1, 8}, {28, 1, 8}};

Error corrupt(std::uint64_t offset, const std::string& text) {
  return {.code = ErrorCode::kCorrupt, .message = "offset " + std::to_string(offset) + ": " + text};
}
Error unsupported(std::uint64_t offset, const std::string& text) {
  return {.code = ErrorCode::kUnsupported, .message = "offset " + std::to_string(offset) + ": " + text};
}

// A name from the file, safe to print on one line.
std::string quoted(std::string_view name) {
  constexpr std::size_t kShown = 120;
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text = "'";
  for (const char c : name.substr(0, kShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7F)
      text += c;
    else
      text.append("\\x").append(1, kDigits[byte >> 4]).append(1, kDigits[byte & 15]);
  }
  return text + (name.size() > kShown ? "...'" : "'");
}

// Bytes by absolute offset: a span or a file.
class Source {
 public:
  explicit Source(std::uint64_t size) : size_(size) {}
  virtual ~Source() = default;
  std::uint64_t size() const { return size_; }
  // Requires offset + bytes <= size().
  virtual Status read(std::uint64_t offset, std::byte* out, std::size_t bytes) const = 0;

 private:
  std::uint64_t size_;
};

class SpanSource : public Source {
 public:
  explicit SpanSource(std::span<const std::byte> file) : Source(file.size()), file_(file) {}
  Status read(std::uint64_t offset, std::byte* out, std::size_t bytes) const override {
    std::memcpy(out, file_.data() + offset, bytes);
    return {};
  }

 private:
  std::span<const std::byte> file_;
};

Status read_exactly(int descriptor, std::uint64_t offset, std::byte* out, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t got = ::pread(descriptor, out, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      return Error{.code = ErrorCode::kEnvironment,
                   .message = "offset " + std::to_string(offset) + ": read failed: " + std::strerror(errno)};
    if (got == 0) return corrupt(offset, "the file has become shorter: " + std::to_string(bytes) + " more bytes needed");
    offset += static_cast<std::uint64_t>(got);
    out += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return {};
}

class FileSource : public Source {
 public:
  FileSource(int descriptor, std::uint64_t size) : Source(size), descriptor_(descriptor) {}
  Status read(std::uint64_t offset, std::byte* out, std::size_t bytes) const override {
    return read_exactly(descriptor_, offset, out, bytes);
  }

 private:
  int descriptor_;
};

// Reads forward through a window, so that the many small fields of a header cost one system call per window.
class Cursor {
 public:
  explicit Cursor(const Source& source) : source_(source) {}

  std::uint64_t offset() const { return offset_; }
  std::uint64_t left() const { return source_.size() - offset_; }

  Status need(std::uint64_t bytes, std::string_view what) const {
    if (bytes <= left()) return {};
    return corrupt(offset_,
                   std::string(what) + " needs " + std::to_string(bytes) + " bytes, " + std::to_string(left()) + " are left in the file");
  }

  Status skip(std::uint64_t bytes, std::string_view what) {
    QUERN_TRY(need(bytes, what));
    offset_ += bytes;
    return {};
  }

  template <class T>
  Result<T> read(std::string_view what) {
    T value;
    QUERN_TRY(read_bytes(reinterpret_cast<std::byte*>(&value), sizeof(value), what));
    return value;
  }

  // A string of at most `limit` bytes; the length is checked against the file and the limit before anything is allocated.
  Result<std::string> read_string(std::uint64_t limit, std::string_view what) {
    const std::uint64_t at = offset_;
    QUERN_ASSIGN(const std::uint64_t length, read<std::uint64_t>(std::string(what) + " length"));
    if (length > limit)
      return corrupt(at, std::string(what) + " length is " + std::to_string(length) + ", at most " + std::to_string(limit) + " is valid");
    QUERN_TRY(need(length, what));
    std::string text(static_cast<std::size_t>(length), '\0');
    QUERN_TRY(read_bytes(reinterpret_cast<std::byte*>(text.data()), text.size(), what));
    return text;
  }

 private:
  static constexpr std::uint64_t kWindowBytes = 64 * 1024;

  // bytes <= kWindowBytes.
  Status read_bytes(std::byte* out, std::size_t bytes, std::string_view what) {
    QUERN_TRY(need(bytes, what));
    if (offset_ < window_start_ || offset_ + bytes > window_start_ + window_.size()) {
      window_start_ = offset_;
      window_.resize(static_cast<std::size_t>(std::min(kWindowBytes, left())));
      QUERN_TRY(source_.read(window_start_, window_.data(), window_.size()));
    }
    if (bytes > 0) std::memcpy(out, window_.data() + (offset_ - window_start_), bytes);
    offset_ += bytes;
    return {};
  }

  const Source& source_;
  std::uint64_t offset_ = 0;
  std::uint64_t window_start_ = 0;
  std::vector<std::byte> window_;
};

struct Counts {
  std::uint64_t tensors = 0;
  std::uint64_t entries = 0;
};

Result<Counts> read_header(Cursor& cursor, GgufContents& contents) {
  QUERN_ASSIGN(const std::uint32_t magic, cursor.read<std::uint32_t>("the magic 'GGUF'"));
  if (magic != 0x46554747u)
    return corrupt(0, "not a GGUF file: the magic is " + quoted({reinterpret_cast<const char*>(&magic), 4}) + ", 'GGUF' needed");
  QUERN_ASSIGN(contents.version, cursor.read<std::uint32_t>("version"));
  if (contents.version != 0 && (contents.version & 0xFFFFu) == 0)
    return unsupported(4, "this is a big-endian GGUF file (version bytes 00 00 00 " + std::to_string(contents.version >> 24) +
                              "); only little-endian files are read: convert it first");
  if (contents.version != 2 && contents.version != 3)
    return unsupported(4, "GGUF version " + std::to_string(contents.version) + " found, 2 or 3 needed");
  Counts counts;
  QUERN_ASSIGN(counts.tensors, cursor.read<std::uint64_t>("tensor count"));
  QUERN_ASSIGN(counts.entries, cursor.read<std::uint64_t>("metadata count"));
  // The least that an entry (key length, one byte of key, type, one byte of value) and a tensor (name length, dimension count, type,
  // offset) take.
  constexpr std::uint64_t kLeastEntry = 8 + 1 + 4 + 1, kLeastTensor = 8 + 4 + 4 + 8;
  if (counts.tensors > cursor.left() / kLeastTensor)
    return corrupt(8, "tensor count is " + std::to_string(counts.tensors) + ", at most " + std::to_string(cursor.left() / kLeastTensor) +
                          " fit in the file");
  if (counts.entries > cursor.left() / kLeastEntry)
    return corrupt(16, "metadata count is " + std::to_string(counts.entries) + ", at most " + std::to_string(cursor.left() / kLeastEntry) +
                           " fit in the file");
  return counts;
}

Status check_value_type(std::uint64_t offset, std::uint32_t type, const std::string& key) {
  if (type < kValueTypes) return {};
  return corrupt(offset, "metadata " + quoted(key) + " has value type " + std::to_string(type) + ", 0 to 12 are valid");
}

Status skip_array(Cursor& cursor, const std::string& key, int depth);

Status skip_value(Cursor& cursor, std::uint32_t type, const std::string& key, int depth) {
  if (type == kArray) return skip_array(cursor, key, depth + 1);
  const std::string what = "metadata " + quoted(key);
  if (type != kString) return cursor.skip(kValueBytes[type], what);
  QUERN_ASSIGN(const std::uint64_t length, cursor.read<std::uint64_t>(what));
  return cursor.skip(length, what);
}

Status skip_array(Cursor& cursor, const std::string& key, int depth) {
  const std::string what = "metadata " + quoted(key);
  const std::uint64_t at = cursor.offset();
  if (depth > kMaxArrayDepth) return corrupt(at, what + " nests arrays more than " + std::to_string(kMaxArrayDepth) + " deep");
  QUERN_ASSIGN(const std::uint32_t type, cursor.read<std::uint32_t>(what));
  QUERN_TRY(check_value_type(at, type, key));
  QUERN_ASSIGN(const std::uint64_t count, cursor.read<std::uint64_t>(what));
  if (count > cursor.left() / kValueBytes[type])
    return corrupt(at + 4, what + " is an array of " + std::to_string(count) + " values, at most " +
                               std::to_string(cursor.left() / kValueBytes[type]) + " fit in the file");
  if (type != kString && type != kArray) return cursor.skip(count * kValueBytes[type], what);
  for (std::uint64_t i = 0; i < count; ++i) QUERN_TRY(skip_value(cursor, type, key, depth));
  return {};
}

Status read_text(Cursor& cursor, std::uint32_t type, const std::string& key, std::string& text) {
  if (type != kString)
    return corrupt(cursor.offset(), "metadata " + quoted(key) + " has value type " + std::to_string(type) + ", 8 (string) needed");
  QUERN_ASSIGN(text, cursor.read_string(kMaxTextBytes, "metadata " + quoted(key)));
  return {};
}

Status read_alignment(Cursor& cursor, std::uint32_t type, std::uint32_t& alignment) {
  const std::uint64_t at = cursor.offset();
  if (type != kU32) return corrupt(at, "general.alignment has value type " + std::to_string(type) + ", 4 (u32) needed");
  QUERN_ASSIGN(alignment, cursor.read<std::uint32_t>("general.alignment"));
  if (!std::has_single_bit(alignment) || alignment > kMaxAlignment)
    return corrupt(
        at, "general.alignment is " + std::to_string(alignment) + ", a power of two up to " + std::to_string(kMaxAlignment) + " needed");
  return {};
}

// A part lists only its own tensors, so shapes would be counted wrong and most of the model missed without a word.
Status check_split(Cursor& cursor, std::uint32_t type) {
  const std::uint64_t at = cursor.offset();
  if (type != kU16) return corrupt(at, "split.count has value type " + std::to_string(type) + ", 2 (u16) needed");
  QUERN_ASSIGN(const std::uint16_t parts, cursor.read<std::uint16_t>("split.count"));
  if (parts <= 1) return {};
  return unsupported(at, "split.count is " + std::to_string(parts) + ": this file is one part of a model split into " +
                             std::to_string(parts) + " files; merge them into one file first");
}

// What the metadata names before the whole of it is read.
struct Entries {
  std::unordered_set<std::string> keys;
  std::unordered_map<std::string, std::uint32_t> experts_used;  // by key: the architecture may come after it
};
constexpr std::string_view kExpertsUsed = ".expert_used_count";

Status read_entry(Cursor& cursor, GgufContents& contents, Entries& entries) {
  const std::uint64_t at = cursor.offset();
  QUERN_ASSIGN(const std::string key, cursor.read_string(kMaxNameBytes, "metadata key"));
  if (key.empty()) return corrupt(at, "metadata key is empty");
  if (!entries.keys.insert(key).second) return corrupt(at, "metadata key " + quoted(key) + " appears twice");
  const std::uint64_t type_at = cursor.offset();
  QUERN_ASSIGN(const std::uint32_t type, cursor.read<std::uint32_t>("value type of metadata " + quoted(key)));
  QUERN_TRY(check_value_type(type_at, type, key));
  if (key == "general.architecture") return read_text(cursor, type, key, contents.architecture);
  if (key == "general.name") return read_text(cursor, type, key, contents.name);
  if (key == "general.alignment") return read_alignment(cursor, type, contents.alignment);
  if (key == "split.count") return check_split(cursor, type);
  if (key.ends_with(kExpertsUsed) && type == kU32) {
    QUERN_ASSIGN(entries.experts_used[key], cursor.read<std::uint32_t>("metadata " + quoted(key)));
    return {};
  }
  return skip_value(cursor, type, key, 0);
}

// A tensor with the places of its fields in the file, for messages.
struct TensorInfo {
  GgufTensor tensor;
  std::uint64_t dims_at = 0;
  std::uint64_t offset_at = 0;
  std::uint64_t relative_offset = 0;
};

Status read_dimensions(Cursor& cursor, TensorInfo& info) {
  GgufTensor& tensor = info.tensor;
  const std::uint64_t at = cursor.offset();
  QUERN_ASSIGN(tensor.n_dims, cursor.read<std::uint32_t>("dimension count of tensor " + quoted(tensor.name)));
  if (tensor.n_dims > 4)
    return corrupt(at, "tensor " + quoted(tensor.name) + " has " + std::to_string(tensor.n_dims) + " dimensions, at most 4 are valid");
  info.dims_at = cursor.offset();
  std::int64_t elements = 1;
  bool empty = false;
  for (std::uint32_t i = 0; i < tensor.n_dims; ++i) {
    const std::uint64_t dim_at = cursor.offset();
    QUERN_ASSIGN(const std::int64_t dim, cursor.read<std::int64_t>("dimension of tensor " + quoted(tensor.name)));
    if (dim < 0)
      return corrupt(dim_at, "dimension " + std::to_string(i) + " of tensor " + quoted(tensor.name) + " is " +
                                 std::to_string(static_cast<std::uint64_t>(dim)) + ", at most 2^63 - 1 is valid");
    tensor.ne[i] = dim;
    empty = empty || dim == 0;
    // A zero dimension must not hide the overflow of the others: it is left out of the product.
    if (dim != 0 && __builtin_mul_overflow(elements, dim, &elements))
      return corrupt(dim_at, "the elements of tensor " + quoted(tensor.name) + " exceed 2^63 - 1 at dimension " + std::to_string(i) + " (" +
                                 std::to_string(dim) + ")");
  }
  return {};
}

struct BlockSize {
  std::int64_t elements = 0, bytes = 0;
  std::string_view name;
};

std::optional<BlockSize> block_size(std::uint32_t type_id) {
  if (const auto type = weight_type_from_id(type_id))
    return BlockSize{info(*type).block_elements, info(*type).block_bytes, info(*type).name};
  for (const auto& plain : kPlainTypes)
    if (plain.id == type_id) return BlockSize{plain.block_elements, plain.block_bytes, "this type"};
  return std::nullopt;
}

// Sets tensor.bytes; leaves 0 for an empty tensor and for a type of unknown size.
Status size_tensor(TensorInfo& info, std::uint64_t type_at) {
  GgufTensor& tensor = info.tensor;
  tensor.type = weight_type_from_id(tensor.type_id);
  if (tensor.type_id >= kTypeIdLimit)
    return corrupt(type_at, "tensor " + quoted(tensor.name) + " has type id " + std::to_string(tensor.type_id) + ", below " +
                                std::to_string(kTypeIdLimit) + " is valid");
  const auto block = block_size(tensor.type_id);
  if (!block || std::find(tensor.ne.begin(), tensor.ne.end(), 0) != tensor.ne.end()) return {};
  if (tensor.ne[0] % block->elements != 0)
    return corrupt(info.dims_at, "tensor " + quoted(tensor.name) + " has rows of " + std::to_string(tensor.ne[0]) +
                                     " elements, a multiple of " + std::to_string(block->elements) + " needed for " +
                                     std::string(block->name));
  std::int64_t bytes = tensor.ne[0] / block->elements;
  for (const std::int64_t factor : {block->bytes, tensor.ne[1], tensor.ne[2], tensor.ne[3]})
    if (__builtin_mul_overflow(bytes, factor, &bytes))
      return corrupt(info.dims_at, "the bytes of tensor " + quoted(tensor.name) + " exceed 2^63 - 1");
  tensor.bytes = static_cast<std::uint64_t>(bytes);
  return {};
}

Result<TensorInfo> read_tensor_info(Cursor& cursor, std::unordered_set<std::string>& names) {
  TensorInfo info;
  const std::uint64_t at = cursor.offset();
  QUERN_ASSIGN(info.tensor.name, cursor.read_string(kMaxNameBytes, "tensor name"));
  if (!names.insert(info.tensor.name).second) return corrupt(at, "tensor name " + quoted(info.tensor.name) + " appears twice");
  QUERN_TRY(read_dimensions(cursor, info));
  const std::uint64_t type_at = cursor.offset();
  QUERN_ASSIGN(info.tensor.type_id, cursor.read<std::uint32_t>("type of tensor " + quoted(info.tensor.name)));
  QUERN_TRY(size_tensor(info, type_at));
  info.offset_at = cursor.offset();
  QUERN_ASSIGN(info.relative_offset, cursor.read<std::uint64_t>("offset of tensor " + quoted(info.tensor.name)));
  return info;
}

// Makes the offset absolute and checks that the data lies in the file.
Status place_tensor(TensorInfo& info, const GgufContents& contents) {
  GgufTensor& tensor = info.tensor;
  if (info.relative_offset % contents.alignment != 0)
    return corrupt(info.offset_at, "tensor " + quoted(tensor.name) + " has offset " + std::to_string(info.relative_offset) +
                                       ", a multiple of the alignment " + std::to_string(contents.alignment) + " needed");
  std::uint64_t end = 0;
  if (__builtin_add_overflow(contents.data_offset, info.relative_offset, &tensor.offset) ||
      __builtin_add_overflow(tensor.offset, tensor.bytes, &end))
    return corrupt(info.offset_at, "tensor " + quoted(tensor.name) + ": offset " + std::to_string(info.relative_offset) + " plus " +
                                       std::to_string(tensor.bytes) + " bytes exceed 2^64 - 1");
  // Only data can be missing: an empty tensor at the end of the data may point to where padding would be.
  if (tensor.bytes > 0 && end > contents.file_bytes)
    return corrupt(info.offset_at, "tensor " + quoted(tensor.name) + " needs bytes " + std::to_string(tensor.offset) + " to " +
                                       std::to_string(end) + ", the file has " + std::to_string(contents.file_bytes));
  return {};
}

Status check_overlaps(const std::vector<TensorInfo>& infos) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < infos.size(); ++i)
    if (infos[i].tensor.bytes > 0) order.push_back(i);
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return infos[a].tensor.offset < infos[b].tensor.offset; });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const GgufTensor& before = infos[order[i - 1]].tensor;
    const TensorInfo& after = infos[order[i]];
    if (before.offset + before.bytes > after.tensor.offset)
      return corrupt(after.offset_at, "tensor " + quoted(after.tensor.name) + " starts at " + std::to_string(after.tensor.offset) +
                                          ", inside tensor " + quoted(before.name) + " which ends at " +
                                          std::to_string(before.offset + before.bytes));
  }
  return {};
}

Result<GgufContents> parse(const Source& source) {
  Cursor cursor(source);
  GgufContents contents;
  contents.file_bytes = source.size();
  QUERN_ASSIGN(const Counts counts, read_header(cursor, contents));
  Entries entries;
  for (std::uint64_t i = 0; i < counts.entries; ++i) QUERN_TRY(read_entry(cursor, contents, entries));
  if (const auto used = entries.experts_used.find(contents.architecture + std::string(kExpertsUsed)); used != entries.experts_used.end())
    contents.experts_used = used->second;
  std::unordered_set<std::string> names;
  std::vector<TensorInfo> infos;
  for (std::uint64_t i = 0; i < counts.tensors; ++i) {
    QUERN_ASSIGN(TensorInfo info, read_tensor_info(cursor, names));
    infos.push_back(std::move(info));
  }
  // No wrap: a file is shorter than 2^63 bytes and the alignment is small.
  contents.data_offset = (cursor.offset() + contents.alignment - 1) / contents.alignment * contents.alignment;
  for (auto& info : infos) QUERN_TRY(place_tensor(info, contents));
  QUERN_TRY(check_overlaps(infos));
  contents.tensors.reserve(infos.size());
  for (auto& info : infos) contents.tensors.push_back(std::move(info.tensor));
  return contents;
}

// Closes on every way out of open().
struct Descriptor {
  int value;
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
};

}  // namespace

const GgufTensor* GgufContents::find(std::string_view tensor_name) const {
  for (const auto& tensor : tensors)
    if (tensor.name == tensor_name) return &tensor;
  return nullptr;
}

Result<GgufContents> parse_gguf(std::span<const std::byte> file) { return parse(SpanSource(file)); }

Result<GgufFile> GgufFile::open(const std::string& path) {
  // Without O_NONBLOCK, opening a pipe would wait for a writer.
  Descriptor descriptor{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  struct stat status {};
  if (descriptor.value < 0 || ::fstat(descriptor.value, &status) != 0)
    return Error{.code = ErrorCode::kInvalidArgument, .message = path + ": cannot be opened: " + std::strerror(errno)};
  if (!S_ISREG(status.st_mode))
    return Error{.code = ErrorCode::kInvalidArgument, .message = path + ": not a regular file, a GGUF file needed"};
  auto contents = parse(FileSource(descriptor.value, static_cast<std::uint64_t>(status.st_size)));
  if (!contents) {
    contents.error().message = path + ": " + contents.error().message;
    return std::move(contents.error());
  }
  return GgufFile(std::exchange(descriptor.value, -1), path, std::move(*contents));
}

GgufFile::GgufFile(int descriptor, std::string path, GgufContents contents)
    : descriptor_(descriptor), path_(std::move(path)), contents_(std::move(contents)) {}

GgufFile::GgufFile(GgufFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), path_(std::move(other.path_)), contents_(std::move(other.contents_)) {}

GgufFile& GgufFile::operator=(GgufFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  path_ = std::move(other.path_);
  contents_ = std::move(other.contents_);
  return *this;
}

GgufFile::~GgufFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<std::vector<std::byte>> GgufFile::read_tensor(const GgufTensor& tensor) const {
  return read_rows(tensor, 0, tensor.ne[1] * tensor.ne[2] * tensor.ne[3]);
}

Result<std::vector<std::byte>> GgufFile::read_rows(const GgufTensor& tensor, std::int64_t first, std::int64_t count) const {
  const std::string where = path_ + ": tensor " + quoted(tensor.name);
  const std::int64_t rows = tensor.ne[1] * tensor.ne[2] * tensor.ne[3];
  if (first < 0 || count < 0 || first > rows || count > rows - first)
    return Error{
        .code = ErrorCode::kInvalidArgument,
        .message = where + ": rows " + std::to_string(first) + " + " + std::to_string(count) + " asked, it has " + std::to_string(rows)};
  if (!block_size(tensor.type_id))
    return Error{.code = ErrorCode::kUnsupported,
                 .message = where + ": the size of type " + std::to_string(tensor.type_id) + " is not known"};
  if (count == 0 || tensor.bytes == 0) return std::vector<std::byte>{};
  const std::uint64_t row = tensor.bytes / static_cast<std::uint64_t>(rows);
  std::vector<std::byte> data(static_cast<std::size_t>(row * static_cast<std::uint64_t>(count)));
  if (auto status = read_exactly(descriptor_, tensor.offset + row * static_cast<std::uint64_t>(first), data.data(), data.size()); !status) {
    status.error().message = where + ": " + status.error().message;
    return std::move(status.error());
  }
  return data;
}

}  // namespace quern

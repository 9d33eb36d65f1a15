#include "tuner/gguf.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "tests/tuner/gguf_builder.h"

namespace quern {
namespace {

using testing::Bytes;
using testing::GgufBuilder;

constexpr std::uint32_t kF32Id = 0, kQ4_0Id = 2, kQ8_0Id = 8, kQ4_KId = 12, kI32Id = 26;
constexpr std::uint64_t kLargest = std::numeric_limits<std::uint64_t>::max();

Result<GgufContents> parse(const std::string& file) {
  // An exact heap copy, so that a sanitizer sees a read past the end.
  const std::vector<std::byte> copy(reinterpret_cast<const std::byte*>(file.data()),
                                    reinterpret_cast<const std::byte*>(file.data()) + file.size());
  return parse_gguf(copy);
}

// Expects an error of one line with an offset and every one of `parts` in it.
void expect_error(const std::string& file, ErrorCode code, std::initializer_list<std::string_view> parts) {
  const auto contents = parse(file);
  ASSERT_FALSE(contents) << "accepted";
  EXPECT_EQ(contents.error().code, code);
  const std::string& message = contents.error().message;
  EXPECT_TRUE(message.starts_with("offset ")) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  for (const auto part : parts) EXPECT_NE(message.find(part), std::string::npos) << message << "\nlacks: " << part;
}

GgufBuilder small_model() {
  GgufBuilder builder;
  builder.text("general.architecture", "llama").text("general.name", "small");
  builder.entry("list", testing::kArray, Bytes().u32(testing::kString).u64(2).string("a").string("bc").text());
  builder.tensor("blk.0.attn_q.weight", {64, 3}, kQ4_0Id, 0).tensor("blk.0.attn_norm.weight", {8}, kF32Id, 128).data(160);
  return builder;
}

TEST(Gguf, HowManyExpertsATokenUsesIsTheArchitecturesOwn) {
  auto used = [](GgufBuilder builder) { return parse(builder.file())->experts_used; };
  const std::string eight = Bytes().u32(8).text(), two = Bytes().u32(2).text();
  const auto with = [&] { return GgufBuilder().entry("moe.expert_used_count", testing::kU32, eight); };
  EXPECT_EQ(used(with().text("general.architecture", "moe").entry("other.expert_used_count", testing::kU32, two)), 8u);
  EXPECT_EQ(used(with().text("general.architecture", "other")), std::nullopt);
  EXPECT_EQ(used(with()), std::nullopt);
  EXPECT_EQ(used(GgufBuilder().text("general.architecture", "moe").entry("moe.expert_used_count", testing::kU8, "\x08")), std::nullopt);
}

class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text)
      : path_(std::filesystem::temp_directory_path() / ("quern_gguf_test_" + std::to_string(::getpid()) + ".gguf")) {
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

TEST(Gguf, ReadsNamesTypesShapesAndPlaces) {
  for (const std::uint32_t version : {2u, 3u}) {
    auto builder = small_model();
    builder.version = version;
    const auto contents = parse(builder.file());
    ASSERT_TRUE(contents) << contents.error().message;
    EXPECT_EQ(contents->version, version);
    EXPECT_EQ(contents->architecture, "llama");
    EXPECT_EQ(contents->name, "small");
    EXPECT_EQ(contents->data_offset, builder.head().size());
    ASSERT_EQ(contents->tensors.size(), 2u);
    const GgufTensor q{"blk.0.attn_q.weight", 2, WeightType::q4_0, 2, {64, 3, 1, 1}, builder.head().size(), 108};
    const GgufTensor norm{"blk.0.attn_norm.weight", 0, WeightType::f32, 1, {8, 1, 1, 1}, builder.head().size() + 128, 32};
    EXPECT_EQ(contents->tensors[0], q);
    EXPECT_EQ(contents->tensors[1], norm);
  }
}

// Field case 23.
TEST(Gguf, EveryTruncationIsAnErrorWithAnOffset) {
  const std::string file = small_model().file();
  ASSERT_TRUE(parse(file));
  for (std::size_t size = 0; size < file.size(); ++size) {
    SCOPED_TRACE(size);
    expect_error(file.substr(0, size), ErrorCode::kCorrupt, {});
  }
}

// Field case 24: none of these may allocate what it claims; the process would not survive it.
TEST(Gguf, CountsAndLengthsOf64BitsAreRejected) {
  GgufBuilder builder;
  builder.tensor_count = kLargest;
  expect_error(builder.file(), ErrorCode::kCorrupt, {"offset 8:", "tensor count is 18446744073709551615"});
  builder = GgufBuilder();
  builder.entry_count = kLargest;
  expect_error(builder.file(), ErrorCode::kCorrupt, {"offset 16:", "metadata count is 18446744073709551615"});
  const auto with_entry = [](const Bytes& entry) {
    return Bytes().raw("GGUF").u32(3).u64(0).u64(1).raw(entry.text()).raw(std::string(64, '\0')).text();
  };
  const std::string key = Bytes().string("k").text();
  expect_error(with_entry(Bytes().u64(kLargest)), ErrorCode::kCorrupt, {"offset 24:", "key length is 18446744073709551615", "65535"});
  expect_error(with_entry(Bytes().raw(key).u32(testing::kString).u64(kLargest)), ErrorCode::kCorrupt,
               {"offset 45:", "'k'", "18446744073709551615"});
  expect_error(with_entry(Bytes().raw(key).u32(testing::kArray).u32(testing::kU64).u64(kLargest)), ErrorCode::kCorrupt,
               {"offset 41:", "array of 18446744073709551615 values"});
  expect_error(with_entry(Bytes().raw(key).u32(testing::kArray).u32(testing::kU64).u64(std::uint64_t{1} << 61)), ErrorCode::kCorrupt,
               {"2305843009213693952"});
  expect_error(with_entry(Bytes().raw(key).u32(testing::kArray).u32(testing::kString).u64(kLargest)), ErrorCode::kCorrupt,
               {"array of 18446744073709551615"});
  expect_error(Bytes().raw("GGUF").u32(3).u64(1).u64(0).u64(kLargest).raw(std::string(64, '\0')).text(), ErrorCode::kCorrupt,
               {"offset 24:", "tensor name length is 18446744073709551615"});
}

// Field case 24.
TEST(Gguf, FiveDimensionsAreRejected) {
  expect_error(GgufBuilder().tensor("w", {1, 1, 1, 1, 1}, kF32Id, 0).data(4).file(), ErrorCode::kCorrupt,
               {"offset 33:", "'w'", "5 dimensions", "at most 4"});
}

// Field case 25.
TEST(Gguf, SizesThatWrapAreRejected) {
  const std::uint64_t big = (std::uint64_t{1} << 42) + 1;
  expect_error(GgufBuilder().tensor("w", {big, big}, kF32Id, 0).data(64).file(), ErrorCode::kCorrupt,
               {"'w'", "exceed 2^63 - 1", "4398046511105"});
  expect_error(GgufBuilder().tensor("w", {std::uint64_t{1} << 62}, kF32Id, 0).data(64).file(), ErrorCode::kCorrupt,
               {"bytes of tensor 'w' exceed 2^63 - 1"});
  expect_error(GgufBuilder().tensor("w", {std::uint64_t{1} << 63}, kF32Id, 0).data(64).file(), ErrorCode::kCorrupt,
               {"'w'", "9223372036854775808"});
  expect_error(GgufBuilder().tensor("w", {0, big, big}, kF32Id, 0).data(64).file(), ErrorCode::kCorrupt, {"'w'", "exceed 2^63 - 1"});
  // 0x7FFFFFFFFFFFFFC0 bytes each: their sum wraps.
  const std::uint64_t huge = 0x7FFFFFFFFFFFFFC0u / 4;
  expect_error(GgufBuilder().tensor("a", {huge}, kF32Id, 0).tensor("b", {huge}, kF32Id, 0x7FFFFFFFFFFFFFC0u).data(64).file(),
               ErrorCode::kCorrupt, {"'a'", "the file has"});
  expect_error(GgufBuilder().tensor("a", {8}, kF32Id, 0).tensor("b", {huge}, kF32Id, 0x8000000000000000u).data(64).file(),
               ErrorCode::kCorrupt, {"'b'", "exceed 2^64 - 1"});
}

// Field case 25.
TEST(Gguf, OffsetsBeyondTheFileAreRejected) {
  expect_error(GgufBuilder().tensor("w", {2}, kF32Id, std::uint64_t{1} << 40).data(64).file(), ErrorCode::kCorrupt,
               {"'w'", "1099511627840", "the file has 128"});
  expect_error(GgufBuilder().tensor("w", {2}, kF32Id, kLargest - 31).data(64).file(), ErrorCode::kCorrupt, {"'w'"});
  expect_error(GgufBuilder().tensor("w", {2}, kF32Id, 4).data(64).file(), ErrorCode::kCorrupt, {"'w'", "offset 4", "alignment 32"});
}

// Field case 25.
TEST(Gguf, OffsetsBeyond4GiBAreAcceptedInAFileThatLarge) {
  const std::uint64_t offset = (std::uint64_t{5} << 30) + 32;
  GgufBuilder builder;
  builder.tensor("near", {32, 1}, kQ8_0Id, 0).tensor("far", {32, 2}, kQ8_0Id, offset);
  const TemporaryFile file(builder.head());
  std::filesystem::resize_file(file.path(), builder.head().size() + offset + 68);  // sparse
  {
    std::fstream stream(file.path(), std::ios::binary | std::ios::in | std::ios::out);
    stream.seekp(static_cast<std::streamoff>(builder.head().size() + offset + 34));
    stream << "second row";
  }
  const auto model = GgufFile::open(file.path());
  ASSERT_TRUE(model) << model.error().message;
  const auto row = model->read_rows(model->contents().tensors[1], 1, 1);
  ASSERT_TRUE(row) << row.error().message;
  ASSERT_EQ(row->size(), 34u);
  EXPECT_EQ(std::memcmp(row->data(), "second row", 10), 0);
}

// Field case 26.
TEST(Gguf, AlignmentMustBeASmallPowerOfTwo) {
  const auto with_alignment = [](std::uint32_t value) {
    return GgufBuilder().entry("general.alignment", testing::kU32, Bytes().u32(value).text());
  };
  for (const std::uint32_t value : {0u, 13u, 1u << 30}) {
    SCOPED_TRACE(value);
    expect_error(with_alignment(value).file(), ErrorCode::kCorrupt,
                 {"offset 53:", "general.alignment is " + std::to_string(value) + ",", "power of two"});
  }
  expect_error(GgufBuilder().entry("general.alignment", testing::kU64, Bytes().u64(32).text()).file(), ErrorCode::kCorrupt,
               {"general.alignment has value type 10", "4 (u32)"});
  auto builder = with_alignment(64);
  builder.alignment = 64;
  const auto contents = parse(builder.tensor("w", {2}, kF32Id, 64).data(72).file());
  ASSERT_TRUE(contents) << contents.error().message;
  EXPECT_EQ(contents->tensors[0].offset, builder.head().size() + 64);
}

// Field case 26.
TEST(Gguf, AZeroDimensionIsListedWithoutData) {
  const auto no_rows =
      parse(GgufBuilder().tensor("empty", {896, 0}, kQ4_KId, 0).file());  // no row, so none that is no whole number of blocks
  ASSERT_TRUE(no_rows) << no_rows.error().message;
  const auto contents = parse(GgufBuilder().tensor("empty", {0, 5}, kF32Id, 0).tensor("w", {2}, kF32Id, 0).data(8).file());
  ASSERT_TRUE(contents) << contents.error().message;
  EXPECT_EQ(contents->tensors[0].bytes, 0u);
  EXPECT_EQ(contents->tensors[0].ne[1], 5);
}

// Field case 26.
TEST(Gguf, DuplicateNamesAreRejectedByName) {
  expect_error(GgufBuilder().tensor("twin", {2}, kF32Id, 0).tensor("twin", {2}, kF32Id, 32).data(64).file(), ErrorCode::kCorrupt,
               {"'twin' appears twice"});
  expect_error(GgufBuilder().text("k", "a").text("k", "b").file(), ErrorCode::kCorrupt, {"'k' appears twice"});
}

// Field case 26.
TEST(Gguf, BigEndianFilesAreNamedAsSuch) {
  expect_error(std::string("GGUF\0\0\0\3", 8) + std::string(16, '\0'), ErrorCode::kUnsupported, {"offset 4:", "big-endian", "00 00 00 3"});
}

TEST(Gguf, OtherVersionsAndFilesAreNamed) {
  auto builder = small_model();
  builder.version = 1;
  expect_error(builder.file(), ErrorCode::kUnsupported, {"offset 4:", "version 1", "2 or 3"});
  expect_error("PK\3\4" + std::string(60, '\0'), ErrorCode::kCorrupt, {"offset 0:", "not a GGUF file", "'PK\\x03\\x04'"});
}

// Field case 27.
TEST(Gguf, RowsThatAreNoWholeNumberOfBlocksAreRejected) {
  expect_error(GgufBuilder().tensor("w", {896, 1}, kQ4_KId, 0).data(504).file(), ErrorCode::kCorrupt, {"'w'", "896", "256", "q4_k"});
}

// Field case 27.
TEST(Gguf, MixedTypesAndFilesWithoutTensorsAreAccepted) {
  const auto mixed = parse(
      GgufBuilder().tensor("a", {256, 1}, kQ4_KId, 0).tensor("b", {896, 1}, kQ8_0Id, 160).tensor("c", {3}, kI32Id, 1120).data(1132).file());
  ASSERT_TRUE(mixed) << mixed.error().message;
  EXPECT_EQ(mixed->tensors[1].bytes, 952u);
  EXPECT_EQ(mixed->tensors[2].bytes, 12u);
  EXPECT_FALSE(mixed->tensors[2].type);
  const auto none = parse(GgufBuilder().text("general.architecture", "llama").file());
  ASSERT_TRUE(none) << none.error().message;
  EXPECT_TRUE(none->tensors.empty());
}

TEST(Gguf, OverlappingTensorsAreRejected) {
  expect_error(GgufBuilder().tensor("second", {8}, kF32Id, 32).tensor("first", {16}, kF32Id, 0).data(96).file(), ErrorCode::kCorrupt,
               {"'second'", "inside tensor 'first'"});
}

TEST(Gguf, DataPastTheEndNamesTheTensor) {
  expect_error(GgufBuilder().tensor("a", {8}, kF32Id, 0).tensor("late", {8}, kF32Id, 32).data(63).file(), ErrorCode::kCorrupt,
               {"'late'", "to 160", "the file has 159"});
}

TEST(Gguf, TypesOfTheFutureAreListedAndGarbageIsRejected) {
  const auto contents = parse(GgufBuilder().tensor("new", {7, 2}, 77, 0).tensor("w", {2}, kF32Id, 0).data(8).file());
  ASSERT_TRUE(contents) << contents.error().message;
  EXPECT_EQ(contents->tensors[0].type_id, 77u);
  EXPECT_FALSE(contents->tensors[0].type);
  expect_error(GgufBuilder().tensor("w", {2}, 0xFFFFFFFFu, 0).data(8).file(), ErrorCode::kCorrupt, {"'w'", "4294967295"});
}

TEST(Gguf, OnePartOfASplitModelIsNamedAsSuch) {
  const auto with_parts = [](std::uint16_t parts) {
    return GgufBuilder().entry("split.count", testing::kU16, Bytes().value(parts).text()).file();
  };
  expect_error(with_parts(3), ErrorCode::kUnsupported, {"split.count is 3", "merge"});
  EXPECT_TRUE(parse(with_parts(1)));
}

TEST(Gguf, MetadataMustBeWellFormed) {
  expect_error(GgufBuilder().entry("k", 13, "").file(), ErrorCode::kCorrupt, {"'k'", "value type 13"});
  expect_error(GgufBuilder().entry("", testing::kU8, "x").file(), ErrorCode::kCorrupt, {"key is empty"});
  expect_error(GgufBuilder().entry("general.name", testing::kU8, "x").file(), ErrorCode::kCorrupt, {"'general.name'", "8 (string)"});
  Bytes deep;
  for (int i = 0; i < 5; ++i) deep.u32(testing::kArray).u64(1);
  expect_error(GgufBuilder().entry("k", testing::kArray, deep.u32(testing::kU8).u64(0).text()).file(), ErrorCode::kCorrupt,
               {"'k'", "nests"});
}

// Fields straddle the reader's window of 64 KiB at every possible place.
TEST(Gguf, HeadersLargerThanTheReadWindow) {
  Bytes words;
  words.u32(testing::kString).u64(40000);
  for (int i = 0; i < 40000; ++i) words.string(std::string(static_cast<std::size_t>(i % 7), 'w'));
  GgufBuilder builder;
  builder.entry("words", testing::kArray, words.text());
  for (std::uint64_t i = 0; i < 5000; ++i) builder.tensor("tensor." + std::to_string(i), {1, 2}, kF32Id, 32 * i);
  const auto contents = parse(builder.data(32 * 5000).file());
  ASSERT_TRUE(contents) << contents.error().message;
  ASSERT_EQ(contents->tensors.size(), 5000u);
  for (std::uint64_t i = 0; i < 5000; ++i) {
    ASSERT_EQ(contents->tensors[i].name, "tensor." + std::to_string(i));
    ASSERT_EQ(contents->tensors[i].offset, contents->data_offset + 32 * i);
  }
}

TEST(Gguf, NamesFromTheFileStayOnOneLine) {
  expect_error(GgufBuilder().tensor("a\nb\x1b", {896}, kQ4_KId, 0).file(), ErrorCode::kCorrupt, {"'a\\x0ab\\x1b'"});
}

TEST(GgufFile, ReadsRowsAndTensors) {
  auto builder = small_model();
  std::string text = builder.file();
  for (int row = 0; row < 3; ++row) text.replace(builder.head().size() + 36 * row, 36, 36, static_cast<char>('a' + row));
  const TemporaryFile file(text);
  const auto model = GgufFile::open(file.path());
  ASSERT_TRUE(model) << model.error().message;
  const GgufTensor& tensor = model->contents().tensors[0];
  const auto rows = model->read_rows(tensor, 1, 2);
  ASSERT_TRUE(rows) << rows.error().message;
  ASSERT_EQ(rows->size(), 72u);
  EXPECT_EQ((*rows)[0], std::byte{'b'});
  EXPECT_EQ((*rows)[71], std::byte{'c'});
  EXPECT_EQ(model->read_tensor(tensor)->size(), 108u);
  for (const auto& [first, count] :
       {std::pair<std::int64_t, std::int64_t>{-1, 1}, {2, 2}, {0, std::numeric_limits<std::int64_t>::max()}, {4, 0}}) {
    const auto none = model->read_rows(tensor, first, count);
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(none.error().message.find("it has 3"), std::string::npos) << none.error().message;
  }
}

TEST(GgufFile, SaysWhatIsWrongWithThePath) {
  const auto missing = GgufFile::open("/nonexistent/model.gguf");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(missing.error().message, "/nonexistent/model.gguf: cannot be opened: No such file or directory");
  const auto folder = GgufFile::open(std::filesystem::temp_directory_path().string());
  ASSERT_FALSE(folder);
  EXPECT_NE(folder.error().message.find("not a regular file"), std::string::npos) << folder.error().message;
  const auto device = GgufFile::open("/dev/null");
  ASSERT_FALSE(device);
  EXPECT_NE(device.error().message.find("not a regular file"), std::string::npos) << device.error().message;
  const TemporaryFile garbage("no model at all, just text");
  const auto error = GgufFile::open(garbage.path());
  ASSERT_FALSE(error);
  EXPECT_TRUE(error.error().message.starts_with(garbage.path() + ": offset 0: not a GGUF file")) << error.error().message;
}

TEST(GgufFile, APipeWithoutAWriterIsRefusedAtOnce) {
  const auto path = std::filesystem::temp_directory_path() / ("quern_gguf_pipe_" + std::to_string(::getpid()));
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const auto pipe = GgufFile::open(path.string());
  std::filesystem::remove(path);
  ASSERT_FALSE(pipe);
  EXPECT_NE(pipe.error().message.find("not a regular file"), std::string::npos) << pipe.error().message;
}

TEST(GgufFile, AFileThatShrinksMeanwhileIsAnError) {
  const TemporaryFile file(small_model().file());
  const auto model = GgufFile::open(file.path());
  ASSERT_TRUE(model);
  std::filesystem::resize_file(file.path(), model->contents().tensors[0].offset + 10);
  const auto data = model->read_tensor(model->contents().tensors[0]);
  ASSERT_FALSE(data);
  EXPECT_EQ(data.error().code, ErrorCode::kCorrupt);
  EXPECT_NE(data.error().message.find("'blk.0.attn_q.weight'"), std::string::npos);
}

}  // namespace
}  // namespace quern

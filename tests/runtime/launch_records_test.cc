// Which kernel ran is a fact: a record's family, its config and the names of its functions agree with what the compiled binary itself says.
// On the host target kernels run; on a fake CUDA driver real cubins are loaded and launches go nowhere.
#include <dlfcn.h>
#include <elf.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>

#include "fake_driver.h"
#include "generator/family.h"
#include "runtime/artifact.h"
#include "runtime/context_parts.h"
#include "take.h"

namespace quern {
namespace {

using test::take;
using Names = std::vector<std::string>;

// Names of the functions that an ELF file defines, cubins and host objects alike.
std::set<std::string> functions_in(const std::vector<std::byte>& file) {
  std::set<std::string> names;
  const auto read = [&](auto* out, std::uint64_t at) {
    if (at + sizeof *out > file.size()) return ADD_FAILURE() << "not an ELF file, or cut short", false;
    return std::memcpy(out, file.data() + at, sizeof *out), true;
  };
  Elf64_Ehdr header{};
  if (!read(&header, 0) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return names;
  const auto section = [&](std::uint64_t index) {
    Elf64_Shdr s{};
    read(&s, header.e_shoff + index * header.e_shentsize);
    return s;
  };
  for (std::uint64_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr table = section(i);
    if (table.sh_type != SHT_SYMTAB) continue;
    const Elf64_Shdr text = section(table.sh_link);
    for (std::uint64_t at = 0; at + sizeof(Elf64_Sym) <= table.sh_size; at += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol{};
      if (!read(&symbol, table.sh_offset + at)) return names;
      if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && ELF64_ST_BIND(symbol.st_info) == STB_GLOBAL && symbol.st_shndx != SHN_UNDEF)
        names.insert(reinterpret_cast<const char*>(file.data()) + text.sh_offset + symbol.st_name);
    }
  }
  return names;
}

// The entry that does the family's own work. Both GEMVs are one template.
std::string main_entry(const std::string& family) { return family.starts_with("gemv_") ? "quern_gemv" : "quern_" + family; }

struct Place {
  const char* device;
  std::size_t families;  // that must have been met, at least
};

class LaunchRecordsOn : public testing::TestWithParam<Place> {
 protected:
  void SetUp() override {
    directory_ = (std::filesystem::temp_directory_path() / "quern-records-XXXXXX").string();
    ASSERT_NE(mkdtemp(directory_.data()), nullptr);
    options_.device = GetParam().device, options_.cache_directory = directory_, options_.record_launches = true;
    if (const char* plugin = std::getenv("QUERN_HOST_PLUGIN")) options_.host_plugin = plugin;
    options_.driver_library = QUERN_FAKE_DRIVER;
    void* library = dlopen(QUERN_FAKE_DRIVER, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    driver_ = reinterpret_cast<test::FakeDriver* (*)()>(dlsym(library, "fake_driver"))();
    *driver_ = {};
    driver_->attributes = {{1, 1024},  {2, 1024},     {3, 1024}, {4, 64},        {5, 2147483647}, {6, 65535}, {7, 65535},
                           {8, 49152}, {13, 1980000}, {16, 132}, {38, 50 << 20}, {75, 9},         {76, 0},    {97, 232448}};
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  // Zeros are operands of every problem below.
  LaunchArgs args(const Plan& plan) {
    const Problem& p = plan.problem();
    const auto place = [&](std::size_t i) { return static_cast<void*>(memory_.data() + i * kRoom); };
    LaunchArgs a{.w = {.data = place(0)}, .x = {.data = place(1)}, .y = {.data = place(2)}};
    a.workspace = place(3), a.workspace_bytes = plan.workspace_bytes();
    if (has_code_input(p.op)) a.x.row_scales = static_cast<float*>(place(4));
    if (p.op == Op::matmul_int8_rows) a.w.row_scales = static_cast<float*>(place(4));
    if (has_code_output(p.op)) a.y.row_scales = static_cast<float*>(place(4));
    const auto* book = static_cast<const std::int8_t*>(place(4));
    if (p.op == Op::w4a4) a.w.row_norms = place(4), a.codebooks = {.x = book, .w = book};
    if (p.op == Op::rpbh_quantize)
      a.rotation = {
          .permutation = static_cast<const std::int32_t*>(place(4)), .signs = book, .boundaries = static_cast<const float*>(place(4))};
    EXPECT_LE(plan.workspace_bytes(), kRoom);
    return a;
  }

  static constexpr std::size_t kRoom = std::size_t{1} << 20;
  struct alignas(256) Line {
    std::byte bytes[256];
  };
  std::vector<Line> lines_ = std::vector<Line>(5 * kRoom / sizeof(Line));
  std::span<std::byte> memory_{lines_.front().bytes, 5 * kRoom};
  std::string directory_;
  ContextOptions options_;
  test::FakeDriver* driver_ = nullptr;
};

constexpr const char* kProblems[] = {"mul_mat q4_0 m=1 n=48 k=256",
                                     "mul_mat q4_0 m=64 n=64 k=256",
                                     "out_prod q4_0 m=64 n=64 k=256",
                                     "dequantize q4_0 n=48 k=64 class=exact",
                                     "to_planar q4_0 gguf n=48 k=64 class=exact",
                                     "quantize_rows_int8 i8 m=3 k=64",
                                     "matmul_int8_rows i8 m=16 n=32 k=64",
                                     "w4a4 code4 m=16 n=32 k=64",
                                     "rpbh_quantize code4 m=3 k=64 block=64"};

TEST_P(LaunchRecordsOn, AgreeWithTheFamilyTheConfigAndTheBinary) {
  auto context = Context::open(options_);
  if (!context) GTEST_SKIP() << context.error().message;
  if (!parts_of(*context).compiler) GTEST_SKIP() << parts_of(*context).compiler_missing.message;
  std::set<std::string> met;
  std::size_t launched = 0;
  for (const char* text : kProblems) {
    const Problem problem = take(parse_problem(text));
    for (const Family* family : families_for(problem, context->target())) {
      const auto plan = context->plan(problem, {.config = family->space(problem, context->target()).default_config()});
      ASSERT_TRUE(plan) << text << ": " << family->name() << ": " << plan.error().message << plan.error().log;
      ASSERT_TRUE(plan->launch(nullptr, args(*plan)));
      const auto records = context->launch_records();
      ASSERT_EQ(records.size(), ++launched);
      const LaunchRecord& record = records.back();
      SCOPED_TRACE(record.problem + ", " + to_string(record.config));
      met.insert(record.family);
      EXPECT_EQ(record.family, family->name());
      EXPECT_EQ(record.config.family, record.family);
      EXPECT_EQ(std::count(record.entries.begin(), record.entries.end(), main_entry(record.family)), 1);
      Names rendered;
      for (const auto& step : take(render(problem, context->target(), record.config)).steps) rendered.push_back(step.entry);
      EXPECT_EQ(record.entries, rendered);
      // The binary, as it lies in the store.
      const auto artifact = parts_of(*context).store->find_artifact(*cache::Key::from_hex(record.artifact));
      ASSERT_TRUE(artifact);
      EXPECT_EQ(std::set<std::string>(record.entries.begin(), record.entries.end()), functions_in(artifact->bytes));
      const auto module = take(parts_of(*context).device->load(*to_binary(*artifact)));
      for (const auto& entry : record.entries) EXPECT_EQ(module->loaded_name(take(module->function(entry, 0))), entry);
    }
  }
  EXPECT_GE(met.size(), GetParam().families);
}

// A caller that asks for the register codebook gets it, on every shape that its guards let through, tuned or not: the record says so, and
// so does the one function in the binary.
TEST_P(LaunchRecordsOn, TheRegisterFamilyRunsTheRegisterKernel) {
  auto context = Context::open(options_);
  if (!context) GTEST_SKIP() << context.error().message;
  if (!parts_of(*context).compiler) GTEST_SKIP() << parts_of(*context).compiler_missing.message;
  const Family* family = find_family("w4a4_register");
  std::size_t launched = 0;
  for (const char* text : {"w4a4 code4 m=1 n=2048 k=1024 y=bf16", "w4a4 code4 m=4 n=2048 k=1024 y=f16 bias=1 fused=1",
                           "w4a4 code4 m=8 n=129 k=64 k_major=1", "w4a4 code4 m=9 n=257 k=64"}) {
    const Problem problem = take(parse_problem(text));
    ASSERT_TRUE(family->supports(problem, context->target())) << text;
    const auto plan = take(context->plan(problem, {.config = family->space(problem, context->target()).default_config()}));
    LaunchArgs a = args(plan);
    if (problem.bias) a.bias = a.workspace;
    ASSERT_TRUE(plan.launch(nullptr, a)) << text;
    const auto records = context->launch_records();
    ASSERT_EQ(records.size(), ++launched);
    EXPECT_EQ(records.back().family, "w4a4_register");
    EXPECT_EQ(records.back().count, 1u);
    EXPECT_EQ(records.back().entries, Names{"quern_w4a4_register"});
    const auto artifact = parts_of(*context).store->find_artifact(*cache::Key::from_hex(records.back().artifact));
    ASSERT_TRUE(artifact);
    EXPECT_EQ(functions_in(artifact->bytes), std::set<std::string>{"quern_w4a4_register"});
  }
}

using LaunchRecordsOnCuda = LaunchRecordsOn;

TEST_P(LaunchRecordsOnCuda, SayWhatIsInTheModuleAndNotWhatWasAskedFor) {
  auto context = Context::open(options_);
  if (!context) GTEST_SKIP() << context.error().message;
  if (!parts_of(*context).compiler) GTEST_SKIP() << parts_of(*context).compiler_missing.message;
  driver_->names["quern_dequantize"] = "somebody_elses_kernel";
  const auto plan = take(context->plan(take(parse_problem(kProblems[3]))));
  ASSERT_TRUE(plan.launch(nullptr, args(plan)));
  EXPECT_EQ(context->launch_records().at(0).entries, Names{"somebody_elses_kernel"});
}

constexpr Place kCuda{"cuda:0", 12};
INSTANTIATE_TEST_SUITE_P(FakeDriver, LaunchRecordsOnCuda, testing::Values(kCuda));
INSTANTIATE_TEST_SUITE_P(Devices, LaunchRecordsOn, testing::Values(Place{"host", 9}, kCuda),
                         [](const auto& place) { return std::string(place.param.device).substr(0, 4); });

}  // namespace
}  // namespace quern

// The hardware header has two bodies: a name in one and not in the other would be a kernel that compiles for one target only. What the
// tests of the host target (tests/runtime/host) do not compute is computed here: DP2A and the warpgroup multiply.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <set>
#include <string>

#include "templates/embedded.h"
#include "tests/runtime/host/host_kernel.h"

namespace quern::test {
namespace {

std::string_view text_of(std::string_view name) {
  for (const auto& file : embedded_files())
    if (file.name == name) return file.text;
  ADD_FAILURE() << name << " is not embedded";
  return {};
}

// Names of functions declared with QUERN_FN, of macros and of inline constants.
std::set<std::string> names_in(std::string_view text) {
  std::set<std::string> names;
  const auto identifier_before = [&](std::size_t end) {
    std::size_t start = end;
    while (start > 0 && (std::isalnum(static_cast<unsigned char>(text[start - 1])) || text[start - 1] == '_')) --start;
    return std::string(text.substr(start, end - start));
  };
  for (std::size_t at = text.find("QUERN_FN "); at != std::string_view::npos; at = text.find("QUERN_FN ", at + 1)) {
    if (at >= 8 && text.substr(at - 8, 8) == "#define ") continue;
    std::size_t open = text.find('(', at);
    // from_f32<f16>(...) is from_f32.
    if (text[open - 1] == '>') open = text.rfind('<', open);
    names.insert(identifier_before(open));
  }
  for (std::size_t at = text.find("#define "); at != std::string_view::npos; at = text.find("#define ", at + 1))
    names.insert(std::string(text.substr(at + 8, text.find_first_of(" (\n", at + 8) - at - 8)));
  for (std::size_t at = text.find("inline constexpr bool "); at != std::string_view::npos; at = text.find("inline constexpr bool ", at + 1))
    names.insert(std::string(text.substr(at + 22, text.find(' ', at + 22) - at - 22)));
  for (std::size_t at = text.find("\nstruct "); at != std::string_view::npos; at = text.find("\nstruct ", at + 1))
    names.insert(std::string(text.substr(at + 8, text.find_first_of(" ;<", at + 8) - at - 8)));
  return names;
}

void expect_same_names(std::string_view device, std::string_view host, const std::set<std::string>& device_only,
                       const std::set<std::string>& host_only) {
  auto on_device = names_in(text_of(device)), on_host = names_in(text_of(host));
  for (const auto& name : device_only) EXPECT_EQ(on_device.erase(name), 1u) << name;
  for (const auto& name : host_only) EXPECT_EQ(on_host.erase(name), 1u) << name;
  EXPECT_EQ(on_device, on_host);
}

// What each body needs for itself, below the names that templates use.
TEST(HardwareHeader, BothBodiesHaveTheSameNames) {
  expect_same_names("ptx/device.cuh", "ptx/host.cuh", {"QUERN_PRAGMA", "shared_address"},
                    {"aligned", "check_shared16", "dp4a", "dp2a", "double_from_bits", "round_to_16", "round_to_f16", "round_to_bf16",
                     "add_odd", "half_of", "mma", "MmaDeposit", "MmaS8Deposit", "signed_byte"});
  const auto names = names_in(text_of("ptx/host.cuh"));
  for (const char* name :
       {"prefetch_l2", "wait_previous", "allow_next", "dp2a_lo_ss", "from_f32", "kHasAsyncCopy", "QUERN_KERNEL", "ldmatrix_x4"})
    EXPECT_TRUE(names.contains(name)) << name;
}

TEST(HardwareHeader, BothBodiesOfTheWarpgroupMultiplyHaveTheSameNames) {
  const auto device = names_in(text_of("ptx/wgmma_device.cuh")), host = names_in(text_of("ptx/wgmma_host.cuh"));
  for (const char* name : {"wgmma_fence", "wgmma_commit", "wgmma_wait", "fence_proxy_async", "multiply", "Wgmma"}) {
    EXPECT_TRUE(device.contains(name)) << name;
    EXPECT_TRUE(host.contains(name)) << name;
  }
}

// Templates use the hardware through these names alone.
TEST(HardwareHeader, TemplatesUseNoNameThatABodyLacks) {
  auto names = names_in(text_of("ptx/host.cuh"));
  names.merge(names_in(text_of("ptx/wgmma_host.cuh")));
  for (const auto& file : embedded_files()) {
    if (!file.name.starts_with("families/") && !file.name.starts_with("decode/")) continue;
    for (std::size_t at = file.text.find("ptx::"); at != std::string_view::npos; at = file.text.find("ptx::", at + 1)) {
      const std::size_t start = at + 5;
      std::size_t end = start;
      while (end < file.text.size() && (std::isalnum(static_cast<unsigned char>(file.text[end])) || file.text[end] == '_')) ++end;
      EXPECT_TRUE(names.contains(std::string(file.text.substr(start, end - start))))
          << file.name << ": " << file.text.substr(start, end - start);
    }
  }
}

TEST(HardwareHeader, Dp2aIsTwoProductsOfHalvesAndBytes) {
  const auto kernel = HostKernel::make(R"(
    i64 i = ptx::block_x() * 128 + ptx::thread_x();
    if (i >= args.n / 3) return;
    const u32* x = static_cast<const u32*>(args.x) + 3 * i;
    i32* y = static_cast<i32*>(args.y) + 3 * i;
    y[0] = ptx::dp2a_lo_ss(x[0], x[1], static_cast<i32>(x[2]));
    y[1] = ptx::dp2a_hi_su(x[0], x[1], static_cast<i32>(x[2]));
  )");
  std::vector<std::uint32_t> x;
  for (std::uint32_t edge : {0u, 0x80008000u, 0x7fff7fffu, 0xffffffffu, 0x80007fffu})
    for (std::uint32_t bytes : {0u, 0x80808080u, 0x7f7f7f7fu, 0xffffffffu, 0x01020304u})
      for (std::uint32_t sum : {0u, 0x7fffffffu, 0x80000000u}) x.insert(x.end(), {edge, bytes, sum});
  std::uint32_t state = 12345;
  for (int i = 0; i < 3000; ++i) x.push_back(state = state * 1664525u + 1013904223u);
  const auto y = kernel.run<std::int32_t>({static_cast<std::uint32_t>(x.size() / 3 + 127) / 128, 128}, x, x.size());
  for (std::size_t i = 0; i < x.size(); i += 3) {
    std::int16_t halves[2];
    std::int8_t s[4];
    std::uint8_t u[4];
    std::memcpy(halves, &x[i], 4), std::memcpy(s, &x[i + 1], 4), std::memcpy(u, &x[i + 1], 4);
    const std::int64_t c = static_cast<std::int32_t>(x[i + 2]);
    const auto wrap = [](std::int64_t v) { return static_cast<std::int32_t>(static_cast<std::uint32_t>(v)); };
    ASSERT_EQ(y[i], wrap(c + halves[0] * s[0] + halves[1] * s[1])) << i;
    ASSERT_EQ(y[i + 1], wrap(c + halves[0] * u[2] + halves[1] * u[3])) << i;
  }
}

// Patterns of the integers -7..7.
std::uint16_t half_of_int(int v) {
  static const std::uint16_t kPatterns[] = {0, 0x3c00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600, 0x4700};
  return static_cast<std::uint16_t>(kPatterns[std::abs(v)] | (v < 0 ? 0x8000u : 0u));
}
std::uint16_t brain_of_int(int v) {
  const float f = static_cast<float>(v);
  std::uint32_t bits = 0;
  std::memcpy(&bits, &f, 4);
  return static_cast<std::uint16_t>(bits >> 16);
}

// a[64x16] * b[64 tokens x 16] + c: a in the registers of four warps, b in shared memory, 128 bytes per token, of which `first` is where
// the 16 begin; 16-byte pieces swizzled by the token's low three bits.
void check_wgmma(bool bf16, std::uint16_t (*element)(int)) {
  const std::string body = R"(
    const u16* a = static_cast<const u16*>(args.x);  // [64][16]
    const u16* b = a + 64 * 16;                      // [64 tokens][64]
    int first = )" + std::string(bf16 ? "32" : "0") +
                           R"(;
    u8* shared = ptx::shared_memory();
    for (int i = ptx::thread_x(); i < 64 * 64; i += 128) {
      int token = i / 64, k = i % 64, piece = k / 8;
      *reinterpret_cast<u16*>(shared + token * 128 + (piece ^ (token % 8)) * 16 + k % 8 * 2) = b[i];
    }
    ptx::fence_proxy_async();
    ptx::barrier();
    int g = ptx::lane() / 4, t = ptx::lane() % 4, row = ptx::warp() * 16;
    u32 fa[4];
    for (int i = 0; i < 4; ++i) {
      const u16* p = a + (row + g + 8 * (i % 2)) * 16 + 2 * t + 8 * (i / 2);
      fa[i] = p[0] | static_cast<u32>(p[1]) << 16;
    }
    f32 c[8][4];
    for (int j = 0; j < 8; ++j)
      for (int i = 0; i < 4; ++i) c[j][i] = static_cast<f32>(row + g + 8 * (i / 2) - 8 * j - 2 * t - i % 2);
    ptx::wgmma_fence();
    ptx::Wgmma<)" + std::string(bf16 ? "true" : "false") +
                           R"(, 8>::multiply(c, fa, shared + first * 2);
    ptx::wgmma_commit();
    ptx::wgmma_wait(c);
    f32* y = static_cast<f32*>(args.y);
    for (int j = 0; j < 8; ++j)
      for (int i = 0; i < 4; ++i) y[(row + g + 8 * (i / 2)) * 64 + 8 * j + 2 * t + i % 2] = c[j][i];
  )";
  std::vector<int> value(64 * 16 + 64 * 64);
  std::vector<std::uint16_t> x(value.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    value[i] = static_cast<int>((i * 7 + i / 16 * 5 + i / 64 * 3) % 15) - 7;
    x[i] = element(value[i]);
  }
  const auto source = kernel_source(body, 128, "#include \"ptx/wgmma.cuh\"");
  const auto y = HostKernel::from(compile_source(source)).run<float>({1, 128, 64 * 128}, x, 64 * 64);
  const std::size_t first = bf16 ? 32 : 0;
  for (std::size_t row = 0; row < 64; ++row)
    for (std::size_t token = 0; token < 64; ++token) {
      int sum = static_cast<int>(row) - static_cast<int>(token);
      for (std::size_t k = 0; k < 16; ++k) sum += value[row * 16 + k] * value[64 * 16 + token * 64 + first + k];
      ASSERT_EQ(y[row * 64 + token], static_cast<float>(sum)) << row << "," << token;
    }
}

TEST(HardwareHeader, WgmmaOfF16IsTheMatrixProduct) { check_wgmma(false, half_of_int); }
TEST(HardwareHeader, WgmmaOfBf16IsTheMatrixProduct) { check_wgmma(true, brain_of_int); }

}  // namespace
}  // namespace quern::test

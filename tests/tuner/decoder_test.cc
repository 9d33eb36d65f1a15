// Every decoder against the oracle on bytes that no quantizer writes: every bit is random, scales too, so that infinities, NaNs, denormals,
// negative zeros and extreme exponents occur in all places. On the host target, through the simplest family.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "generator/family.h"
#include "generator/source_text.h"
#include "runtime/compiler.h"
#include "tuner/loaded_kernel.h"
#include "tuner/oracle.h"
#include "tuner/planar.h"
#include "tuner/random_weights.h"

namespace quern {
namespace {

constexpr std::int64_t kRows = 67;  // full planar tiles and a short one
constexpr std::int64_t kLength = 1280;

std::vector<std::byte> random_bytes(WeightType type) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(kRows * row_bytes(type, kLength)));
  Random random(static_cast<std::uint64_t>(type) + 1);
  for (auto& b : bytes) b = static_cast<std::byte>(random.below(256));
  // The one-byte scales meet every value they have.
  const std::size_t block = static_cast<std::size_t>(info(type).block_bytes);
  const std::size_t scales = type == WeightType::mxfp4 ? 1 : type == WeightType::nvfp4 ? 4 : 0;
  for (std::size_t i = 0; i * block < bytes.size(); ++i)
    for (std::size_t s = 0; s < scales; ++s) bytes[i * block + s] = static_cast<std::byte>(i * scales + s);
  return bytes;
}

std::vector<float> oracle_values(WeightType type, const std::vector<std::byte>& rows) {
  std::vector<float> values(static_cast<std::size_t>(kRows * kLength));
  for (std::int64_t n = 0; n < kRows; ++n)
    dequantize_row(type, rows.data() + n * row_bytes(type, kLength), kLength, values.data() + n * kLength);
  return values;
}

bool same(float a, float b) { return std::isnan(a) ? std::isnan(b) : std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b); }

class Decoder : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* plugin = std::getenv("QUERN_HOST_PLUGIN");
    LibraryPaths paths;
    paths.host_plugin = plugin != nullptr ? plugin : "";
    auto device = open_device("host", paths);
    if (!device) GTEST_SKIP() << device.error().message;
    device_ = std::move(*device);
    auto compiler = open_host_compiler(paths);
    ASSERT_TRUE(compiler) << compiler.error().message;
    compiler_ = std::move(*compiler);
  }

  std::vector<float> kernel_values(WeightType type, Layout layout, const std::vector<std::byte>& rows) {
    Problem p;
    p.op = Op::dequantize;
    p.type = type;
    p.layout = layout;
    p.n = kRows;
    p.k = kLength;
    p.accuracy = Accuracy::exact;
    const Target target = device_->info().target;
    auto source = render(p, target, default_config(p, target));
    if (!source) return ADD_FAILURE() << source.error().message, std::vector<float>{};
    auto binary = compiler_->compile(*source, target);
    if (!binary) return ADD_FAILURE() << binary.error().message << binary.error().log, std::vector<float>{};
    auto kernel = LoadedKernel::load(*device_, *source, *binary);
    if (!kernel) return ADD_FAILURE() << kernel.error().message, std::vector<float>{};
    std::vector<float> y(static_cast<std::size_t>(kRows * kLength));
    const auto planar = layout == Layout::planar ? gguf_to_planar(type, kRows, kLength, rows) : rows;
    KernelArgs args{};
    args.w = planar.data();
    args.y = y.data();
    args.m = 1, args.n = kRows, args.k = kLength;
    args.ldy = kLength;
    args.w_row_bytes = row_bytes(type, kLength);
    args.batch2 = args.batch3 = args.ratio2 = args.ratio3 = 1;
    const Status ran = (*kernel)->run(args);
    EXPECT_TRUE(ran) << ran.error().message;
    return y;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Compiler> compiler_;
};

TEST_F(Decoder, EveryTypeHasOne) {
  for (const auto& type : kWeightTypes) EXPECT_TRUE(has_decoder(type.type)) << type.name;
}

TEST_F(Decoder, EveryBitPatternDecodesAsTheOracleSaysInBothLayouts) {
  for (const auto& type : kWeightTypes) {
    const auto rows = random_bytes(type.type);
    const auto expected = oracle_values(type.type, rows);
    for (const Layout layout : {Layout::gguf, Layout::planar}) {
      const auto found = kernel_values(type.type, layout, rows);
      ASSERT_EQ(found.size(), expected.size());
      std::size_t wrong = 0, first = 0;
      for (std::size_t i = 0; i < expected.size(); ++i)
        if (!same(expected[i], found[i]) && wrong++ == 0) first = i;
      EXPECT_EQ(wrong, 0u) << type.name << " " << to_string(layout) << ": the first at " << first << ", found " << found[first]
                           << ", needed " << expected[first];
    }
  }
}

}  // namespace
}  // namespace quern

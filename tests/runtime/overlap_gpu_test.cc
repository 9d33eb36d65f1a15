// Ops that read what the op before them on their stream wrote, on a real GPU, where launches overlap (docs/decisions/0014): the same bits
// as with every launch apart and ended. Skipped with the reason where there is no GPU or no compiler.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "generator/family.h"
#include "open_gpu.h"
#include "quern/context.h"
#include "runtime/compiler.h"
#include "runtime/context_parts.h"
#include "runtime/device.h"
#include "take.h"

namespace quern {
namespace {

using test::take;

constexpr int kRounds = 40;  // of every chain; each round's inputs differ, so that a read too early is of other values

class Overlap : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto gpu = test::open_gpu(); !gpu.missing.empty()) GTEST_SKIP() << gpu.missing;
    open(overlapping_, true), open(apart_, false);
  }

  struct Bench {
    std::optional<Context> context;
    Device* device = nullptr;
    bool synchronizes = false;
  };
  // One op of a chain, launched in round i.
  struct Step {
    Problem problem;
    std::function<LaunchArgs(int)> args;
  };
  using Memory = std::vector<std::unique_ptr<Buffer>>;

  static void open(Bench& bench, bool overlaps) {
    ContextParts parts;
    parts.device = take(open_device("cuda:0", {}));
    parts.store = cache::Store::open({});
    parts.compiler = take(open_nvrtc({}));
    parts.kernels = generator_kernels();
    parts.launch_apart = !overlaps;
    bench.context = make_context(std::move(parts));
    bench.device = parts_of(*bench.context).device.get();
    bench.synchronizes = !overlaps;
  }

  // The same bytes for the same seed, or f32 of -1 to 1.
  static std::unique_ptr<Buffer> filled(Bench& bench, std::size_t bytes, int seed, bool f32 = false) {
    std::mt19937 random(static_cast<unsigned>(seed));
    std::vector<std::uint32_t> words(bytes / 4 + 1);
    for (auto& word : words) {
      if (f32) {
        const float value = std::uniform_real_distribution<float>(-1, 1)(random);
        std::memcpy(&word, &value, 4);
      } else {
        word = static_cast<std::uint32_t>(random());
      }
    }
    auto buffer = take(bench.device->allocate(bytes));
    EXPECT_TRUE(bench.device->copy_to_device(buffer->data(), words.data(), bytes));
    return buffer;
  }

  // Launches the chain kRounds times, all of it before anything is awaited unless launches are apart.
  void run(Bench& bench, const std::vector<Step>& steps) {
    std::vector<Plan> plans;
    Memory workspaces;
    for (const Step& step : steps) {
      auto plan = bench.context->plan(step.problem);
      ASSERT_TRUE(plan) << plan.error().message << plan.error().log;
      workspaces.push_back(take(bench.device->allocate(plan->workspace_bytes() + 1)));
      plans.push_back(std::move(*plan));
    }
    const Stream stream = *bench.device->create_stream();
    for (int i = 0; i < kRounds; ++i)
      for (std::size_t s = 0; s < steps.size(); ++s) {
        LaunchArgs args = steps[s].args(i);
        args.workspace = workspaces[s]->data(), args.workspace_bytes = plans[s].workspace_bytes();
        const auto launched = plans[s].launch(stream, args);
        ASSERT_TRUE(launched) << launched.error().message;
        if (!bench.synchronizes) continue;
        ASSERT_TRUE(bench.device->synchronize(stream));
      }
    ASSERT_TRUE(bench.device->synchronize(stream));
    ASSERT_TRUE(bench.device->destroy_stream(stream));
  }

  // `chain(bench, y, memory)` makes the steps, whose last one writes round i's `bytes` of Y at y + i * bytes.
  template <class Chain>
  void agree(std::size_t bytes, const Chain& chain) {
    std::vector<std::byte> out[2];
    Bench* benches[] = {&overlapping_, &apart_};
    for (int b = 0; b < 2; ++b) {
      Bench& bench = *benches[b];
      Memory memory;
      const auto y = take(bench.device->allocate(bytes * kRounds));
      ASSERT_TRUE(bench.device->fill(y->data(), 0xA5, y->size()));
      run(bench, chain(bench, static_cast<std::byte*>(y->data()), memory));
      if (HasFatalFailure()) return;
      out[b].resize(bytes * kRounds);
      ASSERT_TRUE(bench.device->copy_to_host(out[b].data(), y->data(), out[b].size()));
    }
    int other = 0;
    for (int i = 0; i < kRounds; ++i) other += std::memcmp(&out[0][i * bytes], &out[1][i * bytes], bytes) != 0;
    EXPECT_EQ(other, 0) << "rounds of " << kRounds << " whose Y differs from that of launches apart";
    EXPECT_NE(std::memcmp(&out[1][0], &out[1][bytes], bytes), 0) << "every round has the same Y: it proves nothing";
  }

  Bench overlapping_, apart_;
};

TEST_F(Overlap, QuantizedRowsAreThereForTheirProduct) {
  constexpr std::int64_t kN = 32768, kK = 2048;
  for (const std::int64_t m : {1, 8, 33}) {
    SCOPED_TRACE("m=" + std::to_string(m));
    agree(m * kN * 4, [&](Bench& bench, std::byte* y, Memory& memory) {
      memory.push_back(filled(bench, m * kK * 4 * 3, 1, true));  // three X in turn
      memory.push_back(filled(bench, kN * kK, 2));
      memory.push_back(filled(bench, kN * 4, 3, true));
      memory.push_back(filled(bench, m * kK, 4));
      memory.push_back(filled(bench, m * 4, 5));
      const auto *x = static_cast<float*>(memory[0]->data()), *w_scales = static_cast<float*>(memory[2]->data());
      void *w = memory[1]->data(), *codes = memory[3]->data();
      auto* scales = static_cast<float*>(memory[4]->data());
      return std::vector<Step>{
          {{.op = Op::quantize_rows_int8, .type = WeightType::i8, .m = m, .k = kK, .accuracy = Accuracy::exact},
           [=](int i) { return LaunchArgs{.x = {.data = x + i % 3 * m * kK}, .y = {.data = codes, .row_scales = scales}}; }},
          {{.op = Op::matmul_int8_rows, .type = WeightType::i8, .m = m, .n = kN, .k = kK, .accuracy = Accuracy::exact}, [=](int i) {
             return LaunchArgs{
                 .w = {.data = w, .row_scales = w_scales}, .x = {.data = codes, .row_scales = scales}, .y = {.data = y + i * m * kN * 4}};
           }}};
    });
  }
}

TEST_F(Overlap, RepackedWeightsAreThereForTheirProduct) {
  constexpr std::int64_t kN = 4096, kK = 4096;
  for (const std::int64_t m : {1, 8, 64, 512}) {
    SCOPED_TRACE("m=" + std::to_string(m));
    agree(m * kN * 4, [&](Bench& bench, std::byte* y, Memory& memory) {
      constexpr std::int64_t kBytes = kN * kK / 32 * 34;
      memory.push_back(filled(bench, m * kK * 4, 1, true));
      memory.push_back(take(bench.device->allocate(kBytes)));
      // Q8_0 blocks whose scales are plain numbers: byte 1 of d is of a small positive f16.
      for (int seed = 2; seed < 4; ++seed) {
        memory.push_back(filled(bench, kBytes, seed));
        std::vector<std::byte> blocks(kBytes);
        EXPECT_TRUE(bench.device->copy_to_host(blocks.data(), memory.back()->data(), blocks.size()));
        for (std::int64_t b = 0; b < kBytes; b += 34) blocks[b + 1] = std::byte{0x20};
        EXPECT_TRUE(bench.device->copy_to_device(memory.back()->data(), blocks.data(), blocks.size()));
      }
      void *x = memory[0]->data(), *w = memory[1]->data();
      void* blocks[] = {memory[2]->data(), memory[3]->data()};
      return std::vector<Step>{
          {{.op = Op::to_planar, .type = WeightType::q8_0, .layout = Layout::gguf, .n = kN, .k = kK, .accuracy = Accuracy::exact},
           [=](int i) { return LaunchArgs{.w = {.data = blocks[i % 2]}, .y = {.data = w}}; }},
          {{.op = Op::mul_mat, .type = WeightType::q8_0, .m = m, .n = kN, .k = kK},
           [=](int i) { return LaunchArgs{.w = {.data = w}, .x = {.data = x}, .y = {.data = y + i * m * kN * 4}}; }}};
    });
  }
}

TEST_F(Overlap, AProductIsThereForTheProductBehindIt) {
  constexpr std::int64_t kN = 2048, kM = 16;
  agree(kM * kN * 4, [&](Bench& bench, std::byte* y, Memory& memory) {
    memory.push_back(filled(bench, kM * kN * 4, 1, true));
    memory.push_back(filled(bench, kN * kN * 4, 2, true));
    memory.push_back(filled(bench, kM * kN * 4, 3));
    void *x = memory[0]->data(), *w = memory[1]->data(), *between = memory[2]->data();
    const auto row = [=](int i) { return y + i * kM * kN * 4; };
    // Y of a round is the gradient of the product of the round before: every round hangs on all before it.
    return std::vector<Step>{
        {{.op = Op::mul_mat, .type = WeightType::f32, .m = kM, .n = kN, .k = kN},
         [=](int i) { return LaunchArgs{.w = {.data = w}, .x = {.data = i == 0 ? x : row(i - 1)}, .y = {.data = between}}; }},
        {{.op = Op::out_prod, .type = WeightType::f32, .m = kM, .n = kN, .k = kN},
         [=](int i) { return LaunchArgs{.w = {.data = w}, .x = {.data = between}, .y = {.data = row(i)}}; }}};
  });
}

}  // namespace
}  // namespace quern

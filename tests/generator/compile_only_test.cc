// Field case 22: every family and type for every architecture, through NVRTC and without a GPU. A family compiles where it supports a
// problem; where it does not, it says so before a compiler is asked (family_test.cc). Skipped with the reason where NVRTC is not installed.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <thread>

#include "generator/family.h"
#include "generator/target_limits.h"
#include "runtime/compiler.h"
#include "tests/generator/machine_code.h"
#include "tests/generator/problem_grid.h"

namespace quern {
namespace {

using test::cuda;
using test::mul_mat;

struct Job {
  Problem problem;
  Target target;
  Config config;
  int tolerated_spills = 0;  // bytes
  std::string failure;
};

std::string compile(const Compiler& compiler, const Job& job) {
  const std::string at = to_string(job.problem) + " " + to_string(job.config) + " " + to_string(job.target) + ": ";
  const auto source = render(job.problem, job.target, job.config);
  if (!source) return at + source.error().message;
  const auto binary = compiler.compile(*source, job.target);
  if (!binary) return at + binary.error().message + "\n" + binary.error().log;
  if (binary->format != Binary::Format::cubin) return at + "no machine code";
  if (binary->usage.spill_bytes > job.tolerated_spills) return at + "spills " + std::to_string(binary->usage.spill_bytes) + " bytes";
  for (const LaunchStep& step : source->steps) {
    const auto shared = binary->usage.static_shared_bytes + std::int64_t{step.shared_bytes};
    if (shared > limits_of(job.target).shared_bytes_per_block) return at + "needs " + std::to_string(shared) + " bytes of shared memory";
    if (std::int64_t{binary->usage.registers} * step.block.x > limits_of(job.target).registers_per_sm)
      return at + "needs " + std::to_string(binary->usage.registers) + " registers for " + std::to_string(step.block.x) + " threads";
  }
  if (job.target != cuda(90, true)) return {};
  // Overlapping launches: a first step touches no memory before the launch before it has ended, a later one may read what no step writes.
  for (std::size_t i = 0; i < source->steps.size(); ++i)
    if (auto what = test::before_wait(binary->bytes, source->steps[i].entry, i > 0); !what.empty())
      return at + source->steps[i].entry + " " + what;
  return {};
}

class CompileOnly : public testing::Test {
 protected:
  void SetUp() override {
    const char* nvrtc = std::getenv("QUERN_NVRTC");
    LibraryPaths paths;
    paths.nvrtc = nvrtc != nullptr ? nvrtc : "";
    auto compiler = open_nvrtc(paths);
    if (!compiler) GTEST_SKIP() << compiler.error().message;
    compiler_ = std::move(*compiler);
  }

  void add(const Problem& problem, const Target& target, const Config& config) {
    if (compiler_->supports(target)) jobs_.push_back({problem, target, config, 0, {}});
  }
  void add_default(const Problem& problem, const Target& target, std::string_view family) {
    if (find_family(family)->supports(problem, target)) add(problem, target, find_family(family)->space(problem, target).default_config());
  }

  void compile_all() {
    std::atomic<std::size_t> next{0};
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); ++t)
      threads.emplace_back([&] {
        for (std::size_t i = next++; i < jobs_.size(); i = next++) jobs_[i].failure = compile(*compiler_, jobs_[i]);
      });
    for (auto& thread : threads) thread.join();
    for (const Job& job : jobs_) EXPECT_EQ(job.failure, "");
  }

  std::unique_ptr<Compiler> compiler_;
  std::vector<Job> jobs_;
};

const Target kArchitectures[] = {cuda(75), cuda(80), cuda(86), cuda(89), cuda(90, true), cuda(100), cuda(120)};

// Each architecture meets every family; the types rotate, so that each type meets each family and each architecture.
TEST_F(CompileOnly, TheDefaultConfigOfEveryFamilyAndTypeOnEveryArchitecture) {
  const auto types = test::decodable_types();
  int turn = 0;
  for (const char* family : {"generic", "gemv_f32", "gemv_q8", "gemm", "wgmma"})
    for (std::size_t t = 0; t < types.size(); ++t)
      for (std::size_t a = 0; a < std::size(kArchitectures); ++a) {
        // The oldest, the newest and one more per type; wgmma exists for one architecture.
        const bool chosen = a == 0 || (a + t) % 3 == 0 || std::string_view(family) == "wgmma";
        if (!chosen) continue;
        const std::int64_t m = std::string_view(family) == "gemm" ? 16 : std::string_view(family) == "wgmma" ? 64 : 1;
        Problem p = mul_mat(types[t], ++turn % 2 ? Layout::planar : Layout::gguf, m, 4096, 4096, Accuracy::loose);
        p.x_type = DType(turn % 3), p.y_type = DType(turn / 3 % 3), p.bias = turn % 5 == 0;
        add_default(p, kArchitectures[a], family);
      }
  for (const char* family : {"generic", "gemv_f32", "gemv_q8", "gemm"})
    for (std::size_t a = 0; a < std::size(kArchitectures); ++a)
      EXPECT_EQ(
          std::any_of(jobs_.begin(), jobs_.end(), [&](const Job& j) { return j.config.family == family && j.target == kArchitectures[a]; }),
          compiler_->supports(kArchitectures[a]) && !(std::string_view(family) == "gemm" && a == 0))
          << family << " " << to_string(kArchitectures[a]);
  compile_all();
}

TEST_F(CompileOnly, DequantizeAndRepackForEveryTypeOnTheOldestHopperAndTheNewest) {
  for (WeightType type : test::decodable_types())
    for (const Target& target : {cuda(75), cuda(90, true), cuda(120)})
      for (auto [op, layout] : {std::pair{Op::dequantize, Layout::planar}, {Op::to_planar, Layout::gguf}}) {
        Problem p{.op = op, .type = type, .layout = layout, .n = 64, .k = 4096, .y_type = DType::f16, .accuracy = Accuracy::exact};
        add(p, target, default_config(p, target));
      }
  compile_all();
}

// The integer ops, by whichever family answers: tensor cores from sm_80 on, DP4A before.
TEST_F(CompileOnly, TheIntegerRowsOnEveryArchitecture) {
  int turn = 0;
  for (const Target& target : kArchitectures) {
    Problem rows{.op = Op::matmul_int8_rows, .type = WeightType::i8, .n = 32769, .k = 2048, .bias = true, .accuracy = Accuracy::exact};
    for (const std::int64_t m : {1, 8, 33}) {
      rows.m = m, rows.y_type = DType(++turn % 3);
      add(rows, target, default_config(rows, target));
    }
    EXPECT_EQ(default_config(rows, target).family, target.sm < 80 ? "int8_dot" : "int8_mma");
    const Problem quantize{.op = Op::quantize_rows_int8,
                           .type = WeightType::i8,
                           .m = 8,
                           .n = 0,
                           .k = 2048,
                           .x_type = DType(turn % 3),
                           .accuracy = Accuracy::exact};
    add(quantize, target, default_config(quantize, target));
    // All that a kernel may hold: shuffles alone, two and three stages a thread; one row in shared memory twice, and once.
    for (const auto& [k, block] : {std::pair{80, 16}, {2048, 128}, {15360, 1024}}) {
      Problem rotate{.op = Op::rpbh_quantize, .type = ++turn % 2 ? WeightType::code4 : WeightType::i8, .m = 8, .n = 0, .k = k};
      rotate.x_type = DType(turn % 3), rotate.accuracy = Accuracy::exact, rotate.block = block;
      add(rotate, target, default_config(rotate, target));
    }
  }
  compile_all();
}

// Every way to look indices up, by decode rows and more, row-major and k-major.
TEST_F(CompileOnly, W4a4OnEveryArchitecture) {
  int turn = 0;
  for (const Target& target : kArchitectures) {
    Problem p{.op = Op::w4a4, .type = WeightType::code4, .n = 14336, .k = 1024, .accuracy = Accuracy::exact};
    for (const char* family : {"w4a4_pairs", "w4a4_table", "w4a4_register", "w4a4_mma"}) {
      p.m = std::string_view(family) == "w4a4_mma" ? 33 : ++turn % 3 ? 1 : 4;
      p.k_major = turn % 2 == 0, p.bias = p.fused = turn % 3 == 0, p.y_type = turn % 2 ? DType::bf16 : DType::f16;
      if (target.sm >= 80 || std::string_view(family) != "w4a4_mma") add_default(p, target, family);
    }
    for (const std::int64_t m : {1, 8, 9})
      for (const bool k_major : {false, true}) {
        p.m = m, p.k_major = k_major;
        EXPECT_EQ(default_config(p, target).family, target.sm < 80 || (k_major && m <= 8) ? "w4a4_register" : "w4a4_mma") << to_string(p);
        if (!k_major && m <= 8) add(p, target, default_config(p, target));
      }
  }
  compile_all();
}

// Routed rows by tensor cores: each type, the architectures rotating.
TEST_F(CompileOnly, TheDefaultRoutedGemmOfEveryType) {
  const auto types = test::decodable_types();
  for (std::size_t t = 0; t < types.size(); ++t) {
    Problem p = mul_mat(types[t], t % 2 ? Layout::planar : Layout::gguf, t % 3 == 0 ? 64 : 512, 768, 2048);
    p.op = Op::mul_mat_id, p.experts = 128, p.used = 8, p.x_broadcast = t % 2 == 0, p.bias = t % 5 == 0, p.scale = t % 4 == 0;
    p.x_type = DType(t % 3);
    add_default(p, kArchitectures[1 + t % (std::size(kArchitectures) - 1)], "gemm");
  }
  EXPECT_GT(jobs_.size(), types.size() / 2);
  compile_all();
}

// The gradient through every type by tensor cores: the architectures rotate for gemm_t, wgmma_t has one.
TEST_F(CompileOnly, TheDefaultOutProdOfEveryType) {
  const auto types = test::decodable_types();
  for (std::size_t t = 0; t < types.size(); ++t)
    for (const char* family : {"gemm_t", "wgmma_t"}) {
      const bool hopper = std::string_view(family) == "wgmma_t";
      Problem p = mul_mat(types[t], t % 2 ? Layout::planar : Layout::gguf, hopper ? 128 : 16, 4096, 4096,
                          t % 3 ? Accuracy::normal : Accuracy::tight);
      p.op = Op::out_prod, p.x_type = DType(t % 3), p.y_type = DType(t / 3 % 3), p.x_transposed = t % 4 == 1, p.scale = t % 5 == 0;
      add_default(p, kArchitectures[hopper ? 4 : 1 + t % (std::size(kArchitectures) - 1)], family);
    }
  EXPECT_GT(jobs_.size(), types.size() / 2);
  for (Job& job : jobs_) job.tolerated_spills = 1 << 16;  // rarer element types may; the usual ones are held to few below
  compile_all();
}

// What runs untuned runs out of registers nowhere.
TEST_F(CompileOnly, TheDefaultConfigsDoNotSpill) {
  for (const Target& target : {cuda(80), cuda(90, true), cuda(120)})
    for (WeightType type : {WeightType::q4_0, WeightType::q8_0, WeightType::q4_k, WeightType::q6_k, WeightType::f16})
      for (std::int64_t m : {1, 8, 64, 2048}) {
        Problem p = mul_mat(type, Layout::planar, m, 14336, 4096);
        add(p, target, default_config(p, target));
        if (m != 64 && m != 2048) continue;
        p.op = Op::out_prod;
        add(p, target, default_config(p, target));
        // What the tuner tolerates too: registers saved outside the loop.
        if (!jobs_.empty()) jobs_.back().tolerated_spills = 32;
      }
  compile_all();
}

}  // namespace
}  // namespace quern

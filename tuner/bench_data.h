// Inputs and outputs of one problem on one device, made so that a wrong kernel shows.
//
//   W, X      exactly sized buffers on the host, where a sanitizer watches; on a GPU each is followed and preceded by 0xFF guard bytes
//             (NaN in every float type, an extreme scale in every block type), so that a result which depends on them is wrong
//   Y         poisoned between two fences. The poison is a huge finite value of every float type, not a NaN: x86 hands a NaN's payload on,
//   so
//             that a kernel which read a guard byte would seem not to have written. For repacking, whose bytes may be anything, it is the
//             complement of the right answer
//   gaps      between rows of X: guard bytes; between rows of Y: poison that must survive
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "quern/problem.h"
#include "quern/result.h"
#include "runtime/device.h"
#include "tuner/measurer.h"

namespace quern {

inline constexpr std::size_t kFenceBytes = 256;
inline constexpr unsigned char kFenceByte = 0xA5;
inline constexpr unsigned char kGuardByte = 0xFF;
inline constexpr unsigned char kPoisonByte = 0xFB;   // -2.6e36 in f32 and bf16, -65376 in f16
inline constexpr unsigned char kScratchByte = 0x7F;  // 3.4e38 in f32 and bf16, NaN in f16

// Bytes of the problem's weights, all batches: what a kernel has to read at least.
std::int64_t weight_bytes(const Problem& problem);

// What the integer ops read beside W and X; what an op has not is empty.
struct CodeOperands {
  std::vector<float> x_scales, w_scales;            // per row; w4a4: the norms, those of W representable in bf16
  std::vector<std::int8_t> x_codebook, w_codebook;  // w4a4, 16 each; rpbh_quantize to codes: x_codebook
  float activation_scale = 1, weight_scale = 1;     // w4a4
  std::vector<std::int32_t> permutation;            // rpbh_quantize, with everything below
  std::vector<std::int8_t> signs;
  std::vector<float> boundaries;
  float epsilon = 0;
};

class BenchData {
 public:
  // Requires validate(problem). Errors: those of the device (kEnvironment when out of memory) and of the model file.
  static Result<std::unique_ptr<BenchData>> make(const Problem& problem, Device& device, const DataOptions& options);

  const Problem& problem() const { return problem_; }
  const DataOptions& options() const { return options_; }

  // Host copies. Weights in gguf layout, dense, batch after batch; x and bias as on the device.
  std::span<const std::byte> weights() const { return weights_; }
  std::span<const std::byte> x() const { return x_; }
  std::span<const std::byte> bias() const { return bias_; }
  // The weight scale of a matrix of W, 1 where the problem has none.
  float scale_of(std::int64_t w_batch) const { return problem_.scale ? scales_[static_cast<std::size_t>(w_batch)] : 1.0f; }
  const CodeOperands& codes() const { return codes_; }
  // mul_mat_id: which expert the slot of a token goes to.
  std::int64_t expert_of(std::int64_t token, std::int64_t slot) const {
    return ids_[static_cast<std::size_t>(token * ids_stride() + slot)];
  }
  // Repacking ops: the right output. Empty for the others.
  std::span<const std::byte> expected() const { return expected_; }

  std::int64_t copies() const { return static_cast<std::int64_t>(w_device_.size()); }
  // Arguments with the weight copy of that number, 0 <= copy < copies().
  KernelArgs args(std::int64_t copy, void* workspace) const;

  std::int64_t w_matrices() const { return w_batches(problem_).count(); }
  // Matrices of X and Y.
  std::int64_t matrices() const { return xy_batches(problem_).count(); }
  // The matrix of W that a matrix of X meets; not for mul_mat_id, where every row has its own.
  std::int64_t w_batch_of(std::int64_t batch) const;
  // Bytes between the batches of W on the device. Planar planes are loaded in wide words: there every batch starts aligned.
  std::int64_t w_batch_bytes() const;
  // Rows of one matrix of X as they are stored.
  Extent x_stored() const;
  std::int64_t ldx() const { return x_stored().columns + options_.x_gap; }
  std::int64_t ids_stride() const { return problem_.used + (options_.x_gap > 0 ? 1 : 0); }
  std::int64_t y_rows() const { return y_extent(problem_).rows; }  // per matrix
  std::int64_t y_columns() const;                                  // elements; bytes for repacking
  std::int64_t ldy() const { return y_columns() + options_.y_gap; }
  int y_element_bytes() const;

  Status poison();
  // Y as the device left it, without the fences. `fence_fault` says which byte around Y was written, or is empty.
  Result<std::vector<std::byte>> read_output(std::string& fence_fault) const;
  // Where Y are codes: the f32 of each row written beside them, with what was written around them.
  Result<std::vector<float>> read_scales(std::string& fence_fault) const;
  // What poison() wrote at that byte of Y.
  std::byte poison_at(std::size_t index) const;

 private:
  BenchData(const Problem& problem, Device& device, const DataOptions& options) : problem_(problem), device_(device), options_(options) {}
  Status make_weights();
  Status make_activations();
  Status make_output();
  Status make_routing();
  Status make_code_operands();
  Status make_rotation();
  Status place_output(std::size_t bytes, std::byte*& pointer, std::size_t offset = 0);
  Result<std::vector<std::byte>> read_fenced(const std::byte* pointer, std::size_t bytes, const char* what, std::string& fence_fault) const;
  Status place(const void* image, std::size_t bytes, std::byte*& pointer, std::size_t offset = 0);
  Status place_copies(std::span<const std::byte> image, std::int64_t count);

  Problem problem_;
  Device& device_;
  DataOptions options_;
  std::vector<std::byte> weights_, x_, bias_, expected_;
  std::vector<float> scales_;
  CodeOperands codes_;
  std::vector<std::int32_t> ids_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<std::byte*> w_device_;
  std::byte* x_device_ = nullptr;
  std::byte* bias_device_ = nullptr;
  std::byte* scale_device_ = nullptr;
  std::byte* ids_device_ = nullptr;
  std::byte* x_scales_device_ = nullptr;
  std::byte* w_scales_device_ = nullptr;
  std::byte* x_codebook_device_ = nullptr;
  std::byte* w_codebook_device_ = nullptr;
  std::byte* permutation_device_ = nullptr;
  std::byte* signs_device_ = nullptr;
  std::byte* boundaries_device_ = nullptr;
  std::byte* y_device_ = nullptr;  // past the first fence
  std::byte* y_scales_device_ = nullptr;
  std::size_t y_bytes_ = 0;
};

}  // namespace quern

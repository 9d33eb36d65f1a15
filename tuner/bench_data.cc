#include "tuner/bench_data.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>

#include "tuner/gguf.h"
#include "tuner/oracle.h"
#include "tuner/planar.h"
#include "tuner/random_weights.h"

namespace quern {
namespace {

constexpr std::int64_t kMaxCopies = 2048;  // a graph of that many nodes replays well; beyond, weights of a few KiB are all launch anyway

std::size_t aligned(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

// Random rows are independent of one another, so threads make them in pieces.
std::vector<std::byte> make_random_weights(WeightType type, std::int64_t n, std::int64_t k, std::uint64_t seed) {
  const std::size_t row = static_cast<std::size_t>(row_bytes(type, k));
  std::vector<std::byte> out(row * static_cast<std::size_t>(n));
  const std::int64_t threads = std::clamp<std::int64_t>(n * k / 4'000'000, 1, std::max(1u, std::thread::hardware_concurrency()));
  std::vector<std::thread> pool;
  for (std::int64_t t = 0; t < threads; ++t)
    pool.emplace_back([&, t] {
      const std::int64_t begin = n * t / threads, end = n * (t + 1) / threads;
      fill_random_weights(type, k, seed, begin, std::span(out).subspan(row * begin, row * (end - begin)));
    });
  for (auto& thread : pool) thread.join();
  return out;
}

Result<std::vector<std::byte>> read_model_rows(const Problem& p, const DataOptions& options) {
  QUERN_ASSIGN(const GgufFile file, GgufFile::open(options.gguf_path));
  const GgufTensor* tensor = file.contents().find(options.tensor);
  if (tensor == nullptr) return Error{ErrorCode::kInvalidArgument, options.gguf_path + ": has no tensor " + options.tensor, {}};
  if (tensor->type != p.type || tensor->ne[0] != p.k)
    return Error{ErrorCode::kInvalidArgument,
                 options.tensor + ": rows of " + std::to_string(tensor->ne[0]) + " of another type or length, needed " +
                     std::string(to_string(p.type)) + " rows of " + std::to_string(p.k),
                 {}};
  return file.read_rows(*tensor, options.first_row, p.n);
}

// Sixteen different codes, the extremes among them, in no order.
std::vector<std::int8_t> random_codebook(Random& random) {
  std::vector<std::int8_t> codes{-128, 127};
  while (codes.size() < 16) {
    const auto code = static_cast<std::int8_t>(static_cast<int>(random.below(256)) - 128);
    if (std::find(codes.begin(), codes.end(), code) == codes.end()) codes.push_back(code);
  }
  for (std::size_t i = 15; i > 0; --i) std::swap(codes[i], codes[static_cast<std::size_t>(random.below(i + 1))]);
  return codes;
}

// The sixteen levels that quantize a normal value best (J. Max, Quantizing for minimum distortion, 1960), the outer ones at -127 and 127.
std::vector<std::int8_t> normal_codebook() { return {-127, -96, -75, -58, -44, -31, -18, -6, 6, 18, 31, 44, 58, 75, 96, 127}; }

}  // namespace

std::int64_t weight_bytes(const Problem& p) { return w_batches(p).count() * p.n * row_bytes(p.type, p.k); }

std::int64_t BenchData::w_batch_of(std::int64_t batch) const {
  const std::int64_t b2 = batch % problem_.batch2 / problem_.ratio2, b3 = batch / problem_.batch2 / problem_.ratio3;
  return b3 * (problem_.batch2 / problem_.ratio2) + b2;
}
std::int64_t BenchData::w_batch_bytes() const {
  const std::int64_t bytes = problem_.n * (row_bytes(problem_.type, problem_.k) + options_.w_gap);
  return problem_.layout == Layout::planar && !is_integer(problem_.op) ? static_cast<std::int64_t>(aligned(static_cast<std::size_t>(bytes)))
                                                                       : bytes;
}
Extent BenchData::x_stored() const {
  const Extent x = x_extent(problem_);
  return problem_.x_transposed ? Extent{x.columns, x.rows} : x;
}
std::int64_t BenchData::y_columns() const {
  return is_repack(problem_.op) ? row_bytes(problem_.type, problem_.k) : y_extent(problem_).columns;
}
int BenchData::y_element_bytes() const { return is_repack(problem_.op) ? 1 : quern::y_element_bytes(problem_); }

Result<std::unique_ptr<BenchData>> BenchData::make(const Problem& problem, Device& device, const DataOptions& options) {
  std::unique_ptr<BenchData> data(new BenchData(problem, device, options));
  if (problem.layout == Layout::planar && !is_integer(problem.op)) data->options_.w_gap = 0;
  if (!is_integer(problem.op)) data->options_.offset = 0;
  if (is_repack(problem.op)) data->options_.y_gap = 0;
  QUERN_TRY(data->make_weights());
  QUERN_TRY(data->make_activations());
  QUERN_TRY(data->make_routing());
  QUERN_TRY(data->make_code_operands());
  QUERN_TRY(data->make_output());
  return data;
}

Status BenchData::make_weights() {
  const Problem& p = problem_;
  const std::size_t row = static_cast<std::size_t>(row_bytes(p.type, p.k));
  const std::size_t matrix = row * static_cast<std::size_t>(p.n);
  if (options_.gguf_path.empty()) {
    weights_ = make_random_weights(p.type, p.n * w_matrices(), p.k, options_.seed);
  } else {
    QUERN_ASSIGN(weights_, read_model_rows(p, options_));
    if (weights_.size() != matrix * static_cast<std::size_t>(w_matrices()))
      return Error{ErrorCode::kInvalidArgument, options_.tensor + ": batches of a model's tensor are not supported, needed batch 1", {}};
  }
  std::vector<std::byte> image;
  if (p.layout == Layout::planar && !is_integer(p.op)) {
    const auto stride = static_cast<std::size_t>(w_batch_bytes());
    image.assign(matrix == 0 ? 0 : stride * static_cast<std::size_t>(w_matrices() - 1) + matrix, std::byte{kGuardByte});
    for (std::size_t b = 0; b < static_cast<std::size_t>(w_matrices()) && matrix > 0; ++b) {
      const auto tiles = gguf_to_planar(p.type, p.n, p.k, std::span(weights_).subspan(matrix * b, matrix));
      std::memcpy(image.data() + stride * b, tiles.data(), matrix);
    }
  } else {
    // The last row has no gap behind it: what would be read there is out of bounds.
    const auto length = static_cast<std::size_t>(w_stored(p).columns), stride = length + static_cast<std::size_t>(options_.w_gap);
    const auto rows = static_cast<std::size_t>(w_stored(p).rows * w_matrices());
    image.assign(rows == 0 || length == 0 ? 0 : stride * (rows - 1) + length, std::byte{kGuardByte});
    for (std::size_t r = 0; r < rows && !image.empty(); ++r) {
      if (!p.k_major) std::memcpy(image.data() + r * stride, weights_.data() + r * row, row);
      for (std::size_t n = 0; p.k_major && n < length; ++n) image[r * stride + n] = weights_[n * row + r];
    }
  }
  if (is_repack(p.op)) expected_ = p.op == Op::to_planar ? gguf_to_planar(p.type, p.n, p.k, weights_) : weights_;
  std::int64_t count = 1;
  // The host's times only compare candidates within a run: two copies do, where more would make every pass slow.
  const bool host = device_.info().target.kind == Target::Kind::host;
  if (options_.rotate && !image.empty())
    count = host ? 2 : std::clamp<std::int64_t>(3 * device_.info().l2_bytes / static_cast<std::int64_t>(image.size()) + 1, 2, kMaxCopies);
  return place_copies(image, count);
}

// On a GPU: guard, copy, guard, copy, ... in one buffer; fewer copies when memory does not suffice, down to one.
Status BenchData::place_copies(std::span<const std::byte> image, std::int64_t count) {
  if (image.empty()) {
    w_device_.assign(1, nullptr);
    return {};
  }
  const auto offset = static_cast<std::size_t>(options_.offset);
  if (device_.info().target.kind == Target::Kind::host) {
    for (std::int64_t i = 0; i < count; ++i) {
      QUERN_ASSIGN(auto buffer, device_.allocate(image.size() + offset));
      w_device_.push_back(static_cast<std::byte*>(buffer->data()) + offset);
      QUERN_TRY(device_.copy_to_device(w_device_.back(), image.data(), image.size()));
      buffers_.push_back(std::move(buffer));
    }
    return {};
  }
  const std::size_t stride = aligned(image.size() + offset) + kFenceBytes;
  // Half the memory at most: several problems' data and the workspace live beside it.
  const std::int64_t fitting = device_.info().memory_bytes / 2 / static_cast<std::int64_t>(stride);
  if (device_.info().memory_bytes > 0) count = std::max<std::int64_t>(1, std::min(count, fitting));
  auto buffer = device_.allocate(kFenceBytes + stride * static_cast<std::size_t>(count));
  while (!buffer && count > 1) {
    count = (count + 1) / 2;
    buffer = device_.allocate(kFenceBytes + stride * static_cast<std::size_t>(count));
  }
  if (!buffer) return buffer.error();
  auto* base = static_cast<std::byte*>((*buffer)->data());
  QUERN_TRY(device_.fill(base, kGuardByte, (*buffer)->size()));
  QUERN_TRY(device_.copy_to_device(base + kFenceBytes + offset, image.data(), image.size()));
  for (std::int64_t i = 0; i < count; ++i) {
    w_device_.push_back(base + kFenceBytes + offset + stride * static_cast<std::size_t>(i));
    if (i > 0) QUERN_TRY(device_.copy_on_device(w_device_.back(), w_device_.front(), image.size()));
  }
  buffers_.push_back(std::move(*buffer));
  return {};
}

// An exactly sized buffer; on a GPU between guards.
Status BenchData::place(const void* image, std::size_t bytes, std::byte*& pointer, std::size_t offset) {
  if (bytes == 0) return {};
  const std::size_t guard = device_.info().target.kind == Target::Kind::host ? 0 : kFenceBytes;
  QUERN_ASSIGN(auto buffer, device_.allocate(guard + offset + bytes + guard));
  pointer = static_cast<std::byte*>(buffer->data()) + guard + offset;
  if (guard != 0) QUERN_TRY(device_.fill(buffer->data(), kGuardByte, buffer->size()));
  QUERN_TRY(device_.copy_to_device(pointer, image, bytes));
  buffers_.push_back(std::move(buffer));
  return {};
}

Status BenchData::make_activations() {
  const Problem& p = problem_;
  if (!has_rows(p.op)) return {};
  const std::size_t element = static_cast<std::size_t>(x_element_bytes(p));
  const Extent stored = x_stored();
  const std::size_t stride = static_cast<std::size_t>(ldx()) * element;
  const std::int64_t rows = stored.rows * matrices();
  if (rows > 0 && stored.columns > 0) {
    const std::uint64_t x_seed = options_.seed * 0x9E3779B97F4A7C15u + 1;
    std::vector<std::byte> full(stride * static_cast<std::size_t>(rows), std::byte{kGuardByte});
    if (has_code_input(p.op))
      for (std::int64_t row = 0; row < rows; ++row)
        fill_random_weights(WeightType::i8, stored.columns, x_seed, row,
                            std::span(full).subspan(stride * static_cast<std::size_t>(row), static_cast<std::size_t>(stored.columns)));
    else
      fill_random_activations(p.x_type, stored.columns, ldx(), x_seed, 0, rows, full);
    full.resize(full.size() - static_cast<std::size_t>(options_.x_gap) * element);
    x_ = std::move(full);
  }
  if (p.bias) {
    const std::int64_t biases = p.op == Op::mul_mat_id ? p.experts : 1;
    bias_ = random_activations(p.y_type, 1, biases * p.n, options_.seed * 0x9E3779B97F4A7C15u + 2);
  }
  QUERN_TRY(place(x_.data(), x_.size(), x_device_, has_code_input(p.op) ? static_cast<std::size_t>(options_.offset) : 0));
  return place(bias_.data(), bias_.size(), bias_device_);
}

// Weight scales, and ids drawn so that some experts get several rows of one token and others none.
Status BenchData::make_routing() {
  const Problem& p = problem_;
  Random random(options_.seed * 0x9E3779B97F4A7C15u + 3);
  if (p.scale)
    for (std::int64_t i = 0; i < (p.op == Op::mul_mat_id ? p.experts : 1); ++i) scales_.push_back(random.uniform(0.5f, 2.0f));
  QUERN_TRY(place(scales_.data(), scales_.size() * sizeof(float), scale_device_));
  if (p.op != Op::mul_mat_id || p.m == 0) return {};
  // What lies between the rows of ids names no expert.
  ids_.assign(static_cast<std::size_t>((p.m - 1) * ids_stride() + p.used), -1);
  for (std::int64_t t = 0; t < p.m; ++t)
    for (std::int64_t s = 0; s < p.used; ++s)
      ids_[static_cast<std::size_t>(t * ids_stride() + s)] = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(p.experts)));
  return place(ids_.data(), ids_.size() * sizeof(std::int32_t), ids_device_);
}

// Scales of magnitudes that differ, so that a kernel that takes one row's for another's is caught.
Status BenchData::make_code_operands() {
  const Problem& p = problem_;
  if (p.op == Op::rpbh_quantize) return make_rotation();
  if (!has_code_input(p.op)) return {};
  Random random(options_.seed * 0x9E3779B97F4A7C15u + 4);
  for (std::int64_t m = 0; m < p.m; ++m) codes_.x_scales.push_back(random.uniform(0.001f, 0.1f));
  for (std::int64_t n = 0; n < p.n; ++n) codes_.w_scales.push_back(random.uniform(0.001f, 0.1f));
  QUERN_TRY(place(codes_.x_scales.data(), codes_.x_scales.size() * sizeof(float), x_scales_device_));
  if (p.op != Op::w4a4) return place(codes_.w_scales.data(), codes_.w_scales.size() * sizeof(float), w_scales_device_);

  std::vector<std::byte> norms(codes_.w_scales.size() * 2);
  for (std::size_t n = 0; n < codes_.w_scales.size(); ++n) {
    store_element(DType::bf16, norms.data(), static_cast<std::int64_t>(n), codes_.w_scales[n]);
    codes_.w_scales[n] = load_element(DType::bf16, norms.data(), static_cast<std::int64_t>(n));
  }
  codes_.x_codebook = random_codebook(random), codes_.w_codebook = random_codebook(random);
  if (options_.sorted_codebooks) codes_.x_codebook = codes_.w_codebook = normal_codebook();
  codes_.activation_scale = random.uniform(0.5f, 2.0f), codes_.weight_scale = random.uniform(0.5f, 2.0f);
  const auto offset = static_cast<std::size_t>(options_.offset);
  QUERN_TRY(place(norms.data(), norms.size(), w_scales_device_));
  QUERN_TRY(place(codes_.x_codebook.data(), codes_.x_codebook.size(), x_codebook_device_, offset));
  return place(codes_.w_codebook.data(), codes_.w_codebook.size(), w_codebook_device_, offset);
}

// Boundaries near the quantiles of a normal value of a row whose squares sum up to K, each a little off, so that no two lie alike.
Status BenchData::make_rotation() {
  const Problem& p = problem_;
  Random random(options_.seed * 0x9E3779B97F4A7C15u + 4);
  for (std::int64_t c = 0; c < p.k; ++c) {
    codes_.permutation.push_back(static_cast<std::int32_t>(c));
    codes_.signs.push_back(random.below(2) == 0 ? std::int8_t{1} : std::int8_t{-1});
    std::swap(codes_.permutation.back(), codes_.permutation[static_cast<std::size_t>(random.below(static_cast<std::uint64_t>(c) + 1))]);
  }
  const float unit = 1 / std::sqrt(static_cast<float>(p.k));
  for (int i = 0; i < 15; ++i) codes_.boundaries.push_back(unit * (0.25f * static_cast<float>(i - 7) + random.uniform(-0.1f, 0.1f)));
  codes_.epsilon = 1e-10f;
  if (p.type == WeightType::i8) codes_.x_codebook = random_codebook(random);
  const auto offset = static_cast<std::size_t>(options_.offset);
  QUERN_TRY(place(codes_.permutation.data(), codes_.permutation.size() * sizeof(std::int32_t), permutation_device_));
  QUERN_TRY(place(codes_.signs.data(), codes_.signs.size(), signs_device_, offset));
  QUERN_TRY(place(codes_.boundaries.data(), codes_.boundaries.size() * sizeof(float), boundaries_device_));
  return place(codes_.x_codebook.data(), codes_.x_codebook.size(), x_codebook_device_, offset);
}

// Room for an output between two fences.
Status BenchData::place_output(std::size_t bytes, std::byte*& pointer, std::size_t offset) {
  QUERN_ASSIGN(auto buffer, device_.allocate(kFenceBytes + offset + bytes + kFenceBytes));
  pointer = static_cast<std::byte*>(buffer->data()) + kFenceBytes + offset;
  buffers_.push_back(std::move(buffer));
  return {};
}

Status BenchData::make_output() {
  const std::int64_t rows = y_rows() * (has_rows(problem_.op) ? matrices() : w_matrices());
  if (rows == 0 || y_columns() == 0) return {};
  y_bytes_ = static_cast<std::size_t>(((rows - 1) * ldy() + y_columns()) * y_element_bytes());
  QUERN_TRY(place_output(y_bytes_, y_device_, has_code_output(problem_.op) ? static_cast<std::size_t>(options_.offset) : 0));
  if (has_code_output(problem_.op)) QUERN_TRY(place_output(static_cast<std::size_t>(rows) * sizeof(float), y_scales_device_));
  return poison();
}

KernelArgs BenchData::args(std::int64_t copy, void* workspace) const {
  const Problem& p = problem_;
  KernelArgs a{};
  a.w = w_device_[static_cast<std::size_t>(copy)];
  a.x = x_device_;
  a.y = y_device_;
  a.bias = bias_device_;
  a.workspace = workspace;
  a.m = p.m;
  a.n = p.n;
  a.k = p.k;
  a.ldx = ldx();
  a.ldy = ldy();
  a.w_row_bytes = w_stored(p).columns + options_.w_gap;
  a.batch2 = p.batch2;
  a.batch3 = p.batch3;
  a.ratio2 = p.ratio2;
  a.ratio3 = p.ratio3;
  a.x_stride2 = x_stored().rows * ldx();
  a.x_stride3 = a.x_stride2 * p.batch2;
  if (p.x_broadcast) a.ldx = 0;
  a.y_stride2 = y_rows() * ldy();
  a.y_stride3 = a.y_stride2 * p.batch2;
  a.w_stride2 = w_batch_bytes();
  a.w_stride3 = a.w_stride2 * w_batches(p).dim2;
  a.w_scale = reinterpret_cast<const float*>(scale_device_);
  a.ids = reinterpret_cast<const int*>(ids_device_);
  a.ids_stride = ids_stride();
  a.used = p.used;
  a.experts = p.experts;
  a.x_scales = reinterpret_cast<const float*>(x_scales_device_);
  a.w_scales = p.op == Op::w4a4 ? nullptr : reinterpret_cast<const float*>(w_scales_device_);
  a.w_norms = p.op == Op::w4a4 ? w_scales_device_ : nullptr;
  a.scale = codes_.activation_scale * codes_.weight_scale;
  a.x_codebook = reinterpret_cast<const signed char*>(x_codebook_device_);
  a.w_codebook = reinterpret_cast<const signed char*>(w_codebook_device_);
  a.permutation = reinterpret_cast<const int*>(permutation_device_);
  a.signs = reinterpret_cast<const signed char*>(signs_device_);
  a.boundaries = reinterpret_cast<const float*>(boundaries_device_);
  a.epsilon = codes_.epsilon;
  a.y_scales = reinterpret_cast<float*>(y_scales_device_);
  return a;
}

std::byte BenchData::poison_at(std::size_t index) const { return expected_.empty() ? std::byte{kPoisonByte} : ~expected_[index]; }

Status BenchData::poison() {
  if (y_bytes_ == 0) return {};
  std::byte* before = y_device_ - kFenceBytes;
  QUERN_TRY(device_.fill(before, kFenceByte, kFenceBytes));
  QUERN_TRY(device_.fill(y_device_ + y_bytes_, kFenceByte, kFenceBytes));
  if (y_scales_device_ != nullptr) {
    const std::size_t bytes = static_cast<std::size_t>(y_rows()) * sizeof(float);
    QUERN_TRY(device_.fill(y_scales_device_ - kFenceBytes, kFenceByte, bytes + 2 * kFenceBytes));
    QUERN_TRY(device_.fill(y_scales_device_, kPoisonByte, bytes));
  }
  if (expected_.empty()) return device_.fill(y_device_, kPoisonByte, y_bytes_);
  std::vector<std::byte> complement(expected_.size());
  std::transform(expected_.begin(), expected_.end(), complement.begin(), [](std::byte b) { return ~b; });
  return device_.copy_to_device(y_device_, complement.data(), complement.size());
}

// Bytes and the fences around them.
Result<std::vector<std::byte>> BenchData::read_fenced(const std::byte* pointer, std::size_t bytes, const char* what,
                                                      std::string& fence_fault) const {
  std::vector<std::byte> content(bytes), fence(2 * kFenceBytes);
  QUERN_TRY(device_.copy_to_host(content.data(), pointer, bytes));
  QUERN_TRY(device_.copy_to_host(fence.data(), pointer - kFenceBytes, kFenceBytes));
  QUERN_TRY(device_.copy_to_host(fence.data() + kFenceBytes, pointer + bytes, kFenceBytes));
  const auto hit = std::find_if(fence.begin(), fence.end(), [](std::byte b) { return b != std::byte{kFenceByte}; });
  if (hit != fence.end()) {
    const auto at = static_cast<std::size_t>(hit - fence.begin());
    fence_fault = at < kFenceBytes ? "byte " + std::to_string(kFenceBytes - at) + " before the " + what + " was written"
                                   : "byte " + std::to_string(at - kFenceBytes) + " past the " + what + " was written";
  }
  return content;
}

Result<std::vector<std::byte>> BenchData::read_output(std::string& fence_fault) const {
  fence_fault.clear();
  if (y_bytes_ == 0) return std::vector<std::byte>();
  return read_fenced(y_device_, y_bytes_, "output", fence_fault);
}

Result<std::vector<float>> BenchData::read_scales(std::string& fence_fault) const {
  fence_fault.clear();
  std::vector<float> scales;
  if (y_scales_device_ == nullptr) return scales;
  scales.resize(static_cast<std::size_t>(y_rows()));
  QUERN_ASSIGN(const auto bytes, read_fenced(y_scales_device_, scales.size() * sizeof(float), "scales", fence_fault));
  std::memcpy(scales.data(), bytes.data(), bytes.size());
  return scales;
}

}  // namespace quern

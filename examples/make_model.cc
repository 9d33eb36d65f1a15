// Writes a small model in the GGUF format, about 2 MB, with matrices of five types: something real to tune where no model is at hand.
//   make_model FILE
// The weights are random, with valid scales, from a fixed seed: the same bytes on every machine.
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "quern/weight_type.h"

namespace {

using quern::WeightType;

constexpr std::uint64_t kAlignment = 32;

struct Tensor {
  std::string name;
  WeightType type = WeightType::f32;
  std::vector<std::uint64_t> dims;  // row length first
};

class Bytes {
 public:
  template <class T>
  void put(T value) {
    const auto* p = reinterpret_cast<const char*>(&value);
    data_.insert(data_.end(), p, p + sizeof value);
  }
  void put(const std::string& text) {
    put<std::uint64_t>(text.size());
    data_.insert(data_.end(), text.begin(), text.end());
  }
  void pad() { data_.resize((data_.size() + kAlignment - 1) / kAlignment * kAlignment); }
  std::size_t size() const { return data_.size(); }
  void write(std::size_t offset, std::uint16_t value) {
    data_[offset] = static_cast<char>(value & 0xFF);
    data_[offset + 1] = static_cast<char>(value >> 8);
  }
  void append_random(std::size_t count, std::mt19937& random) {
    for (std::size_t i = 0; i < count; ++i) data_.push_back(static_cast<char>(random() & 0xFF));
  }
  const std::vector<char>& data() const { return data_; }

 private:
  std::vector<char> data_;
};

// A positive fp16 between 2^-9 and 2^-5, or of either sign.
std::uint16_t random_half(std::mt19937& random, bool with_sign) {
  const std::uint32_t exponent = 6 + random() % 4;
  const std::uint32_t sign = with_sign ? random() % 2 : 0;
  return static_cast<std::uint16_t>(sign << 15 | exponent << 10 | random() % 1024);
}

// Where the fp16 scales lie within a block.
std::vector<std::size_t> scale_offsets(WeightType type) {
  switch (type) {
    case WeightType::q4_0:
    case WeightType::q8_0:
      return {0};
    case WeightType::q4_k:
      return {0, 2};
    case WeightType::q6_k:
      return {208};
    default:
      return {};
  }
}

void append_weights(const Tensor& tensor, Bytes& out, std::mt19937& random) {
  std::uint64_t elements = 1;
  for (auto d : tensor.dims) elements *= d;
  const auto& info = quern::info(tensor.type);
  const std::uint64_t blocks = elements / static_cast<std::uint64_t>(info.block_elements);
  for (std::uint64_t b = 0; b < blocks; ++b) {
    if (tensor.type == WeightType::f32) {
      out.put<float>(1.0f);
    } else if (tensor.type == WeightType::f16) {
      out.put<std::uint16_t>(random_half(random, true));
    } else {
      const std::size_t start = out.size();
      out.append_random(static_cast<std::size_t>(info.block_bytes), random);
      for (auto offset : scale_offsets(tensor.type)) out.write(start + offset, random_half(random, false));
    }
  }
  out.pad();
}

std::vector<Tensor> tensors() {
  constexpr std::uint64_t kHidden = 256, kInner = 768, kVocabulary = 4096;
  std::vector<Tensor> list{{"token_embd.weight", WeightType::q8_0, {kHidden, kVocabulary}}};
  for (int layer = 0; layer < 2; ++layer) {
    const std::string prefix = "blk." + std::to_string(layer) + ".";
    list.push_back({prefix + "attn_norm.weight", WeightType::f32, {kHidden}});
    list.push_back({prefix + "attn_q.weight", WeightType::q4_0, {kHidden, kHidden}});
    list.push_back({prefix + "attn_k.weight", WeightType::q4_0, {kHidden, kHidden}});
    list.push_back({prefix + "attn_v.weight", WeightType::f16, {kHidden, kHidden}});
    list.push_back({prefix + "attn_output.weight", WeightType::q4_0, {kHidden, kHidden}});
    list.push_back({prefix + "ffn_norm.weight", WeightType::f32, {kHidden}});
    list.push_back({prefix + "ffn_up.weight", WeightType::q4_k, {kHidden, kInner}});
    list.push_back({prefix + "ffn_down.weight", WeightType::q6_k, {kInner, kHidden}});
  }
  list.push_back({"output_norm.weight", WeightType::f32, {kHidden}});
  return list;
}

std::uint64_t padded_bytes(const Tensor& tensor) {
  std::uint64_t rows = 1;
  for (std::size_t i = 1; i < tensor.dims.size(); ++i) rows *= tensor.dims[i];
  const auto bytes = rows * static_cast<std::uint64_t>(quern::row_bytes(tensor.type, static_cast<std::int64_t>(tensor.dims[0])));
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

Bytes make_model() {
  constexpr std::uint32_t kVersion = 3, kStringValue = 8;
  const auto list = tensors();
  Bytes out;
  out.put<std::uint32_t>(0x46554747);  // "GGUF"
  out.put<std::uint32_t>(kVersion);
  out.put<std::uint64_t>(list.size());
  out.put<std::uint64_t>(2);
  for (const auto& [key, value] : {std::pair{"general.architecture", "llama"}, std::pair{"general.name", "quern demo"}}) {
    out.put(std::string(key));
    out.put<std::uint32_t>(kStringValue);
    out.put(std::string(value));
  }
  std::uint64_t offset = 0;
  for (const auto& tensor : list) {
    out.put(tensor.name);
    out.put<std::uint32_t>(static_cast<std::uint32_t>(tensor.dims.size()));
    for (auto d : tensor.dims) out.put<std::uint64_t>(d);
    out.put<std::uint32_t>(static_cast<std::uint32_t>(tensor.type));
    out.put<std::uint64_t>(offset);
    offset += padded_bytes(tensor);
  }
  out.pad();
  std::mt19937 random(20260711);
  for (const auto& tensor : list) append_weights(tensor, out, random);
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_model FILE\n");
    return 2;
  }
  const Bytes model = make_model();
  std::ofstream file(argv[1], std::ios::binary);
  file.write(model.data().data(), static_cast<std::streamsize>(model.size()));
  if (!file.flush()) {
    std::fprintf(stderr, "make_model: cannot write %s\n", argv[1]);
    return 1;
  }
  std::printf("%s: %zu bytes\n", argv[1], model.size());
  return 0;
}

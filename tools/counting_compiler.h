// A compiler that counts what it was asked to compile: a run served from the store shows 0.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/compiler.h"

namespace quern::tools {

class CountingCompiler final : public Compiler {
 public:
  explicit CountingCompiler(std::unique_ptr<Compiler> inner) : inner_(std::move(inner)) {}
  std::string identity() const override { return inner_->identity(); }
  std::string location() const override { return inner_->location(); }
  std::vector<int> architectures() const override { return inner_->architectures(); }
  Status supports(const Target& target) const override { return inner_->supports(target); }
  Result<Binary> compile(const KernelSource& source, const Target& target) const override {
    count_.fetch_add(1, std::memory_order_relaxed);
    return inner_->compile(source, target);
  }
  std::uint64_t count() const { return count_.load(std::memory_order_relaxed); }

 private:
  std::unique_ptr<Compiler> inner_;
  mutable std::atomic<std::uint64_t> count_{0};
};

}  // namespace quern::tools

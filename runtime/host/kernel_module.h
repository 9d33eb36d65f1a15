// A loaded object: its sections in one mapping, resolved against the plugin's scheduling points and the sanitizers of the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "templates/args.h"

namespace quern::host {

using KernelEntry = void (*)(KernelArgs);

struct KernelFunction {
  std::string name;
  KernelEntry entry = nullptr;
  std::uint32_t max_threads = 0;  // launch bound of the kernel
};

class KernelModule {
 public:
  // Null on failure, with the reason in `error`.
  static std::unique_ptr<KernelModule> load(const void* object, std::size_t size, std::string& error);
  ~KernelModule();
  // Null when there is no such kernel. Thread-safe; the result lives as long as the module.
  const KernelFunction* function(const std::string& name);
  // The symbol of the object that lies where the function starts, found by its address and not by the name that was asked for; empty when
  // there is none. Thread-safe.
  std::string symbol_of(const KernelFunction& function);

 private:
  struct State;
  explicit KernelModule(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace quern::host

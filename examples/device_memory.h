// Memory of a context's device for the examples: the heap on "host", the CUDA driver's on "cuda:N". The driver is opened at run time, as
// quern itself does it, so that an example needs no CUDA to be built and runs where only the driver is installed.
#pragma once

#include <cstddef>
#include <memory>

#include "quern/context.h"

namespace quern::examples {

class DeviceMemory {
 public:
  // Memory of the GPU's primary context, which quern uses too. Errors: kEnvironment naming the library or symbol that is missing.
  static Result<std::unique_ptr<DeviceMemory>> open(const Context& context, const ContextOptions& options);

  virtual ~DeviceMemory() = default;
  virtual Result<void*> allocate(std::size_t bytes) = 0;  // at a multiple of 256 bytes
  virtual void release(void* data) = 0;
  // Synchronous; ordered behind the launches on the null stream.
  virtual Status copy_in(void* device, const void* host, std::size_t bytes) = 0;
  virtual Status copy_out(void* host, const void* device, std::size_t bytes) = 0;
};

// Owns `bytes` of it.
class DeviceBuffer {
 public:
  static Result<DeviceBuffer> make(DeviceMemory& memory, std::size_t bytes) {
    QUERN_ASSIGN(void* data, memory.allocate(bytes));
    return DeviceBuffer(memory, data, bytes);
  }
  void* data() const { return data_.get(); }
  std::size_t bytes() const { return bytes_; }

 private:
  struct Release {
    DeviceMemory* memory;
    void operator()(void* data) const { memory->release(data); }
  };
  DeviceBuffer(DeviceMemory& memory, void* data, std::size_t bytes) : data_(data, Release{&memory}), bytes_(bytes) {}

  std::unique_ptr<void, Release> data_;
  std::size_t bytes_;
};

}  // namespace quern::examples

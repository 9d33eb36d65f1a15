// One process of the two-process test: takes one kernel from the store in argv[1], compiling it with NVRTC when it is not there, and prints
// how many kernels it compiled. Exit 3: NVRTC is not installed.
#include <cstdio>

#include "runtime/artifact.h"

int main(int argc, char** argv) {
  using namespace quern;
  if (argc != 2) return 2;
  auto compiler = open_nvrtc({});
  if (!compiler) return std::puts(compiler.error().message.c_str()), 3;
  cache::StoreOptions options;
  options.directory = argv[1];
  const auto store = cache::Store::open(options);
  KernelSource source;
  source.name = "probe";
  source.text =
      "#include \"a.cuh\"\nnamespace { __device__ float table[4]; } extern \"C\" __global__ void k(float* y) { y[0] = table[threadIdx.x & "
      "3] * kScale; }";
  source.headers = {{"a.cuh", "inline constexpr float kScale = 2;"}};
  bool compiled = false;
  const auto binary = get_or_compile(*store, **compiler, source, {Target::Kind::cuda, 90, true}, &compiled);
  if (!binary) return std::puts(binary.error().message.c_str()), 1;
  std::printf("compiled %d, %zu bytes, %d registers\n", compiled ? 1 : 0, binary->bytes.size(), binary->usage.registers);
}

// The warpgroup multiply's host body: each warp's 16 rows at once, computed when issued.
#pragma once

#include "ptx/host.cuh"

namespace quern::ptx {

QUERN_FN void wgmma_fence() {}
QUERN_FN void wgmma_commit() {}
template <int kFrags>
QUERN_FN void wgmma_wait(f32 (&)[kFrags][4]) {}
QUERN_FN void fence_proxy_async() {}

struct WgmmaDeposit {
  u32 a[4];
  f32 (*c)[4];
  const u8* b;
  u32 chunk_bytes;
};
// The 128-byte swizzle: the 16-byte piece of an address is XOR-ed with its 128-byte row, both modulo eight.
QUERN_FN const u8* swizzled(const u8* p) {
  u64 address = reinterpret_cast<u64>(p);
  return reinterpret_cast<const u8*>(address ^ ((address >> 7 & 7) << 4));
}
template <class T, int kFrags, bool kTransposed>
void combine_wgmma(void* deposits) {
  WgmmaDeposit* lanes = static_cast<WgmmaDeposit*>(deposits);
  f32 a[16][16];
  for (int l = 0; l < 32; ++l)
    for (int i = 0; i < 4; ++i)
      for (int half = 0; half < 2; ++half)
        a[l / 4 + 8 * (i & 1)][2 * (l % 4) + 8 * (i >> 1) + half] = to_f32(T{static_cast<u16>(lanes[l].a[i] >> (16 * half))});
  for (int token = 0; token < 8 * kFrags; ++token) {
    f32 b[16];
    for (int k = 0; k < 16; ++k) {
      const u8* at = lanes[0].b + (kTransposed ? token / 64 * lanes[0].chunk_bytes + k * 128 + token % 64 * 2 : token * 128 + 2 * k);
      b[k] = to_f32(*reinterpret_cast<const T*>(swizzled(at)));
    }
    for (int row = 0; row < 16; ++row) {
      f32& c = lanes[row % 8 * 4 + token % 8 / 2].c[token / 8][2 * (row / 8) + token % 2];
      for (int k = 0; k < 16; ++k) c += a[row][k] * b[k];
    }
  }
}

template <bool kBf16, int kFrags, bool kTransposed = false>
struct Wgmma {
  static QUERN_FN void multiply(f32 (&c)[kFrags][4], const u32 (&a)[4], const void* b, u32 chunk_bytes = 16) {
    WgmmaDeposit mine{{a[0], a[1], a[2], a[3]}, c, static_cast<const u8*>(b), chunk_bytes};
    HostLane* self = quern_host_lane();
    if constexpr (kBf16)
      quern_host_exchange(self, Collective::mma_bf16, &mine, sizeof mine, combine_wgmma<bf16, kFrags, kTransposed>);
    else
      quern_host_exchange(self, Collective::mma_f16, &mine, sizeof mine, combine_wgmma<f16, kFrags, kTransposed>);
  }
};

}  // namespace quern::ptx

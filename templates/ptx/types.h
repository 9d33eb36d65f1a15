// Fixed-size scalars and the vectors that one load or store moves. No header needed on any target.
#pragma once

namespace quern {

using u8 = unsigned char;
using i8 = signed char;
using u16 = unsigned short;
using i16 = short;
using u32 = unsigned int;
using i32 = int;
using u64 = unsigned long long;
using i64 = long long;
using f32 = float;

struct alignas(8) u32x2 {
  u32 x, y;
};
struct alignas(16) u32x4 {
  u32 x, y, z, w;
};

// Bit patterns of 16-bit floats. Distinct types, so that overloads tell them apart.
struct f16 {
  u16 bits;
};
struct bf16 {
  u16 bits;
};

}  // namespace quern

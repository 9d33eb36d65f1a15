// Resource usage of a compiled CUDA module: from the assembler's verbose log, and from the cubin itself.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "quern/kernel.h"

namespace quern::cuda {

// Reads what `ptxas -v` printed: the largest figure over all entries. Empty when the log holds no register count.
std::optional<ResourceUsage> usage_from_log(std::string_view log);

// Reads registers, stack frame and static shared memory from the ELF sections of a cubin: `.nv.info` holds records of
// {u8 format, u8 attribute, u16 size, payload}, where attribute 0x2f is (symbol, registers) and 0x11 is (symbol, frame bytes), and each
// `.nv.shared.<entry>` section is as large as the entry's static shared memory. Spills leave no record of their own, so spill_bytes stays
// 0. Empty when the bytes are no 64-bit ELF file or hold no register record. Never reads outside `cubin`.
std::optional<ResourceUsage> usage_from_cubin(std::span<const std::byte> cubin);

}  // namespace quern::cuda

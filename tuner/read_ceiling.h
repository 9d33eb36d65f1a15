// The read ceiling: the fastest plain read of so many bytes on this device, in this run. No kernel that reads them all can be faster, so a
// candidate near it ends the search.
#pragma once

#include <cstdint>

#include "cache/store.h"
#include "runtime/compiler.h"
#include "runtime/device.h"

namespace quern {

// Sizes are rounded down to whole 4 KiB (at least one), so that matrices of nearly equal size share a measurement.
std::int64_t rounded_read_bytes(std::int64_t bytes);

// How reads follow one another: as ops do, each launched while the one before it ends, or each when the one before it has ended.
enum class ReadLaunches { overlapping, apart };

// Microseconds per read: the best of several launch shapes, over copies that together exceed 3x the L2. `bytes` as rounded above. Requires
// a GPU.
Result<double> measure_read_ceiling(Device& device, const Compiler& compiler, cache::Store& store, std::int64_t bytes,
                                    ReadLaunches launches = ReadLaunches::overlapping);

// The kernels, one step per (threads, unroll); the grids are chosen per device and size.
KernelSource read_ceiling_source();

}  // namespace quern

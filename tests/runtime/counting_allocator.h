// Linking counting_allocator.cc replaces this program's operator new with one that counts.
#pragma once

#include <cstdint>

namespace quern::test {

std::uint64_t allocations();  // so far, over all threads

}  // namespace quern::test

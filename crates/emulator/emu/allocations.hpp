// The memory of all devices, and the host's memory that they may use. Devices read each other's memory, so this is one
// table with a lock of its own.
#pragma once
#include <cstddef>
#include <cstdint>

namespace emu {
void add_allocation(uint64_t address, size_t bytes);
void remove_allocation(uint64_t address);
// Finds the allocation that contains an address.
bool allocation_of(uint64_t address, uint64_t& begin, uint64_t& end);
}  // namespace emu

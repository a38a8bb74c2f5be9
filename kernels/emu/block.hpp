// What the driver asks of the scheduler of blocks.
#pragma once
#include "cuda.hpp"
#include <string>

namespace emu {
// 0: threads and blocks in order; else a random order that this seed repeats.
extern uint64_t schedule_seed;
// Runs a whole grid; returns what went wrong (a stray address, a barrier that cannot be met), or nothing.
std::string run(const Kernel&, dim3 grid, dim3 block, size_t shared, void** arguments);
}  // namespace emu

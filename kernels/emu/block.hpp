// One block on one host thread, and a whole grid: what the driver and the scheduler of grids ask for.
#pragma once
#include "cuda.hpp"
#include <string>
#include <vector>
#undef gridDim
#undef blockDim

namespace emu {
// A launch as it was given. Seed 0: threads and blocks in order; else random orders that the seed repeats.
struct Launch {
  const Kernel& kernel;
  dim3 grid, size;
  size_t shared;
  void** arguments;
  uint64_t seed;
};

// xorshift64*, each stream of numbers from a seed of its own.
struct Random {
  uint64_t state;
  explicit Random(uint64_t seed = 0, uint64_t salt = 0)
      : state((seed * 0x9E3779B97F4A7C15ull ^ salt * 0xD1B54A32D192ED03ull) | 1) {
    draw(), draw();
  }
  uint32_t draw() {
    state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
    return uint32_t(state * 0x2545F4914F6CDD1Dull >> 32);
  }
  uint32_t below(size_t n) { return uint32_t(uint64_t(draw()) * n >> 32); }
  template <class T> void shuffle(std::vector<T>& v) {
    for (size_t i = v.size(); i > 1; i--) std::swap(v[i - 1], v[below(i)]);
  }
};

// What a host thread needs to run blocks; nobody else touches it meanwhile.
class Worker;
Worker* new_worker();
// Makes the worker ready for the blocks of a launch, which outlives them.
void prepare(Worker&, const Launch&);
// Runs block `b` of that; says what went wrong, or nothing. The order of its threads depends on seed and `b` alone.
std::string run_block(Worker&, uint64_t b);

// Runs a whole grid (`grid.cpp`); says what went wrong (a stray address, a barrier that cannot be met), or nothing.
std::string run(const Launch&);
// How many blocks run at a time under a random schedule.
unsigned blocks_at_once();
}  // namespace emu

// The interface of the emulator for the driver and the grid scheduler: the blocks of a cluster on one host thread, and
// a whole grid. In a launch without clusters, every block is a cluster of its own.
#pragma once
#include "cuda.hpp"
#include <string>
#include <vector>
#undef gridDim
#undef blockDim

namespace emu {
// The arguments of a launch. Seed 0: threads and blocks run in order; other seeds: reproducible random orders.
struct Launch {
  const Kernel& kernel;
  dim3 grid, size, cluster;  // blocks; threads of a block; blocks of a cluster
  size_t shared;
  void** arguments;
  uint64_t seed;
  MatrixUnits matrix;
};

// The index of a block, of the number of its cluster and its rank in it.
inline uint3 block_at(dim3 grid, dim3 cluster, uint64_t number, unsigned rank) {
  unsigned nx = grid.x / cluster.x, ny = grid.y / cluster.y;
  return {unsigned(number % nx) * cluster.x + rank % cluster.x,
          unsigned(number / nx % ny) * cluster.y + rank / cluster.x % cluster.y,
          unsigned(number / nx / ny) * cluster.z + rank / cluster.x / cluster.y};
}

// xorshift64*; `seed` and `salt` select the sequence.
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

// The state that a host thread needs to run blocks; used by one thread at a time.
class Worker;
Worker* new_worker();
// Prepares the worker for the clusters of a launch, which must outlive them.
void prepare(Worker&, const Launch&);
// Runs the blocks of a cluster of the launch; returns an error message, or an empty string. The order of the threads
// depends on the seed and the number of the cluster alone.
std::string run_cluster(Worker&, uint64_t number);

// Runs a whole grid (`grid.cpp`); returns an error message (a stray address, a barrier that cannot be met), or an empty
// string.
std::string run(const Launch&);
// The number of blocks that run at a time under a random schedule.
unsigned blocks_at_once();
}  // namespace emu

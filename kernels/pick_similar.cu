// pick_similar: picks the nodes that had no event for long, and for each of them similar nodes that had
//
// shapes    node [n], similar [n, s], event [v, k] u32, time [v, k] i64, now [b] i64; row [<= n], picks [<= n, s] u32
// grid      one block of 1024 goes over the nodes, a thread each, with a prefix sum over its threads
// memory    reads 4 n + 12 n k bytes, scattered, and s nodes for each quiet one; writes the picked ones
// limiter   latency
// backward  -
// source    MSPipe, section 3.3
#include "common.cuh"

constexpr int64_t NEVER = INT64_MIN;

constexpr uint32_t AT_ONCE = 4;  // nodes of a thread that are looked up at once

// The times of the last events of AT_ONCE nodes; NEVER for NONE. Loads do not depend on what others have loaded.
__device__ __forceinline__ void last_events(const uint32_t* event, const int64_t* time, const uint32_t (&v)[AT_ONCE], uint32_t k,
                                            int64_t (&last)[AT_ONCE]) {
#pragma unroll
  for (uint32_t q = 0; q < AT_ONCE; q++) last[q] = NEVER;
  for (uint32_t j = 0; j < k; j++) {
    uint32_t of[AT_ONCE];
    int64_t at[AT_ONCE];
#pragma unroll
    for (uint32_t q = 0; q < AT_ONCE; q++) {
      uint64_t place = uint64_t(v[q]) * k + j;
      of[q] = v[q] != NONE ? event[place] : NONE, at[q] = v[q] != NONE ? time[place] : 0;
    }
#pragma unroll
    for (uint32_t q = 0; q < AT_ONCE; q++) last[q] = of[q] != NONE ? max(last[q], at[q]) : last[q];
  }
}

// Ticks between two times, which may wrap around.
__device__ __forceinline__ int64_t since(int64_t now, int64_t then) { return int64_t(uint64_t(now) - uint64_t(then)); }

extern "C" __global__ void __launch_bounds__(1024, 1)
pick_similar(const uint32_t* node, const uint32_t* similar, const uint32_t* event, const int64_t* time, const int64_t* now,
             uint32_t* count, uint32_t* row, uint32_t* picks, Rows rows, Rows batch, uint32_t s, uint32_t k, uint32_t nodes,
             int64_t gap, Status status) {
  after_previous_kernel();
  __shared__ uint32_t sums[WARP];
  uint32_t n = rows.live(), done = 0;
  bool begun = batch.live() > 0;
  for (uint32_t base = 0; base < n; base += blockDim.x) {
    uint32_t i = base + threadIdx.x;
    uint32_t v = i < n ? status.row_of(i, node[i], nodes) : NONE;
    uint32_t alone[AT_ONCE] = {v, NONE, NONE, NONE};
    int64_t last[AT_ONCE], current = begun ? *now : 0;
    last_events(event, time, alone, k, last);
    int64_t own = last[0];
    bool quiet = begun && own != NEVER && since(current, own) > gap, picked = false;
    // Calls `use(j, other)` for all similar nodes; NONE for those that had no event lately.
    auto each_similar = [&](auto use) {
      for (uint32_t first = 0; first < s; first += AT_ONCE) {
        uint32_t others[AT_ONCE];
#pragma unroll
        for (uint32_t q = 0; q < AT_ONCE; q++) {
          uint32_t other = first + q < s ? similar[uint64_t(i) * s + first + q] : NONE;
          others[q] = other < nodes ? other : NONE;
        }
        last_events(event, time, others, k, last);
#pragma unroll
        for (uint32_t q = 0; q < AT_ONCE; q++) {
          bool active = last[q] != NEVER && last[q] > own && since(current, last[q]) < gap;
          if (first + q < s) use(first + q, active ? others[q] : NONE);
        }
      }
    };
    if (quiet) each_similar([&](uint32_t, uint32_t other) { picked |= other != NONE; });
    uint32_t all, to = done + block_scan(picked, sums, all);
    if (picked) {
      row[to] = i;
      each_similar([&](uint32_t j, uint32_t other) { picks[uint64_t(to) * s + j] = other; });
    }
    done += all;
  }
  if (threadIdx.x == 0) *count = done;
}

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

// The time of a node's last event.
__device__ __forceinline__ int64_t last_event(const uint32_t* event, const int64_t* time, uint32_t v, uint32_t k) {
  int64_t last = NEVER;
  for (uint32_t j = 0; j < k; j++) {
    uint64_t at = uint64_t(v) * k + j;
    if (event[at] != NONE) last = max(last, time[at]);
  }
  return last;
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
    int64_t own = v != NONE ? last_event(event, time, v, k) : NEVER;
    bool quiet = begun && own != NEVER && since(*now, own) > gap, picked = false;
    auto active = [&](uint32_t j) {
      uint32_t other = similar[uint64_t(i) * s + j];
      int64_t later = other < nodes ? last_event(event, time, other, k) : NEVER;
      return later != NEVER && later > own && since(*now, later) < gap ? other : NONE;
    };
#pragma unroll 4  // no branch between them, so that several are looked up at once
    for (uint32_t j = 0; j < (quiet ? s : 0); j++) picked |= active(j) != NONE;
    uint32_t all, to = done + block_scan(picked, sums, all);
    if (picked) row[to] = i;
#pragma unroll 4
    for (uint32_t j = 0; j < (picked ? s : 0); j++) picks[uint64_t(to) * s + j] = active(j);
    done += all;
  }
  if (threadIdx.x == 0) *count = done;
}

// repeated_roots: which ids of a list are also in another one, and where
//
// shapes    stamp [v] u32, all zero between runs; node [n], other [m], step [1] u32; count [1], row, at, rest [<= n],
//           counts [ranks] u32
// grid      one block: it stamps the other list, goes over the first one with a prefix sum, and clears the stamps
// memory    reads 2 (n + m) words, writes up to 3 n; stamps scattered
// limiter   latency
// backward  -
// source    the direct transfer of memory of PipeTGL, section 4.2
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(1024, 1)
repeated_roots(uint32_t* stamp, const uint32_t* node, const uint32_t* other, const uint32_t* step, uint32_t* count,
               uint32_t* row, uint32_t* at, uint32_t* rest, uint32_t* counts, Rows nodes, Rows others, uint32_t v,
               uint32_t ahead, uint32_t ranks, Status s) {
  after_previous_kernel();
  __shared__ uint32_t sums[WARP];
  uint32_t n = nodes.live(), m = others.live(), done = 0;
  for (uint32_t i = threadIdx.x; i < m; i += blockDim.x) {
    uint32_t of = s.row_of(i, other[i], v);
    if (of != NONE) atomicMax(&stamp[of], i + 1);
  }
  __syncthreads();
  for (uint32_t base = 0; base < n; base += blockDim.x) {
    uint32_t i = base + threadIdx.x, all;
    uint32_t of = i < n ? s.row_of(i, node[i], v) : NONE;
    uint32_t found = of != NONE ? stamp[of] : 0;
    uint32_t to = done + block_scan(found > 0, sums, all);
    if (found) row[to] = i, at[to] = found - 1;
    if (i < n) rest[i] = found ? NONE : node[i];
    done += all;
  }
  __syncthreads();  // all stamps have been read
  for (uint32_t i = threadIdx.x; i < m; i += blockDim.x) {
    if (other[i] < v) stamp[other[i]] = 0;
  }
  uint32_t rank = uint32_t((uint64_t(*step) + ahead) % ranks);
  for (uint32_t i = threadIdx.x; i < ranks; i += blockDim.x) counts[i] = i == rank ? done : 0;
  if (threadIdx.x == 0) *count = done;
}

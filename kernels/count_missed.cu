// count_missed: counts the writes of node memory that the rows of a step have missed
//
// shapes    node, seen [n], written [m], limit [1], version [v], missed [bins] u32
// grid      one block of 1024, because all versions are read before the first one is incremented
// memory    reads 12 n + 8 m bytes, 4 n + 4 m of them scattered; writes 4 m, scattered
// limiter   latency
// backward  -
// source    the staleness of MSPipe, section 3.1
#include "common.cuh"

constexpr uint32_t MOST_BINS = 32;

extern "C" __global__ void __launch_bounds__(1024, 1)
count_missed(const uint32_t* node, const uint32_t* seen, const uint32_t* written, const uint32_t* limit,
             uint32_t* version, uint32_t* missed, Rows read, Rows listed, uint32_t bins, uint32_t nodes, Status s) {
  after_previous_kernel();
  __shared__ uint32_t counts[MOST_BINS];
  if (threadIdx.x < bins) counts[threadIdx.x] = 0;
  __syncthreads();  // the counts are zeros
  for (uint32_t i = threadIdx.x; i < read.live(); i += blockDim.x) {
    uint32_t v = s.row_of(i, node[i], nodes);
    if (v != NONE) atomicAdd(&counts[min(version[v] - seen[i], bins - 1)], 1u);
  }
  __syncthreads();  // all rows have been counted
  if (threadIdx.x < bins) missed[threadIdx.x] += counts[threadIdx.x];
  uint32_t m = limit ? min(*limit, listed.live()) : listed.live();
  for (uint32_t i = threadIdx.x; i < m; i += blockDim.x) {
    uint32_t v = s.row_of(i, written[i], nodes);
    if (v != NONE) version[v] += 1;
  }
}

// group_roots: groups the roots that have neighbours by query: order[starts[q]..starts[q + 1]] are the roots of query q
//
// shapes    query, count [n] u32; starts [q + 1], order, own [m], position [n] u32
// grid      one block counts, computes the prefix sum and groups; then one thread per root finds its rank in its group
// memory    reads 6 n words, writes 6 n and 2 q; each root also reads the whole of its group, from L1
// limiter   latency
// backward  -
// source    a counting sort; the order of the atomics does not matter, since ranks follow from the roots' indices
#include "common.cuh"

constexpr unsigned THREADS = 1024;
constexpr unsigned EACH = 4;  // items of a thread in flight at once

// Without `count` every root that has a query is grouped. `position` receives the root's ticket in its group, `grouped`
// the roots of each group by ticket.
extern "C" __global__ void __launch_bounds__(1024, 1)
group_roots(const uint32_t* __restrict__ query, const uint32_t* __restrict__ count, uint32_t* starts, uint32_t* position,
            uint32_t* grouped, uint32_t* m, Rows roots, Rows queries, Status s) {
  after_previous_kernel();
  __shared__ uint32_t sums[WARP];
  uint32_t n = roots.live(), q = queries.live(), groups = queries.capacity + 1;
  for (uint32_t g = threadIdx.x; g < groups; g += THREADS) starts[g] = 0;
  __syncthreads();  // counts are zero
  for (uint32_t base = threadIdx.x; base < n; base += THREADS * EACH) {
    uint32_t of[EACH];
#pragma unroll
    for (unsigned j = 0; j < EACH; j++) {
      uint32_t i = base + j * THREADS;
      of[j] = i < n && (!count || count[i] > 0) ? query[i] : NONE;
    }
#pragma unroll
    for (unsigned j = 0; j < EACH; j++) {
      uint32_t i = base + j * THREADS, g = s.row_of(i, of[j], q);
      if (i < n) position[i] = g == NONE ? NONE : atomicAdd(&starts[g], 1u);
    }
  }
  __syncthreads();  // counts are complete
  uint32_t before = 0;
  for (uint32_t base = threadIdx.x * EACH; base - threadIdx.x * EACH < groups; base += THREADS * EACH) {
    uint32_t own[EACH], sum = 0, all;
#pragma unroll
    for (unsigned j = 0; j < EACH; j++) own[j] = base + j < groups ? starts[base + j] : 0, sum += own[j];
    uint32_t at = before + block_scan(sum, sums, all);
#pragma unroll
    for (unsigned j = 0; j < EACH; j++) {
      if (base + j < groups) starts[base + j] = at;
      at += own[j];
    }
    before += all;
  }
  if (threadIdx.x == 0) *m = before;
  __syncthreads();  // starts are complete
#pragma unroll 4
  for (uint32_t i = threadIdx.x; i < n; i += THREADS) {
    if (position[i] != NONE) grouped[starts[query[i]] + position[i]] = i;
  }
}

// The rank of a root in its group: the number of roots of the group with a smaller index. `own`, the query of each root
// in `order`, may be null.
extern "C" __global__ void __launch_bounds__(256, FULL)
group_roots_order(const uint32_t* __restrict__ query, const uint32_t* __restrict__ starts, const uint32_t* __restrict__ grouped,
                  uint32_t* order, uint32_t* position, uint32_t* own, Rows roots) {
  after_previous_kernel();
  uint32_t n = roots.live();
  for (uint32_t i = uint32_t(thread_item()); i < n; i += uint32_t(thread_items())) {
    if (position[i] == NONE) continue;
    uint32_t q = query[i], start = starts[q], end = starts[q + 1], at = start;
    for (uint32_t g = start; g < end; g++) at += grouped[g] < i;
    order[at] = i, position[i] = at;
    if (own) own[at] = q;
  }
}

// group_roots: groups the roots that have neighbours by query: order[starts[q]..starts[q + 1]] are the roots of query q
//
// shapes    query, count [n] u32; starts [q + 1], order, own [m], position [n] u32
// grid      one block of 1024 for each range of queries; every block reads the queries of all roots
// memory    reads 2 n words once per block, from L2; writes 3 n and q
// limiter   latency
// backward  -
// source    a counting sort; the order of the atomics does not matter: they only count
#include "grouping.cuh"

// Without `count` every root that has a query is grouped. `position` receives the root's place in `order`, NONE without
// one. `own`, the query of each root in `order`, may be null.
extern "C" __global__ void __launch_bounds__(1024, 1)
group_roots(const uint32_t* __restrict__ query, const uint32_t* __restrict__ count, uint32_t* starts, uint32_t* order,
            uint32_t* position, uint32_t* own, uint32_t* m, Rows roots, Rows queries, Status s) {
  after_previous_kernel();
  __shared__ Grouping shared;
  uint32_t n = roots.live(), q = queries.live();
  group(n, q, queries.capacity, starts, m, shared, [=](uint32_t first, uint32_t (&key)[GROUPING_EACH]) {
    uint32_t used[GROUPING_EACH];
#pragma unroll
    for (unsigned e = 0; e < GROUPING_EACH; e++) {
      uint32_t i = first + e * WARP;
      used[e] = i >= n ? 0 : count ? count[i] : 1, key[e] = i < n ? query[i] : NONE;
    }
#pragma unroll
    for (unsigned e = 0; e < GROUPING_EACH; e++) {
      uint32_t i = first + e * WARP;
      if (used[e] == 0) key[e] = NONE;
      if (blockIdx.x > 0 || i >= n) continue;
      if (s.row_of(i, key[e], q) == NONE) position[i] = NONE;
    }
  }, [=](uint32_t at, uint32_t root, uint32_t of) {
    order[at] = root, position[root] = at;
    if (own) own[at] = of;
  });
}

// route: groups a list of nodes by the rank that owns them, each group in the order of the list
//
// shapes    node [n] u32; rank_of, row_of [v] u32; order, row [<= n], counts [ranks], position [n] u32
// grid      one block goes over the list once for each rank, with a prefix sum over its threads
// memory    reads n words and a map entry for each (if there are maps), once for each rank; writes 3 n words; maps
//           scattered
// limiter   latency
// backward  -
// source    the two maps of Sven, section 4.1
#include "common.cuh"

// `limit` may be null: all nodes of the list count. The maps may be null: ranks own the nodes in turn.
extern "C" __global__ void __launch_bounds__(1024, 1)
route(const uint32_t* node, const uint32_t* rank_of, const uint32_t* row_of, const uint32_t* limit, uint32_t* count,
      uint32_t* order, uint32_t* row, uint32_t* counts, uint32_t* position, Rows nodes, uint32_t v, uint32_t ranks, Status s) {
  after_previous_kernel();
  __shared__ uint32_t sums[WARP];
  uint32_t n = nodes.live(), listed = limit ? min(*limit, n) : n, before = 0;
  for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) position[i] = NONE;
  __syncthreads();  // no row has a position
  for (uint32_t rank = 0; rank < ranks; rank++) {
    uint32_t first = before;
    for (uint32_t base = 0; base < listed; base += blockDim.x) {
      uint32_t i = base + threadIdx.x, of = i < listed ? node[i] : NONE, all;
      if (rank == 0) of = s.row_of(i, of, v);
      bool own = of < v && (rank_of ? rank_of[of] : of % ranks) == rank;
      uint32_t at = before + block_scan(own, sums, all);
      if (own) order[at] = i, row[at] = row_of ? row_of[of] : of / ranks, position[i] = at;
      before += all;
    }
    if (threadIdx.x == 0) counts[rank] = before - first;
  }
  if (threadIdx.x == 0) *count = before;
}

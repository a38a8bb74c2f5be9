// count_common: counts common neighbours, for each node of a list the other nodes that come most often
//
// shapes    node [n], starts and root_starts [n + 1], slots [m], roots [2 b], root [2 b], near [2 b, k] u32; similar and
//           common [v, s] u32
// grid      one thread per node, which goes through the node's roots and neighbours in order; grid-stride loop
// memory    reads 8 n + 4 m + 8 b words and 2 s words for each of the 4 b k pairs, scattered; writes 2 words a pair
// limiter   latency
// backward  -
// source    the similarity of MSPipe, section 3.3; space saving, Metwally et al. 2005
#include "common.cuh"

__device__ __forceinline__ void count_pair(uint32_t* similar, uint32_t* common, uint32_t s, uint32_t node, uint32_t other,
                                           uint32_t v) {
  if (other == node || other >= v || s == 0) return;
  uint32_t at = 0;
  for (uint32_t j = 0; j < s; j++) {
    if (similar[j] == other) {
      at = j;
      break;
    }
    if (common[j] < common[at]) at = j;
  }
  similar[at] = other, common[at] += 1;
}

extern "C" __global__ void __launch_bounds__(256, 4)
count_common(const uint32_t* node, const uint32_t* starts, const uint32_t* slots, const uint32_t* root_starts,
             const uint32_t* roots, const uint32_t* root, const uint32_t* near, uint32_t* similar, uint32_t* common, Rows nodes,
             Rows slot_rows, Rows root_rows, Rows events, uint32_t k, uint32_t s, uint32_t v, Status status) {
  after_previous_kernel();
  uint32_t ends = events.live();
  for (uint64_t i = thread_item(); i < nodes.live(); i += thread_items()) {
    uint32_t row = status.row_of(uint32_t(i), node[i], v);
    if (row == NONE) continue;
    uint32_t *of = similar + uint64_t(row) * s, *counts = common + uint64_t(row) * s;
    uint32_t first = starts[i], last = starts[i + 1];
    for (uint32_t at = first; last <= slot_rows.live() && at < last; at++) {
      uint32_t partner = slots[at] / max(k, 1u) ^ 1;
      if (partner < ends) count_pair(of, counts, s, row, root[partner], v);
    }
    first = root_starts[i], last = root_starts[i + 1];
    for (uint32_t at = first; last <= root_rows.live() && at < last; at++) {
      uint32_t partner = roots[at] ^ 1;
      for (uint32_t j = 0; partner < ends && j < k; j++) {
        count_pair(of, counts, s, row, near[uint64_t(partner) * k + j], v);
      }
    }
  }
}

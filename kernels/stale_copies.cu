// stale_copies: marks the rows of which other ranks have no valid copy, and notes that they get one
//
// shapes    copies [v, words] u32 bits by rank; id [n], counts [ranks], mark [n] u32
// grid      one thread per id
// memory    reads n ids and one word of bits for each, writes n marks and the words; words scattered
// limiter   latency
// backward  -
// source    -
#include "copies.cuh"

extern "C" __global__ void __launch_bounds__(256, FULL)
stale_copies(uint32_t* copies, const uint32_t* id, const uint32_t* counts, uint32_t* mark, Rows ids, uint32_t v, uint32_t words,
             uint32_t ranks, uint32_t own, Status s) {
  after_previous_kernel();
  uint32_t n = ids.live();
  for (uint32_t i = uint32_t(thread_item()); i < n; i += uint32_t(thread_items())) {
    uint32_t rank = rank_of(i, counts, ranks), row = rank < ranks ? s.row_of(i, id[i], v) : NONE;
    mark[i] = 0;
    if (row == NONE) continue;
    // Several ranks may want the same row.
    uint32_t bit = 1u << rank % 32, before = atomicOr(&copies[uint64_t(row) * words + rank / 32], bit);
    mark[i] = rank != own && !(before & bit);
  }
}

// expire_copies: notes that rows have changed, so that other ranks' copies of them are no longer valid
//
// shapes    copies [v, words] u32 bits by rank; id [n] unique, counts [ranks] u32
// grid      one thread per id
// memory    reads n ids, writes n words of bits, scattered
// limiter   latency
// backward  -
// source    -
#include "copies.cuh"

extern "C" __global__ void __launch_bounds__(256, FULL)
expire_copies(uint32_t* copies, const uint32_t* id, const uint32_t* counts, Rows ids, uint32_t v, uint32_t words,
              uint32_t ranks, uint32_t kept, Status s) {
  after_previous_kernel();
  uint32_t n = ids.live();
  for (uint32_t i = uint32_t(thread_item()); i < n; i += uint32_t(thread_items())) {
    uint32_t rank = rank_of(i, counts, ranks), row = rank < ranks ? s.row_of(i, id[i], v) : NONE;
    if (row == NONE) continue;
    for (uint32_t w = 0; w < words; w++) {
      copies[uint64_t(row) * words + w] = kept && w == rank / 32 ? 1u << rank % 32 : 0;
    }
  }
}

// exchange_ids: the part of a list of ids that a rank sends to itself; a single rank sends all of it
//
// shapes    id [n] u32; out [<= capacity], counts [1], count [1] u32
// grid      one thread per id, grid-stride loop
// memory    reads and writes n words; coalesced
// limiter   latency
// backward  -
// source    -
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(256, FULL)
exchange_ids(const uint32_t* id, uint32_t* count, uint32_t* out, uint32_t* counts, Rows ids, uint32_t capacity) {
  after_previous_kernel();
  uint32_t n = min(ids.live(), capacity);
  if (thread_item() == 0) *count = n, counts[0] = n;
  for (uint32_t i = uint32_t(thread_item()); i < n; i += uint32_t(thread_items())) out[i] = id[i];
}

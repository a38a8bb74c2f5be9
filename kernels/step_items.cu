// step_items: the items of one step of a list that is divided into steps
//
// shapes    offsets [s + 1] u32, step, base, count [1] u32; item, rank [<= capacity] u32
// grid      one thread per item, grid-stride loop
// memory    writes 8 bytes per item; coalesced
// limiter   memory
// backward  -
// source    -
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(256, FULL)
step_items(const uint32_t* offsets, const uint32_t* step, const uint32_t* base, uint32_t* count, uint32_t* item, uint32_t* rank,
           uint32_t steps, uint32_t capacity, Status s) {
  after_previous_kernel();
  bool first_thread = thread_item() == 0;
  uint32_t at = *step, first = 0, past = 0;
  if (at < steps) {
    first = offsets[at], past = offsets[at + 1];
  } else if (at != NONE && first_thread) {
    s.fault(0, at);
  }
  uint32_t n = past - first;
  if (past < first || n > capacity) {
    if (first_thread) s.fault(0, n);
    n = 0;
  }
  if (first_thread) *count = n;
  for (uint32_t i = uint32_t(thread_item()); i < n; i += uint32_t(thread_items())) {
    if (item) item[i] = first + i;
    if (rank) rank[i] = first + i - *base;
  }
}

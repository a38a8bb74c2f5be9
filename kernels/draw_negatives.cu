// draw_negatives: out[i, j] = pool[Philox(i m + j) below p]
//
// shapes    pool [p] u32, now [1, 2] or [1, 3] u32, out [<= b, m] u32
// grid      one thread per element, grid-stride loop
// memory    reads and writes b m words; reads of the pool are scattered
// limiter   latency
// backward  -
// source    -
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(256, FULL)
draw_negatives(const uint32_t* pool, const uint32_t* now, uint32_t* out, Rows from, Rows rows, uint32_t m, uint32_t per_event,
               Key key) {
  after_previous_kernel();
  uint64_t n = uint64_t(rows.live()) * m;
  uint32_t p = from.live(), epoch = now[0], batch = now[1];
  uint64_t first = per_event ? uint64_t(now[2]) * per_event : 0;
  for (uint64_t i = thread_item(); i < n; i += thread_items()) out[i] = pool[key.below(first + i, p, epoch, batch)];
}

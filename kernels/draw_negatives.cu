// draw_negatives: out[i, j] = pool[Philox(i m + j) below p]
//
// shapes    pool [p] u32, now [1, 2] u32, out [<= b, m] u32
// grid      one thread per element, grid-stride loop
// memory    reads and writes b m words; reads of the pool are scattered
// limiter   latency
// backward  -
// source    -
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(256, 8)
draw_negatives(const uint32_t* pool, const uint32_t* now, uint32_t* out, Rows from, Rows rows, uint32_t m, Key key) {
  uint64_t n = uint64_t(rows.live()) * m;
  uint32_t p = from.live(), epoch = now[0], batch = now[1];
  for (uint64_t i = thread_item(); i < n; i += thread_items()) out[i] = pool[key.below(i, p, epoch, batch)];
}

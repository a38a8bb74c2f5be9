// root_rows: out[i] = stride i + side, the row of one side of every event among the roots of a batch
//
// shapes    out [<= b] u32
// grid      one thread per event, grid-stride loop
// memory    writes 4 b bytes; coalesced
// limiter   latency
// backward  -
// source    -
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(256, FULL)
root_rows(uint32_t* out, Rows events, uint32_t stride, uint32_t side) {
  after_previous_kernel();
  uint32_t n = events.live();
  for (uint32_t i = uint32_t(thread_item()); i < n; i += uint32_t(thread_items())) out[i] = stride * i + side;
}

// root_rows: out[i] = stride i + side, where a side of every event is among a batch's roots
//
// shapes    out [<= b] u32
// grid      a thread an event, grid-stride
// memory    writes 4 b bytes; coalesced
// limiter   latency
// backward  -
// source    -
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(256, 8)
root_rows(uint32_t* out, Rows events, uint32_t stride, uint32_t side) {
  uint32_t n = events.live();
  for (uint32_t i = uint32_t(thread_item()); i < n; i += uint32_t(thread_items())) out[i] = stride * i + side;
}

// roots: source, destination, then the m negatives of every event, all at the event's time
//
// shapes    src, dst [<= b] u32, time [<= b] i64, negatives [<= b, m] u32, out [<= (2 + m) b]
// grid      one thread per root, grid-stride loop
// memory    reads 16 b + 4 b m bytes, writes 12 bytes per root; coalesced
// limiter   memory
// backward  -
// source    -
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(256, FULL)
roots(const uint32_t* src, const uint32_t* dst, const int64_t* time, const uint32_t* negatives, uint32_t* node, int64_t* at,
      Rows events, uint32_t m) {
  after_previous_kernel();
  uint32_t n = events.live() * (2 + m);
  for (uint32_t r = uint32_t(thread_item()); r < n; r += uint32_t(thread_items())) {
    uint32_t i = r / (2 + m), side = r % (2 + m);
    if (node) node[r] = side == 0 ? src[i] : side == 1 ? dst[i] : negatives[uint64_t(i) * m + side - 2];
    if (at) at[r] = time[i];
  }
}

// latest: marks the last appearance of each id in a list
//
// shapes    stamp [v] u32, all zero between runs; id, out [n] u32
// grid      three kernels, one thread per id: the last row of an id wins its stamp, then marks its row, then the stamps
//           are cleared
// memory    reads n ids and their stamps three times, writes n words; stamps scattered
// limiter   latency
// backward  -
// source    Sven, Algorithm 2 (Phi), over ranks
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(256, FULL)
latest_stamp(uint32_t* stamp, const uint32_t* id, Rows ids, uint32_t v, Status s) {
  after_previous_kernel();
  uint32_t n = ids.live();
  for (uint32_t i = uint32_t(thread_item()); i < n; i += uint32_t(thread_items())) {
    uint32_t of = s.row_of(i, id[i], v);
    if (of != NONE) atomicMax(&stamp[of], i + 1);
  }
}

extern "C" __global__ void __launch_bounds__(256, FULL)
latest(const uint32_t* stamp, const uint32_t* id, uint32_t* out, Rows ids, uint32_t v) {
  after_previous_kernel();
  uint32_t n = ids.live();
  for (uint32_t i = uint32_t(thread_item()); i < n; i += uint32_t(thread_items())) {
    out[i] = id[i] < v && stamp[id[i]] == i + 1;
  }
}

extern "C" __global__ void __launch_bounds__(256, FULL)
latest_clear(uint32_t* stamp, const uint32_t* id, const uint32_t* out, Rows ids) {
  after_previous_kernel();
  uint32_t n = ids.live();
  for (uint32_t i = uint32_t(thread_item()); i < n; i += uint32_t(thread_items())) {
    // One thread per id: other rows of the same id may be in other blocks.
    if (out[i] != 0) stamp[id[i]] = 0;
  }
}

// hold_rows: places of rows that are held over several steps; due_rows: the held rows of a range of slots, in the step of
// the last slot
//
// shapes    slot [1], held [slots], place [<= n], out [<= n] u32
// grid      one thread per row; grid-stride loop
// memory    reads 2 words, writes n; coalesced
// limiter   latency
// backward  -
// source    epoch parallelism of DistTGL, section 3.2.2
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(256, FULL)
hold_rows(const uint32_t* slot, uint32_t* held, uint32_t* place, Rows ids, uint32_t each, uint32_t slots, Status s) {
  after_previous_kernel();
  uint32_t at = s.row_of(0, *slot, slots), n = ids.live();
  if (at == NONE) return;
  for (uint64_t i = thread_item(); place && i < n; i += thread_items()) {
    place[i] = i < each ? at * each + uint32_t(i) : NONE;
  }
  if (thread_item() == 0) {
    held[at] = min(n, each);
    if (n > each) s.fault(each, n);
  }
}

extern "C" __global__ void __launch_bounds__(256, FULL)
due_rows(const uint32_t* slot, const uint32_t* held, uint32_t* count, uint32_t* out, uint32_t slots, uint32_t begin,
         uint32_t end, uint32_t each) {
  after_previous_kernel();
  uint32_t n = 0;
  for (uint32_t of = begin; *slot + 1 == slots && of < end; ++of) {
    uint32_t rows = min(held[of], each);
    for (uint64_t i = thread_item(); out && i < rows; i += thread_items()) out[n + i] = of * each + uint32_t(i);
    n += rows;
  }
  if (thread_item() == 0) *count = n;
}

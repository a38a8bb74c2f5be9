// fill_when: fills tables where a number is given
//
// shapes    tables [words] u32, now [1] u32
// grid      one thread per word of the largest table; grid-stride loop, table by table
// memory    reads 1 word; writes all words where the number is given, else nothing
// limiter   latency; memory where it fills
// backward  -
// source    memory parallelism of DistTGL, section 3.2.3
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(256, FULL)
fill_when(const uint32_t* now, Fills fills) {
  after_previous_kernel();
  if (*now == NONE) return;
  for (const Fill& fill : fills.of) {
    for (uint64_t i = thread_item(); i < fill.words; i += thread_items()) fill.table[i] = uint32_t(fill.word);
  }
}

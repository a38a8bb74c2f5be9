// fill_when: fills a table where a number is given
//
// shapes    table [words] u32, now [1] u32
// grid      one thread per word; grid-stride loop
// memory    reads 1 word; writes all words where the number is given, else nothing
// limiter   latency; memory where it fills
// backward  -
// source    -
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(256, 8)
fill_when(uint32_t* table, const uint32_t* now, uint64_t words, uint32_t word) {
  if (*now == NONE) return;
  for (uint64_t i = thread_item(); i < words; i += thread_items()) table[i] = word;
}

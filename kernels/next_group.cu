// next_group: the next snapshot group of a pass; the cursor is in device memory
//
// shapes    order [g] u32, clock [1, 2] u32; steps [l] u32, target [1], index [1], now [1, 2]
// grid      one warp, one lane per step; all lanes read the clock before one of them advances it
// memory    a few bytes
// limiter   latency
// backward  -
// source    BLAD, equation 1: snapshot groups
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(32, 1)
next_group(const uint32_t* order, uint32_t* clock, uint32_t* steps, uint32_t* target, uint32_t* index, uint32_t* now,
           Rows groups, uint32_t length) {
  after_previous_kernel();
  uint32_t epoch = clock[0], group = clock[1];
  __syncthreads();  // all lanes have read the clock
  uint32_t predicted = group < groups.live() ? order[group] : NONE;
  if (threadIdx.x == 0) {
    clock[1] = group + 1;
    if (target) *target = predicted;
    if (index) *index = group;
    if (now) now[0] = epoch, now[1] = group;
  }
  for (uint32_t p = threadIdx.x; steps && p < length; p += WARP) {
    uint32_t back = length - p;
    steps[p] = predicted != NONE && predicted >= back ? predicted - back : NONE;
  }
}

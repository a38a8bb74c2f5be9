// next_group: the next snapshot group of a pass; the cursor lives on the device
//
// shapes    order [g] u32, clock [1, 2] u32; steps [l] u32, target [1], index [1], now [1, 2]
// grid      one warp, a lane a step: everybody reads the clock before one counts it up
// memory    some bytes
// limiter   latency
// backward  -
// source    snapshot groups, BLAD, equation 1
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(32, 1)
next_group(const uint32_t* order, uint32_t* clock, uint32_t* steps, uint32_t* target, uint32_t* index, uint32_t* now,
           Rows groups, uint32_t length) {
  uint32_t epoch = clock[0], group = clock[1];
  __syncthreads();  // the clock has been read
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

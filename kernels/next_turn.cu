// next_turn: the batch of a step, if groups of ranks take turns
//
// shapes    range [1, 3] u32, clock [1, 2] u32, first [1] u32; at [1, 2], writes, slot [1] u32
// grid      one thread
// memory    reads and writes 40 bytes
// limiter   latency
// backward  -
// source    DistTGL, section 3.2.2
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(1, 1)
next_turn(const uint32_t* range, const uint32_t* clock, const uint32_t* first, uint32_t* at, uint32_t* writes,
          uint32_t* slot, Rows events, uint32_t capacity, uint32_t group, uint32_t groups) {
  after_previous_kernel();
  uint32_t begin = range[0], end = min(range[1], events.live()), step = clock[1];
  uint64_t counted = uint64_t(end - min(begin, end)) + range[2];
  capacity = max(capacity, 1u);
  uint32_t batches = uint32_t((counted + capacity - 1) / capacity);
  uint32_t nth = uint32_t((uint64_t(step) + groups - group) % groups);  // of the steps with the batch
  bool begun = step >= nth && step - nth >= *first && step - nth < batches;
  if (at) at[0] = clock[0] + nth, at[1] = begun ? step - nth : batches;
  if (writes) *writes = nth == 0 ? ~0u : 0;
  if (slot) *slot = nth;
}

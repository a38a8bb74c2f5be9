// batch_roots: the positive roots of a batch near the one of the step, on every rank
//
// shapes    src, dst [e] u32, range [1, 3], index [1] u32; count [1], node [<= 2 b] u32
// grid      one thread per event of the batch
// memory    reads and writes 8 b bytes; coalesced
// limiter   latency
// backward  -
// source    PipeTGL, section 4.2: the roots of adjacent batches are known before training
#include "batch.cuh"

// `ahead`: 0 is the batch before the step's, 1 the step's, 2 the one after it. Of `ranks` ranks, only the one whose turn
// that batch is gets its roots; with 0, all do.
extern "C" __global__ void __launch_bounds__(256, FULL)
batch_roots(const uint32_t* __restrict__ src, const uint32_t* __restrict__ dst, const uint32_t* range,
            const uint32_t* index, uint32_t* count, uint32_t* node, Rows events, uint32_t capacity, uint32_t ahead,
            uint32_t rank, uint32_t ranks) {
  after_previous_kernel();
  uint64_t nth = uint64_t(*index) + ahead;  // counted from 1: there is none before the first
  BatchEvents of(nth - (nth > 0), range[0], min(range[1], events.live()), range[2], capacity);
  bool mine = nth > 0 && (ranks == 0 || (nth - 1) % ranks == rank);
  uint32_t n = mine ? of.events() : 0;
  if (thread_item() == 0) *count = 2 * n;
  for (uint64_t i = thread_item(); i < n; i += thread_items()) {
    node[2 * i] = src[of.first + i], node[2 * i + 1] = dst[of.first + i];
  }
}

// next_batch: the next b events of a range, or a rank's slice of them, in order; the cursor is in device memory
//
// shapes    src, dst, time [e]; range [1, 3] u32, clock [1, 2] u32; out [<= b / ranks], now [1, 3], share [1]
// grid      one block, one thread per event; all threads read the clock before one of them advances it
// memory    reads 16 b bytes, writes 24 b; coalesced
// limiter   latency
// backward  -
// source    -
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(1024, 1)
next_batch(const uint32_t* __restrict__ src, const uint32_t* __restrict__ dst, const int64_t* __restrict__ time,
           const uint32_t* range, uint32_t* clock, uint32_t* count, uint32_t* src_out, uint32_t* dst_out, uint32_t* event,
           int64_t* time_out, uint32_t* rank, uint32_t* index, uint32_t* now, float* share,
           Rows events, uint32_t capacity, uint32_t slice, uint32_t ranks) {
  uint32_t epoch = clock[0], batch = clock[1], begin = range[0], end = range[1], less = range[2];
  __syncthreads();  // all threads have read the clock
  // Batches are counted as if the pass began `less` events earlier; the events before its beginning are left out.
  uint64_t from = begin + uint64_t(batch) * capacity, until = from + capacity;
  uint64_t first = max(from - min(from, uint64_t(less)), uint64_t(begin));
  uint64_t past = min(until - min(until, uint64_t(less)), uint64_t(min(end, events.live())));
  uint32_t n = first < past ? uint32_t(past - first) : 0;
  uint32_t before = uint32_t(uint64_t(n) * slice / ranks), after = uint32_t(uint64_t(n) * (slice + 1) / ranks);
  if (threadIdx.x == 0) {
    clock[1] = batch + 1;
    *count = after - before;
    if (index) *index = batch;
    if (now) now[0] = epoch, now[1] = batch, now[2] = before;
    if (share) *share = n ? float(double(after - before) / n) : 0.f;
  }
  first += before, n = after - before;
#pragma unroll 4
  for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) {
    uint32_t e = uint32_t(first) + i;
    if (src_out) src_out[i] = src[e];
    if (dst_out) dst_out[i] = dst[e];
    if (time_out) time_out[i] = time[e];
    if (event) event[i] = e;
    if (rank) rank[i] = e - begin;
  }
}

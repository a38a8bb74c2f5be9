// next_batch: the next b events of a range, or a rank's slice of them, in order; the cursor is in device memory
//
// shapes    src, dst, time [e]; range [1, 3] u32, clock, turn [1, 2] u32; out [<= b / ranks], now [1, 3]; share [1]
// grid      one block, one thread per event; all threads read the clock before one of them advances it
// memory    reads 16 b bytes, writes 24 b; coalesced
// limiter   latency
// backward  -
// source    -
#include "batch.cuh"

extern "C" __global__ void __launch_bounds__(1024, 1)
next_batch(const uint32_t* __restrict__ src, const uint32_t* __restrict__ dst, const int64_t* __restrict__ time,
           const uint32_t* range, uint32_t* clock, const uint32_t* turn, uint32_t* count, uint32_t* src_out,
           uint32_t* dst_out, uint32_t* event, int64_t* time_out, uint32_t* row, uint32_t* index, uint32_t* now,
           float* share, Rows events, uint32_t capacity, uint32_t slice, uint32_t ranks, uint32_t whole,
           uint32_t batches) {
  after_previous_kernel();
  uint32_t epoch = clock[0], step = clock[1], begin = range[0], end = range[1], shorter = range[2];
  __syncthreads();  // all threads have read the clock
  uint32_t batch = step;
  if (turn) epoch = turn[0], batch = turn[1];
  BatchEvents of(batch, begin, min(end, events.live()), shorter, capacity);
  uint32_t n = of.events();
  uint32_t before = uint32_t(uint64_t(n) * slice / ranks), after = uint32_t(uint64_t(n) * (slice + 1) / ranks);
  if (whole) before = 0, after = step % ranks == slice ? n : 0;
  if (threadIdx.x == 0) {
    clock[1] = step + 1;
    *count = after - before;
    if (index) *index = step;
    if (now) now[0] = epoch, now[1] = batch, now[2] = before;
    if (share) *share = n ? float(double(after - before) / (double(n) * batches)) : 0.f;
  }
  uint64_t first = of.first + before;
  n = after - before;
#pragma unroll 4
  for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) {
    uint32_t e = uint32_t(first) + i;
    if (src_out) src_out[i] = src[e];
    if (dst_out) dst_out[i] = dst[e];
    if (time_out) time_out[i] = time[e];
    if (event) event[i] = e;
    if (row) row[i] = e - begin;
  }
}

// next_batch: the next b events of a range, or a rank's slice of them, in order; the cursor is in device memory
//
// shapes    src, dst, time [e]; range [1, 3] u32, clock [1, 2] u32; out [<= b / ranks], now [1, 3]; share, writes, slot,
//           clear [1]
// grid      one block, one thread per event; all threads read the clock before one of them advances it
// memory    reads 16 b bytes, writes 24 b; coalesced
// limiter   latency
// backward  -
// source    -
#include "batch.cuh"

// What a group of ranks does in a step of a pass: see `Turns` in src/ops/sampling/next_batch.rs.
struct Turn {
  uint32_t group, groups, copy, copies;
  uint32_t batch = 0, slot = 0, clear = NONE;

  __device__ void take(uint32_t step, uint32_t begin, uint32_t end, uint32_t less, uint32_t capacity) {
    uint64_t events = uint64_t(end - min(begin, end)) + less;
    uint32_t batches = uint32_t((events + capacity - 1) / max(capacity, 1u));
    // Batches are counted from the `groups` steps before the pass, in which a group has none.
    uint32_t turn = step + groups - group;
    slot = turn % groups;
    uint32_t begun = turn - slot + group;
    batch = batches;  // none
    if (batches == 0) return;
    uint64_t first = uint64_t(copy) * batches / copies;
    if (begun >= groups && begun - groups < batches) batch = uint32_t((first + begun - groups) % batches);
    for (uint32_t at = slot + 1 == groups ? groups : 0; at-- > 0;) {
      uint32_t next = begun + at + 1;
      if (next > groups && next - groups < batches && (first + next - groups) % batches == 0) clear = at;
    }
  }
};

extern "C" __global__ void __launch_bounds__(1024, 1)
next_batch(const uint32_t* __restrict__ src, const uint32_t* __restrict__ dst, const int64_t* __restrict__ time,
           const uint32_t* range, uint32_t* clock, uint32_t* count, uint32_t* src_out, uint32_t* dst_out, uint32_t* event,
           int64_t* time_out, uint32_t* rank, uint32_t* index, uint32_t* now, float* share, uint32_t* writes,
           uint32_t* slot, uint32_t* clear, Rows events, uint32_t capacity, uint32_t slice, uint32_t ranks,
           uint32_t whole, uint32_t group, uint32_t groups, uint32_t copy, uint32_t copies) {
  after_previous_kernel();
  uint32_t epoch = clock[0], step = clock[1], begin = range[0], end = range[1], less = range[2];
  __syncthreads();  // all threads have read the clock
  Turn turn{group, groups, copy, copies};
  if (groups * copies > 1) turn.take(step, begin, min(end, events.live()), less, capacity);
  uint32_t batch = groups * copies > 1 ? turn.batch : step;
  BatchEvents of(batch, begin, min(end, events.live()), less, capacity);
  uint32_t n = of.events();
  uint32_t before = uint32_t(uint64_t(n) * slice / ranks), after = uint32_t(uint64_t(n) * (slice + 1) / ranks);
  if (whole) before = 0, after = step % ranks == slice ? n : 0;
  if (threadIdx.x == 0) {
    clock[1] = step + 1;
    *count = after - before;
    if (index) *index = step;
    if (now) now[0] = epoch + copy * groups + turn.slot, now[1] = batch, now[2] = before;
    if (share) *share = n ? float(double(after - before) / (double(n) * groups * copies)) : 0.f;
    if (writes) *writes = turn.slot == 0 ? ~0u : 0;
    if (slot) *slot = turn.slot;
    if (clear) *clear = turn.clear;
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
    if (rank) rank[i] = e - begin;
  }
}

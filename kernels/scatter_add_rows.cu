// scatter_add_rows: out[index[i], :] += src[i, :], with out starting at zero
//
// shapes    src [n, d] f32, index [n] u32 or NONE, out [v, d]
// grid      a block owns `own` rows of out: it queues, in order, the rows of src that go there; then one warp per row
//           sums
// memory    reads n d words once and the index once per block (from L2), writes v d; coalesced; no atomics;
//           deterministic
// limiter   memory; latency if few rows receive most of the sums
// backward  gather_rows(dout, index)
// source    Sven, Algorithm 2: aggregation
#include "common.cuh"

constexpr unsigned THREADS = 256;
constexpr unsigned EACH = 4;                      // indices a thread reads between two barriers
constexpr unsigned QUEUE = 3 * THREADS * EACH;    // 24 KB

// Row `x` of a queue entry is added to row `y` of out. Handles the rows `begin` to `end`; if not `fresh`, adds to out.
template <class T>
__device__ __forceinline__ void add_queued(const uint2* queue, uint32_t queued, const T* src, T* out, uint32_t begin, uint32_t end, uint32_t d,
                           bool fresh) {
  for (uint32_t r = begin + threadIdx.x / WARP; r < end; r += THREADS / WARP) {
    for (uint32_t left = 0; left < d; left += WARP) {
      uint32_t c = left + lane_id();
      bool inside = c < d;
      T* to = out + uint64_t(r) * d + c;
      T sum{};
      if (inside && !fresh) sum = *to;
      for (uint32_t q = 0; q < queued; q += WARP) {
        bool here = q + lane_id() < queued && queue[q + lane_id()].y == r;
        add_in_order(sum, __ballot_sync(ALL, here),
                     [&](int lane) { return inside ? src[uint64_t(queue[q + lane].x) * d + c] : T{}; });
      }
      if (inside) *to = sum;
    }
  }
}

extern "C" __global__ void __launch_bounds__(256, 6)
scatter_add_rows(const float* src, const uint32_t* index, float* out, Rows from, Rows rows, uint32_t d, uint32_t own, Status s) {
  after_previous_kernel();
  __shared__ uint2 queue[QUEUE];
  __shared__ uint32_t sums[WARP];
  uint32_t n = from.live(), v = rows.live(), begin = blockIdx.x * own, end = min(begin + own, v), queued = 0;
  if (begin >= v && blockIdx.x > 0) return;  // block 0 still reports indices out of range
  bool fresh = true;
  auto empty = [&] {
    __syncthreads();  // the queue has been written
    if (by_four(src, d) && by_four(out, d)) {
      add_queued(queue, queued, reinterpret_cast<const float4*>(src), reinterpret_cast<float4*>(out), begin, end, d / 4, fresh);
    } else {
      add_queued(queue, queued, src, out, begin, end, d, fresh);
    }
    fresh = false, queued = 0;
  };
  for (uint32_t base = 0; base < n; base += THREADS * EACH) {
    if (queued + THREADS * EACH > QUEUE) empty();
    uint32_t first = base + threadIdx.x / WARP * WARP * EACH + lane_id(), found = 0;
    uint32_t row[EACH], lanes[EACH];
#pragma unroll
    for (unsigned j = 0; j < EACH; j++) {
      uint32_t i = first + j * WARP;
      row[j] = i < n ? index[i] : NONE;
      if (blockIdx.x == 0) s.row_of(i, row[j], v);
      lanes[j] = __ballot_sync(ALL, row[j] >= begin && row[j] < end);
      found += __popc(lanes[j]);
    }
    uint32_t all, before = block_scan(lane_id() == 0 ? found : 0, sums, all);
    uint32_t at = queued + __shfl_sync(ALL, before, 0);
#pragma unroll
    for (unsigned j = 0; j < EACH; j++) {
      if (lanes[j] >> lane_id() & 1) queue[at + lanes_below(lanes[j])] = make_uint2(first + j * WARP, row[j]);
      at += __popc(lanes[j]);
    }
    queued += all;
  }
  empty();
}

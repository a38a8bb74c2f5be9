// scatter_add_rows: out[index[i], :] += src[i, :], with out starting at zero
//
// shapes    src [n, d] f32, index [n] u32 or NONE, out [v, d]; starts [v + 1], slots [listed] u32: the rows of src by row
//           of out (group_slots.cu)
// grid      a block owns every gridDim-th row of out; its warps divide the rows of src that go to 32 of them evenly
// memory    reads n d words, starts and slots once, writes v d; coalesced; no atomics; deterministic
// work      n d additions
// limiter   latency: starts, slots and rows of src depend on each other; memory if the rows are many
// backward  gather_rows(dout, index)
// source    Sven, Algorithm 2: aggregation
#include "grouped_sums.cuh"

constexpr unsigned THREADS = 256, WARPS = THREADS / WARP;
constexpr unsigned EACH = 8;                      // indices of a thread in flight at once
constexpr unsigned ROUND = THREADS * EACH;
constexpr unsigned QUEUE = ROUND + ROUND / 2;     // 36 KB with the sorted list

// Row `x` of a queue entry is added to the block's row `y`, row `blockIdx.x + y gridDim.x` of out.
struct Queue {
  uint2 entries[QUEUE];
  uint32_t sorted[QUEUE], starts[WARP + 1];
  float4 sums[WARPS][WARP];
};

// Sorts the entries of the block's rows `base` to `base + 32` by row.
__device__ __forceinline__ void sort(Queue& queue, uint32_t queued, uint32_t base) {
  uint32_t warp = threadIdx.x / WARP, lane = lane_id();
  auto each_entry = [&](uint32_t r, auto&& f) {
    for (uint32_t q = 0; q < queued; q += WARP) {
      bool here = q + lane < queued && queue.entries[q + lane].y == base + r;
      f(q + lane, here, __ballot_sync(ALL, here));
    }
  };
  for (uint32_t r = warp; r < WARP; r += WARPS) {
    uint32_t n = 0;
    each_entry(r, [&](uint32_t, bool, unsigned lanes) { n += uint32_t(__popc(lanes)); });
    if (lane == 0) queue.starts[r + 1] = n;
  }
  __syncthreads();  // the rows' counts have been written
  uint32_t mine = queue.starts[lane + 1], end = mine;
  for (unsigned o = 1; o < WARP; o *= 2) {
    uint32_t below = __shfl_up_sync(ALL, end, o);
    end += lane < o ? 0 : below;
  }
  __syncthreads();  // they have been read
  if (warp == 0) queue.starts[lane + 1] = end;
  if (threadIdx.x == 0) queue.starts[0] = 0;
  for (uint32_t r = warp; r < WARP; r += WARPS) {
    uint32_t at = __shfl_sync(ALL, end - mine, int(r));
    each_entry(r, [&](uint32_t q, bool here, unsigned lanes) {
      if (here) queue.sorted[at + lanes_below(lanes)] = queue.entries[q].x;
      at += uint32_t(__popc(lanes));
    });
  }
  __syncthreads();  // starts and entries are complete
}

// Adds the queued rows of src to the block's `count` rows of out; if not `fresh`, to what is there.
template <int V>
__device__ __forceinline__ void add_queued(Queue& queue, uint32_t queued, const float* src, uint32_t n, float* out, uint32_t count,
                                           uint32_t d, bool fresh, Status s) {
  RowGroups of{src, queue.starts, queue.sorted, queued, n, d, s};
  for (uint32_t base = 0; base < count; base += WARP) {
    sort(queue, queued, base);
    for (uint32_t left = 0; left < d; left += WARP * V) {
      uint32_t c = left + lane_id() * V;
      sum_groups<V>(of, 0, 1, min(WARP, count - base), c, true, queue.sums, [&](uint32_t g, const float (&sum)[V]) {
        if (c >= d) return;
        float* to = out + (blockIdx.x + uint64_t(base + g) * gridDim.x) * d + c;
        float before[V] = {};
        if (!fresh) load(to, before);
#pragma unroll
        for (int l = 0; l < V; l++) before[l] += sum[l];
        store(to, before);
      });
    }
  }
}

// The number of rows of out that the block owns, of `v`.
__device__ __forceinline__ uint32_t own_rows(uint32_t v) { return blockIdx.x < v ? (v - blockIdx.x - 1) / gridDim.x + 1 : 0; }

// Sums rows of src for the block's rows of out, without lists: the block reads the whole index, queues, in order, what
// goes to its rows, and sorts it by row. If it is more than the queue holds, the sums of several queues are added.
__device__ __forceinline__ void add_by_index(Queue& queue, const float* src, const uint32_t* index, float* out, uint32_t n,
                                             uint32_t v, uint32_t d, Status s) {
  __shared__ uint32_t sums[WARP];
  uint32_t count = own_rows(v), queued = 0;
  bool fresh = true;
  auto empty = [&] {
    __syncthreads();  // the queue has been written
    if (by_four(src, d) && by_four(out, d)) add_queued<4>(queue, queued, src, n, out, count, d, fresh, s);
    else add_queued<1>(queue, queued, src, n, out, count, d, fresh, s);
    fresh = false, queued = 0;
  };
  for (uint32_t base = 0; base < n; base += ROUND) {
    if (queued + ROUND > QUEUE) empty();
    uint32_t first = base + threadIdx.x / WARP * WARP * EACH + lane_id(), found = 0;
    uint32_t row[EACH], lanes[EACH];
#pragma unroll
    for (unsigned j = 0; j < EACH; j++) row[j] = index[min(first + j * WARP, n - 1)];
#pragma unroll
    for (unsigned j = 0; j < EACH; j++) {
      uint32_t i = first + j * WARP;
      if (i < n && blockIdx.x == 0) s.row_of(i, row[j], v);
      lanes[j] = __ballot_sync(ALL, i < n && row[j] < v && row[j] % gridDim.x == blockIdx.x);
      found += uint32_t(__popc(lanes[j]));
    }
    uint32_t all, before = block_scan(lane_id() == 0 ? found : 0, sums, all);
    uint32_t at = queued + __shfl_sync(ALL, before, 0);
#pragma unroll
    for (unsigned j = 0; j < EACH; j++) {
      uint2 entry = make_uint2(first + j * WARP, row[j] / gridDim.x);
      if (lanes[j] >> lane_id() & 1) queue.entries[at + lanes_below(lanes[j])] = entry;
      at += uint32_t(__popc(lanes[j]));
    }
    queued += all;
  }
  empty();
}

// Whether so many rows of src go to the block's rows of out that `add_by_index` would have to empty its queue before the
// end. For whole warps.
__device__ __forceinline__ bool overflows(const uint32_t* starts, uint32_t n, uint32_t v) {
  if (n <= ROUND) return false;
  uint32_t count = own_rows(v), rows = 0;
  for (uint32_t y = lane_id(); y < count; y += WARP) {
    uint32_t r = blockIdx.x + y * gridDim.x;
    rows += starts[r + 1] - starts[r];
  }
  return __reduce_add_sync(ALL, rows) > QUEUE - ROUND;
}

template <int V> __device__ __forceinline__ void add_listed(const RowGroups& of, float* out, uint32_t v, float4 (&sums)[WARPS][WARP]) {
  for (uint32_t left = 0; left < of.d; left += WARP * V) {
    uint32_t c = left + lane_id() * V;
    sum_groups<V>(of, blockIdx.x, gridDim.x, v, c, true, sums, [&](uint32_t g, const float (&sum)[V]) {
      float total[V];
#pragma unroll
      for (int l = 0; l < V; l++) total[l] = 0.f + sum[l];  // as on the host: -0 becomes 0
      if (c < of.d) store(out + uint64_t(g) * of.d + c, total);
    });
  }
}

extern "C" __global__ void __launch_bounds__(256, 3)
scatter_add_rows(const float* src, const uint32_t* index, const uint32_t* starts, const uint32_t* slots, float* out, Rows from,
                 Rows rows, Rows listed, uint32_t d, Status s) {
  after_previous_kernel();
  __shared__ Queue queue;
  uint32_t n = from.live(), v = rows.live();
  if (own_rows(v) == 0) return;  // the whole block
  // Where the queue would overflow, sums are made as without lists, so that they have the same bits.
  if (overflows(starts, n, v)) return add_by_index(queue, src, index, out, n, v, d, s);
  RowGroups of{src, starts, slots, listed.live(), n, d, s};
  if (by_four(src, d) && by_four(out, d)) add_listed<4>(of, out, v, queue.sums);
  else add_listed<1>(of, out, v, queue.sums);
}

// The same without lists: every block reads the index (`Change::Small`).
extern "C" __global__ void __launch_bounds__(256, 3)
scatter_add_rows_before(const float* src, const uint32_t* index, float* out, Rows from, Rows rows, uint32_t d, Status s) {
  after_previous_kernel();
  __shared__ Queue queue;
  uint32_t v = rows.live();
  if (own_rows(v) == 0 && blockIdx.x > 0) return;  // block 0 still reports indices out of range
  add_by_index(queue, src, index, out, from.live(), v, d, s);
}

// Sums of rows by group, for the warps of a block: the gradient of what several others have read.
#pragma once
#include "common.cuh"

// The sum of group g is that of the rows `list[starts[g]..starts[g + 1]]` of `from` [all, d]; without `list`, of the rows
// `starts[g]..starts[g + 1]`. An index out of range is a fault, and is not read.
struct RowGroups {
  const float* from;
  const uint32_t *starts, *list;
  uint32_t listed, all, d;
  Status s;
  // Start and number of the rows of group `g`.
  __device__ __forceinline__ uint2 of(uint32_t g) const {
    uint32_t first = starts[g], last = starts[g + 1];
    if (first <= last && last <= listed) return make_uint2(first, last - first);
    s.fault(g, last);
    return make_uint2(0, 0);
  }
  // Adds the rows `at` to `at + n` of the list, in order; the columns from `c` on. No branch depends on what is loaded,
  // so that all loads of a round are in flight together: those beyond `n` repeat the last row, and are not added.
  template <int V> __device__ __forceinline__ void add(float (&sum)[V], uint32_t at, uint32_t n, uint32_t c) const {
    constexpr uint32_t AT_ONCE = 8;
    const float* column = from + (c < d ? c : 0);
    for (uint32_t base = 0; base < n; base += WARP) {
      uint32_t e = at + min(base + lane_id(), n - 1), row = list ? list[e] : e;
      if (row >= all) s.fault(e, row), row = 0;
      if (all == 0) return;
      for (uint32_t first = base; first < min(base + WARP, n); first += AT_ONCE) {
        float v[AT_ONCE][V];
#pragma unroll
        for (uint32_t i = 0; i < AT_ONCE; i++) load(column + uint64_t(__shfl_sync(ALL, row, int(first - base + i))) * d, v[i]);
#pragma unroll
        for (uint32_t i = 0; i < AT_ONCE; i++) {
#pragma unroll
          for (int l = 0; l < V; l++) sum[l] += first + i < n ? v[i][l] : 0.f;
        }
      }
    }
  }
};

// Calls `out(g, sum)` with the sums of the V columns from `c` on, for the groups `first`, `first + stride`, ... of
// `groups`; unless `single`, not for groups of one row. The block's WARPS warps divide the rows of 32 groups evenly, in
// order. A group that lies in one warp's share is that warp's; otherwise the warp in whose share it begins adds the sums
// of the next ones. Every thread of the block must call it.
template <int V, unsigned WARPS, class Out>
__device__ __forceinline__ void sum_groups(const RowGroups& of, uint32_t first, uint32_t stride, uint32_t groups, uint32_t c,
                                           bool single, float4 (&sums)[WARPS][WARP], Out out) {
  uint32_t warp = threadIdx.x / WARP, lane = lane_id();
  for (; first < groups; first += WARP * stride) {
    uint32_t g = first + lane * stride;
    uint2 own = g < groups ? of.of(g) : make_uint2(0, NONE);  // start and number of rows
    unsigned none = __ballot_sync(ALL, own.y == 0);
    if (own.y == NONE || (own.y == 1 && !single)) own.y = 0;
    uint32_t end = own.y;  // the rows of all groups are counted through
    for (unsigned o = 1; o < WARP; o *= 2) {
      uint32_t below = __shfl_up_sync(ALL, end, o);
      end += lane < o ? 0 : below;
    }
    uint32_t begin = end - own.y, all = __shfl_sync(ALL, end, WARP - 1), share = (all + WARPS - 1) / WARPS;
    uint32_t from = min(warp * share, all), until = min(from + share, all), open = NONE;
    float sum[V] = {};
#pragma unroll 1
    for (unsigned i = warp; i < WARP; i += WARPS) {
      if (none >> i & 1) out(first + i * stride, sum);
    }
    for (unsigned some = __ballot_sync(ALL, own.y > 0 && begin < until && end > from); some; some &= some - 1) {
      uint32_t i = uint32_t(__ffs(int(some))) - 1, b = __shfl_sync(ALL, begin, int(i)), e = __shfl_sync(ALL, end, int(i));
      uint32_t skip = max(from, b) - b;
#pragma unroll
      for (int l = 0; l < V; l++) sum[l] = 0;
      of.add(sum, __shfl_sync(ALL, own.x, int(i)) + skip, min(until, e) - b - skip, c);
      if (b < from) store(&sums[warp][lane].x, sum);
      else if (e <= until) out(first + i * stride, sum);
      else open = i;
    }
    __syncthreads();  // the sums of groups that began in an earlier warp's share have been written
    if (open != NONE) {
      uint32_t e = __shfl_sync(ALL, end, int(open));
      for (uint32_t w = warp + 1; w * share < e; w++) {
        float other[V];
        load(&sums[w][lane].x, other);
#pragma unroll
        for (int l = 0; l < V; l++) sum[l] += other[l];
      }
      out(first + open * stride, sum);
    }
    __syncthreads();  // they have been read
  }
}

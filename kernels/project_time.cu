// project_time: y[i, :] = h[row[i], :] (1 + w delta[i] + b), delta[i] = (T - t) / (T + 1); zeros if the row is NONE
//
// shapes    h [n, d] f32, node_time [n] i64, row [r] u32, time [r] i64, w, b [1, d], y [r, d] f32
// grid      one warp per root, lanes over its columns (16 bytes per lane if aligned); gradient: one block per range of
//           roots, one lane per column, and each warp takes every eighth root
// memory    reads r d words, writes r d; gradient: reads 2 r d, writes r d; coalesced
// limiter   memory
// backward  g = dy (1 + w delta + b) by root, for scatter_add_rows; dw, db: sums over the roots of each block, then
//           over the blocks, in order
// source    JODIE (Kumar et al., KDD 2019), TGL
#include "common.cuh"

__device__ __forceinline__ float delta_of(int64_t then, int64_t now, Gaps gaps) {
  return gaps.seconds(then, now) / (gaps.seconds(0, now) + 1.f);
}

template <int V>
__device__ __forceinline__ void project(const float* h, const uint32_t* row, const int64_t* node_time, const int64_t* time,
                                        const float* w, const float* b, float* y, uint32_t n, uint32_t m, uint32_t d,
                                        Gaps gaps, Status s) {
  for (uint32_t i = warp_row(); i < n; i += warp_rows()) {
    uint32_t r = s.row_of(i, row[i], m);
    float delta = r == NONE ? 0.f : delta_of(node_time[r], time[i], gaps);
    for (uint32_t c = lane_id() * V; c < d; c += WARP * V) {
      float x[V] = {}, slope[V], shift[V];
      if (r != NONE) {
        load(h + uint64_t(r) * d + c, x), load(w + c, slope), load(b + c, shift);
#pragma unroll
        for (int l = 0; l < V; l++) x[l] *= 1.f + slope[l] * delta + shift[l];
      }
      store(y + uint64_t(i) * d + c, x);
    }
  }
}

extern "C" __global__ void __launch_bounds__(256, FULL)
project_time(const float* h, const uint32_t* row, const int64_t* node_time, const int64_t* time, const float* w,
             const float* b, float* y, Rows rows, Rows from, uint32_t d, Gaps gaps, Status s) {
  after_previous_kernel();
  bool aligned = by_four(h, d) && by_four(w, d) && by_four(b, d) && by_four(y, d);
  if (aligned) project<4>(h, row, node_time, time, w, b, y, rows.live(), from.live(), d, gaps, s);
  else project<1>(h, row, node_time, time, w, b, y, rows.live(), from.live(), d, gaps, s);
}

// `sums` holds one row {dw | db} for each block with live roots; all outputs may be null.
extern "C" __global__ void __launch_bounds__(256, 5)
project_time_grad(const float* h, const uint32_t* row, const int64_t* node_time, const int64_t* time, const float* w,
                  const float* b, const float* dy, float* g, float* sums, uint32_t* ticket, float* dw, float* db, Rows rows,
                  Rows from, uint32_t d, Gaps gaps, uint32_t block_rows) {
  after_previous_kernel();
  __shared__ float of_warps[8][WARP];
  uint32_t n = rows.live(), m = from.live(), blocks = max(1u, (n + block_rows - 1) / block_rows);
  if (blockIdx.x >= blocks) return;  // the whole block
  uint32_t first = blockIdx.x * block_rows, until = min(first + block_rows, n);
  for (uint32_t tile = 0; tile < d; tile += WARP) {
    uint32_t c = tile + lane_id();
    float sum_w = 0, sum_b = 0;
    if (c < d) {
      float slope = w[c], shift = b[c];
      for (uint32_t i = first + threadIdx.x / WARP; i < until; i += blockDim.x / WARP) {
        uint64_t at = uint64_t(i) * d + c;
        uint32_t r = row[i];
        float of_row = 0;
        if (r < m) {
          float up = dy[at], delta = delta_of(node_time[r], time[i], gaps), product = up * h[uint64_t(r) * d + c];
          of_row = up * (1.f + slope * delta + shift);
          sum_w += product * delta, sum_b += product;
        }
        if (g) g[at] = of_row;
      }
    }
    sum_w = sum_of_warps(sum_w, of_warps), sum_b = sum_of_warps(sum_b, of_warps);
    if (threadIdx.x < WARP && c < d) {
      float* mine = sums + uint64_t(blockIdx.x) * 2 * d;
      mine[c] = sum_w, mine[d + c] = sum_b;
    }
  }
  if (comes_last(ticket, blocks)) add_block_sums(sums, blocks, dw, db, d);
}

// time_encode: y[i, j] = cos(w[j] dt[i] + b[j])
//
// shapes    dt [n, 1], w, b [1, t], y [n, t] f32
// grid      one warp per row, lanes over its columns; gradient: one block per range of rows, one lane per column, and
//           each warp takes every eighth row
// memory    reads n words, writes n t; gradient: reads n t; coalesced
// limiter   memory, closely followed by arithmetic
// backward  dw = -sum sin(.) dt dy, db = -sum sin(.) dy: sums over the rows of each block, then over the blocks, in
//           order
// source    GraphMixer, TGL
#include "time_encoding.cuh"

extern "C" __global__ void __launch_bounds__(256, FULL)
time_encode(const float* dt, const float* w, const float* b, float* y, Rows rows, uint32_t t) {
  after_previous_kernel();
  uint32_t n = rows.live();
  for (uint32_t i = warp_row(); i < n; i += warp_rows()) {
    float gap = dt[i];
    for (uint32_t j = lane_id(); j < t; j += WARP) y[uint64_t(i) * t + j] = Turned(time_angle(gap, w[j], b[j])).cosine();
  }
}

// `sums` holds one row {dw | db} for each block with live rows; either output may be null.
extern "C" __global__ void __launch_bounds__(256, 2)
time_encode_grad(const float* dt, const float* w, const float* b, const float* dy, float* sums, uint32_t* ticket, float* dw,
                 float* db, Rows rows, uint32_t t, uint32_t block_rows) {
  after_previous_kernel();
  __shared__ float of_warps[8][WARP];
  uint32_t n = rows.live(), blocks = max(1u, (n + block_rows - 1) / block_rows);
  if (blockIdx.x >= blocks) return;  // the whole block
  uint32_t first = blockIdx.x * block_rows, until = min(first + block_rows, n);
  for (uint32_t from = 0; from < t; from += WARP) {
    uint32_t j = from + lane_id();
    float sum_w = 0, sum_b = 0;
    if (j < t) {
      for (uint32_t i = first + threadIdx.x / WARP; i < until; i += blockDim.x / WARP) {
        float g = -Turned(time_angle(dt[i], w[j], b[j])).sine() * dy[uint64_t(i) * t + j];
        sum_w += g * dt[i], sum_b += g;
      }
    }
    sum_w = sum_of_warps(sum_w, of_warps), sum_b = sum_of_warps(sum_b, of_warps);
    if (threadIdx.x < WARP && j < t) {
      float* mine = sums + uint64_t(blockIdx.x) * 2 * t;
      mine[j] = sum_w, mine[t + j] = sum_b;
    }
  }
  if (comes_last(ticket, blocks)) add_block_sums(sums, blocks, dw, db, t);
}

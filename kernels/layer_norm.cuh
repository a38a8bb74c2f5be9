// Layer normalisation by rows, for the kernels that end with one and those of its gradient.
#pragma once
#include "common.cuh"

// y = gain (x - mean(x)) / sqrt(var(x) + eps) + bias for a row of d, V elements of a lane side by side. Each lane reads of x
// and writes of y the same elements. `stats` takes mean and 1 / deviation; it may be null. For a whole warp.
template <int V>
__device__ __forceinline__ void normalise_row(const float* x, const float* gain, const float* bias, float* y, float* stats,
                                              uint32_t d, float eps) {
  float v[V], g[V], b[V], sum = 0, squares = 0;
  for (uint32_t c = lane_id() * V; c < d; c += WARP * V) {
    load(x + c, v);
#pragma unroll
    for (int l = 0; l < V; l++) sum += v[l];
  }
  float mean = warp_sum(sum) / float(d);
  for (uint32_t c = lane_id() * V; c < d; c += WARP * V) {
    load(x + c, v);
#pragma unroll
    for (int l = 0; l < V; l++) squares += (v[l] - mean) * (v[l] - mean);
  }
  float rstd = 1.f / sqrtf(warp_sum(squares) / float(d) + eps);
  for (uint32_t c = lane_id() * V; c < d; c += WARP * V) {
    load(x + c, v), load(gain + c, g), load(bias + c, b);
#pragma unroll
    for (int l = 0; l < V; l++) v[l] = (v[l] - mean) * rstd * g[l] + b[l];
    store(y + c, v);
  }
  if (stats && lane_id() == 0) stats[0] = mean, stats[1] = rstd;
}

// The gradient of a row of x: `out(c, x, dx)` takes V elements from c on.
template <int V, class Out>
__device__ __forceinline__ void norm_gradient_row(const float* x, const float* gain, const float* dy, float mean, float rstd,
                                                  uint32_t d, Out out) {
  float v[V], g[V], up[V], sum_g = 0, sum_gx = 0;
  for (uint32_t c = lane_id() * V; c < d; c += WARP * V) {
    load(x + c, v), load(gain + c, g), load(dy + c, up);
#pragma unroll
    for (int l = 0; l < V; l++) sum_g += up[l] * g[l], sum_gx += up[l] * g[l] * ((v[l] - mean) * rstd);
  }
  float mean_g = warp_sum(sum_g) / float(d), mean_gx = warp_sum(sum_gx) / float(d);
  for (uint32_t c = lane_id() * V; c < d; c += WARP * V) {
    load(x + c, v), load(gain + c, g), load(dy + c, up);
#pragma unroll
    for (int l = 0; l < V; l++) up[l] = (up[l] * g[l] - mean_g - (v[l] - mean) * rstd * mean_gx) * rstd;
    out(c, v, up);
  }
}

// The rows of this block, as many as every block has; all blocks with a live row, and the first, come to `norm_weight_grads`.
struct BlockRows {
  uint32_t first, until, blocks;
  __device__ __forceinline__ BlockRows(uint32_t n, uint32_t each)
      : first(blockIdx.x * each), until(min(first + each, n)), blocks(max(1u, (n + each - 1) / each)) {}
};

// dgain = sum dy xh and dbias = sum dy: those of this block's rows into its row {dgain | dbias} of `sums`; the last block adds
// the rows, in order. Either may be null.
__device__ __forceinline__ void norm_weight_grads(const float* x, const float* stats, const float* dy, BlockRows rows,
                                                  float* sums, uint32_t* ticket, float* dgain, float* dbias, uint32_t d) {
  for (uint32_t c = threadIdx.x; c < d; c += blockDim.x) {
    float of_gain = 0, of_bias = 0;
    for (uint32_t i = rows.first; i < rows.until; i++) {
      uint64_t at = uint64_t(i) * d + c;
      of_gain += dy[at] * ((x[at] - stats[2 * uint64_t(i)]) * stats[2 * uint64_t(i) + 1]), of_bias += dy[at];
    }
    float* mine = sums + uint64_t(blockIdx.x) * 2 * d;
    mine[c] = of_gain, mine[d + c] = of_bias;
  }
  if (comes_last(ticket, rows.blocks)) add_block_sums(sums, rows.blocks, dgain, dbias, d);
}

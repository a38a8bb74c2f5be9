// layer_norm: y = gain (x - mean(x)) / sqrt(var(x) + eps) + bias, row by row
//
// shapes    x, y [n, d], gain, bias [1, d], stats [n, 2] (mean, 1 / deviation) f32
// grid      a warp a row, lanes over its columns (16 bytes a lane where they are aligned); gradient: a block for some rows
// memory    reads n d words, writes n d; gradient: reads 2 n d, writes n d; coalesced, further passes hit the L1 cache
// limiter   memory
// backward  dx row by row; dgain, dbias: sums of each block's rows, then of the blocks, in order
// source    Ba et al. 2016
#include "common.cuh"

template <int V>
__device__ void normalise(const float* x, const float* gain, const float* bias, float* y, float* stats, uint32_t n,
                          uint32_t d, float eps) {
  for (uint32_t i = warp_row(); i < n; i += warp_rows()) {
    const float* row = x + uint64_t(i) * d;
    float v[V], g[V], b[V], sum = 0, squares = 0;
    for (uint32_t c = lane_id() * V; c < d; c += WARP * V) {
      load(row + c, v);
#pragma unroll
      for (int l = 0; l < V; l++) sum += v[l];
    }
    float mean = warp_sum(sum) / float(d);
    for (uint32_t c = lane_id() * V; c < d; c += WARP * V) {
      load(row + c, v);
#pragma unroll
      for (int l = 0; l < V; l++) squares += (v[l] - mean) * (v[l] - mean);
    }
    float rstd = 1.f / sqrtf(warp_sum(squares) / float(d) + eps);
    for (uint32_t c = lane_id() * V; c < d; c += WARP * V) {
      load(row + c, v), load(gain + c, g), load(bias + c, b);
#pragma unroll
      for (int l = 0; l < V; l++) v[l] = (v[l] - mean) * rstd * g[l] + b[l];
      store(y + uint64_t(i) * d + c, v);
    }
    if (stats && lane_id() == 0) stats[2 * uint64_t(i)] = mean, stats[2 * uint64_t(i) + 1] = rstd;
  }
}

extern "C" __global__ void __launch_bounds__(256, 8)
layer_norm(const float* x, const float* gain, const float* bias, float* y, float* stats, Rows rows, uint32_t d,
           float eps) {
  bool aligned = by_four(x, d) && by_four(y, d) && by_four(gain, d) && by_four(bias, d);
  if (aligned) normalise<4>(x, gain, bias, y, stats, rows.live(), d, eps);
  else normalise<1>(x, gain, bias, y, stats, rows.live(), d, eps);
}

template <int V>
__device__ void gradient_row(const float* x, const float* gain, const float* dy, float* dx, float mean, float rstd,
                             uint32_t d) {
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
    for (int l = 0; l < V; l++) v[l] = (up[l] * g[l] - mean_g - (v[l] - mean) * rstd * mean_gx) * rstd;
    store(dx + c, v);
  }
}

// `sums` is for a row {dgain | dbias} of each block that has live rows; all outputs may be null.
extern "C" __global__ void __launch_bounds__(256, 5)
layer_norm_grad(const float* x, const float* gain, const float* stats, const float* dy, float* dx, float* sums,
                uint32_t* ticket, float* dgain, float* dbias, Rows rows, uint32_t d, uint32_t block_rows) {
  uint32_t n = rows.live(), blocks = max(1u, (n + block_rows - 1) / block_rows);
  if (blockIdx.x >= blocks) return;  // the whole block
  uint32_t first = blockIdx.x * block_rows, until = min(first + block_rows, n);
  bool aligned = by_four(x, d) && by_four(dx, d) && by_four(gain, d) && by_four(dy, d);
  for (uint32_t i = first + threadIdx.x / WARP; dx && i < until; i += blockDim.x / WARP) {
    uint64_t at = uint64_t(i) * d;
    float mean = stats[2 * uint64_t(i)], rstd = stats[2 * uint64_t(i) + 1];
    if (aligned) gradient_row<4>(x + at, gain, dy + at, dx + at, mean, rstd, d);
    else gradient_row<1>(x + at, gain, dy + at, dx + at, mean, rstd, d);
  }
  for (uint32_t c = threadIdx.x; c < d; c += blockDim.x) {
    float of_gain = 0, of_bias = 0;
    for (uint32_t i = first; i < until; i++) {
      uint64_t at = uint64_t(i) * d + c;
      of_gain += dy[at] * ((x[at] - stats[2 * uint64_t(i)]) * stats[2 * uint64_t(i) + 1]), of_bias += dy[at];
    }
    float* mine = sums + uint64_t(blockIdx.x) * 2 * d;
    mine[c] = of_gain, mine[d + c] = of_bias;
  }
  if (comes_last(ticket, blocks)) add_block_sums(sums, blocks, dgain, dbias, d);
}

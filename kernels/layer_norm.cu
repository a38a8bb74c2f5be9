// layer_norm: y = gain (x - mean(x)) / sqrt(var(x) + eps) + bias, row by row
//
// shapes    x, y [n, d], gain, bias [1, d], stats [n, 2] (mean, 1 / deviation) f32
// grid      one warp per row, lanes over its columns (16 bytes per lane if aligned); gradient: one block per range of
//           rows
// memory    reads n d words, writes n d; gradient: reads 2 n d, writes n d; coalesced, further passes hit the L1 cache
// limiter   memory
// backward  dx row by row; dgain, dbias: sums over the rows of each block, then over the blocks, in order
// source    Ba et al. 2016
#include "layer_norm.cuh"

template <int V>
__device__ void normalise(const float* x, const float* gain, const float* bias, float* y, float* stats, uint32_t n,
                          uint32_t d, float eps) {
  for (uint32_t i = warp_row(); i < n; i += warp_rows()) {
    uint64_t at = uint64_t(i) * d;
    float first[V] = {};
    if (lane_id() * V < d) load(x + at + lane_id() * V, first);
    normalise_row<V>(x + at, first, gain, bias, y + at, stats ? stats + 2 * uint64_t(i) : nullptr, d, eps);
  }
}

extern "C" __global__ void __launch_bounds__(256, 5)
layer_norm(const float* x, const float* gain, const float* bias, float* y, float* stats, Rows rows, uint32_t d,
           float eps) {
  after_previous_kernel();
  bool aligned = by_four(x, d) && by_four(y, d) && by_four(gain, d) && by_four(bias, d);
  if (aligned) normalise<4>(x, gain, bias, y, stats, rows.live(), d, eps);
  else normalise<1>(x, gain, bias, y, stats, rows.live(), d, eps);
}

template <int V>
__device__ __forceinline__ void gradient(const float* x, const float* gain, const float* stats, const float* dy, float* dx,
                                         BlockRows rows, uint32_t d) {
  for (uint32_t i = rows.first + threadIdx.x / WARP; i < rows.until; i += blockDim.x / WARP) {
    uint64_t at = uint64_t(i) * d;
    norm_gradient_row<V>(x + at, gain, dy + at, stats[2 * uint64_t(i)], stats[2 * uint64_t(i) + 1], d,
                         [=](uint32_t c, const float(&)[V], const float(&v)[V]) { store(dx + at + c, v); });
  }
}

// `sums` holds one row {dgain | dbias} for each block with live rows; all outputs may be null.
extern "C" __global__ void __launch_bounds__(256, 5)
layer_norm_grad(const float* x, const float* gain, const float* stats, const float* dy, float* dx, float* sums,
                uint32_t* ticket, float* dgain, float* dbias, Rows all, uint32_t d, uint32_t block_rows) {
  after_previous_kernel();
  BlockRows rows(all.live(), block_rows);
  if (blockIdx.x >= rows.blocks) return;  // the whole block
  bool aligned = by_four(x, d) && by_four(dx, d) && by_four(gain, d) && by_four(dy, d);
  if (dx && aligned) gradient<4>(x, gain, stats, dy, dx, rows, d);
  else if (dx) gradient<1>(x, gain, stats, dy, dx, rows, d);
  norm_weight_grads(x, stats, dy, rows, sums, ticket, dgain, dbias, d);
}

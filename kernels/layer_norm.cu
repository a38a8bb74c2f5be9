// layer_norm: y = gain (x - mean(x)) / sqrt(var(x) + eps) + bias, row by row
//
// shapes    x, y [n, d], gain, bias [1, d], stats [n, 2] (mean, 1 / deviation) f32
// grid      one warp per row, lanes over its columns (16 bytes per lane if aligned; then a warp has four rows of up to 32
//           columns); gradient: one block per range of rows
// memory    reads n d words, writes n d; gradient: reads 2 n d, writes n d; coalesced, further passes hit the L1 cache
// limiter   memory
// backward  dx row by row; dgain, dbias: sums over the rows of each block, then over the blocks, in order
// source    Ba et al. 2016
#include "layer_norm.cuh"

constexpr unsigned FEW = 8;  // lanes of a narrow row

template <class Lanes>
__device__ void normalise(const float* x, const float* gain, const float* bias, float* y, float* stats, uint32_t n,
                          uint32_t d, float eps) {
  for (uint64_t i = warp_row() * Lanes::AT_ONCE; i < n; i += warp_rows() * Lanes::AT_ONCE) {
    uint64_t row = min(i + Lanes::row(), uint64_t(n) - 1), at = row * d;
    float first[Lanes::V] = {};
    if (Lanes::first() < d) load(x + at + Lanes::first(), first);
    normalise_row<Lanes>(x + at, first, gain, bias, y + at, stats ? stats + 2 * row : nullptr, d, eps, i + Lanes::row() < n);
  }
}

extern "C" __global__ void __launch_bounds__(256, 5)
layer_norm(const float* x, const float* gain, const float* bias, float* y, float* stats, Rows rows, uint32_t d,
           float eps) {
  after_previous_kernel();
  bool aligned = by_four(x, d) && by_four(y, d) && by_four(gain, d) && by_four(bias, d);
  uint32_t n = rows.live();
  if (aligned && d <= 4 * FEW) normalise<RowLanes<4, FEW>>(x, gain, bias, y, stats, n, d, eps);
  else if (aligned) normalise<RowLanes<4>>(x, gain, bias, y, stats, n, d, eps);
  else normalise<RowLanes<1>>(x, gain, bias, y, stats, n, d, eps);
}

template <class Lanes>
__device__ __forceinline__ void gradient(const float* x, const float* gain, const float* stats, const float* dy, float* dx,
                                         BlockRows rows, uint32_t d) {
  uint32_t stride = blockDim.x / WARP * Lanes::AT_ONCE;
  for (uint32_t i = rows.first + threadIdx.x / WARP * Lanes::AT_ONCE; i < rows.until; i += stride) {
    uint64_t row = min(i + Lanes::row(), rows.until - 1), at = row * d;
    bool live = i + Lanes::row() < rows.until;
    norm_gradient_row<Lanes>(x + at, gain, dy + at, stats[2 * row], stats[2 * row + 1], d,
                             [=](uint32_t c, const float(&)[Lanes::V], const float(&v)[Lanes::V]) {
                               if (live) store(dx + at + c, v);
                             });
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
  if (dx && aligned && d <= 4 * FEW) gradient<RowLanes<4, FEW>>(x, gain, stats, dy, dx, rows, d);
  else if (dx && aligned) gradient<RowLanes<4>>(x, gain, stats, dy, dx, rows, d);
  else if (dx) gradient<RowLanes<1>>(x, gain, stats, dy, dx, rows, d);
  norm_weight_grads(x, stats, dy, rows, sums, ticket, dgain, dbias, d);
}

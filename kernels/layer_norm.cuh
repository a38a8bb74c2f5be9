// Row-wise layer normalisation, for the kernels that end with one and for their gradients.
#pragma once
#include "common.cuh"

// The lanes that share a row: LANES neighbouring ones, a power of two, each with ELEMENTS consecutive elements at a time. In
// narrow rows a whole warp would be idle in most of its lanes.
template <int ELEMENTS, unsigned LANES = WARP> struct RowLanes {
  static constexpr int V = ELEMENTS;
  static constexpr unsigned AT_ONCE = WARP / LANES;  // rows of a warp
  static constexpr uint32_t STEP = LANES * V;        // elements of a row that are handled at once
  static __device__ __forceinline__ uint32_t first() { return lane_id() % LANES * V; }
  static __device__ __forceinline__ uint32_t row() { return lane_id() / LANES; }
  static __device__ __forceinline__ float sum(float v) { return warp_sum<LANES>(v); }
};

// y = gain (x - mean(x)) / sqrt(var(x) + eps) + bias for one row of d elements, of which `first` are this lane's first.
// A lane reads the same elements of x that it writes of y, so y may be x. `stats` receives the mean and 1 / deviation;
// it may be null. Only if the row is `live` is anything written. Every lane of the warp must call it.
template <class Lanes>
__device__ __forceinline__ void normalise_row(const float* x, const float (&first)[Lanes::V], const float* gain, const float* bias,
                                              float* y, float* stats, uint32_t d, float eps, bool live = true) {
  constexpr int V = Lanes::V;
  float v[V], g[V], b[V], sum = 0, squares = 0;
  auto load_x = [&](uint32_t c) {
    if (c >= Lanes::STEP) load(x + c, v);
    else for (int l = 0; l < V; l++) v[l] = first[l];
  };
  for (uint32_t c = Lanes::first(); c < d; c += Lanes::STEP) {
    load_x(c);
#pragma unroll
    for (int l = 0; l < V; l++) sum += v[l];
  }
  float mean = Lanes::sum(sum) / float(d);
  for (uint32_t c = Lanes::first(); c < d; c += Lanes::STEP) {
    load_x(c);
#pragma unroll
    for (int l = 0; l < V; l++) squares += (v[l] - mean) * (v[l] - mean);
  }
  float rstd = 1.f / sqrtf(Lanes::sum(squares) / float(d) + eps);
  if (!live) return;
  for (uint32_t c = Lanes::first(); c < d; c += Lanes::STEP) {
    load_x(c), load(gain + c, g), load(bias + c, b);
#pragma unroll
    for (int l = 0; l < V; l++) v[l] = (v[l] - mean) * rstd * g[l] + b[l];
    store(y + c, v);
  }
  if (stats && Lanes::first() == 0) stats[0] = mean, stats[1] = rstd;
}

// The gradient of one row of x. Calls `out(c, x, dx)` for every V consecutive elements, starting at column c. The product
// from which its mean is subtracted is rounded first: fused with the subtraction, it would leave its rounding error where
// the gradient is zero, as in a row of one column. Every lane of the warp must call it.
template <class Lanes, class Out>
__device__ __forceinline__ void norm_gradient_row(const float* x, const float* gain, const float* dy, float mean, float rstd,
                                                  uint32_t d, Out out) {
  constexpr int V = Lanes::V;
  float v[V], g[V], up[V], sum_g = 0, sum_gx = 0;
  for (uint32_t c = Lanes::first(); c < d; c += Lanes::STEP) {
    load(x + c, v), load(gain + c, g), load(dy + c, up);
#pragma unroll
    for (int l = 0; l < V; l++) sum_g += up[l] * g[l], sum_gx += up[l] * g[l] * ((v[l] - mean) * rstd);
  }
  float mean_g = Lanes::sum(sum_g) / float(d), mean_gx = Lanes::sum(sum_gx) / float(d);
  for (uint32_t c = Lanes::first(); c < d; c += Lanes::STEP) {
    load(x + c, v), load(gain + c, g), load(dy + c, up);
#pragma unroll
    for (int l = 0; l < V; l++) up[l] = (__fmul_rn(up[l], g[l]) - mean_g - (v[l] - mean) * rstd * mean_gx) * rstd;
    out(c, v, up);
  }
}

// The rows of this block; every block has `each` rows. All blocks with a live row, and always the first block, call
// `norm_weight_grads`.
struct BlockRows {
  uint32_t first, until, blocks;
  __device__ __forceinline__ BlockRows(uint32_t n, uint32_t each)
      : first(blockIdx.x * each), until(min(first + each, n)), blocks(max(1u, (n + each - 1) / each)) {}
};

// A column's part of {dgain | dbias}: the sums over `n` rows, every `step`-th one from `first` on.
__device__ __forceinline__ float2 norm_weight_sums(const float* x, const float* stats, const float* dy, uint32_t first,
                                                   uint32_t n, uint32_t step, uint32_t d, uint32_t c) {
  float of_gain = 0, of_bias = 0;
#pragma unroll 4  // sixteen loads in flight at once
  for (uint32_t k = 0; k < n; k++) {
    uint32_t i = first + k * step;
    uint64_t at = uint64_t(i) * d + c;
    of_gain += dy[at] * ((x[at] - stats[2 * uint64_t(i)]) * stats[2 * uint64_t(i) + 1]), of_bias += dy[at];
  }
  return make_float2(of_gain, of_bias);
}
// dgain = sum dy xh and dbias = sum dy. Each block writes the sums over its rows to its row {dgain | dbias} of `sums`;
// the last block adds these rows in order. Either output may be null. A thread has a column; of narrow rows, several
// threads share a column. Every thread must call it.
__device__ __forceinline__ void norm_weight_grads(const float* x, const float* stats, const float* dy, BlockRows rows,
                                                  float* sums, uint32_t* ticket, float* dgain, float* dbias, uint32_t d) {
  float* mine = sums + uint64_t(blockIdx.x) * 2 * d;
  uint32_t n = rows.until - min(rows.first, rows.until);
  auto write = [=](uint32_t c, float2 sum) { mine[c] = sum.x, mine[d + c] = sum.y; };
  if (4 * d > blockDim.x) {
    for (uint32_t c = threadIdx.x; c < d; c += blockDim.x) {
      write(c, norm_weight_sums(x, stats, dy, rows.first, n, 1, d, c));
    }
  } else {
    __shared__ float2 of_threads[256];
    uint32_t slices = blockDim.x / d, slice = threadIdx.x / d, c = threadIdx.x % d;
    uint32_t of_slice = (n + slices - 1 - min(slice, slices - 1)) / slices;
    if (slice < slices) of_threads[threadIdx.x] = norm_weight_sums(x, stats, dy, rows.first + slice, of_slice, slices, d, c);
    __syncthreads();  // the sums of all slices have been written
    if (slice == 0) {
      float2 sum = of_threads[c];
      for (uint32_t s = 1; s < slices; s++) sum.x += of_threads[s * d + c].x, sum.y += of_threads[s * d + c].y;
      write(c, sum);
    }
  }
  if (comes_last(ticket, rows.blocks)) add_block_sums(sums, rows.blocks, dgain, dbias, d);
}

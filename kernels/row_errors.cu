// row_errors: adds up how far rows are from what they should be, before and after a change
//
// shapes    before, exact [m, d], after [n, d] f32, row [m] u32, errors [6] f32
// grid      one block of 1024: a warp per row, lanes over its columns; then the sums of the warps, in order
// memory    reads 3 m d + m words, coalesced within rows
// limiter   latency
// backward  -
// source    the error of staleness in MSPipe, section 5.5
#include "common.cuh"

constexpr uint32_t SUMS = 6;

__device__ __forceinline__ float distance(const float* x, const float* exact, uint32_t d) {
  float sum = 0.f;
  for (uint32_t c = lane_id(); c < d; c += WARP) {
    float by = x[c] - exact[c];
    sum = fmaf(by, by, sum);
  }
  return sqrtf(warp_sum(sum));
}

extern "C" __global__ void __launch_bounds__(1024, 1)
row_errors(const float* before, const float* exact, const float* after, const uint32_t* row, float* errors, Rows changed,
           Rows rows, uint32_t d, Status s) {
  after_previous_kernel();
  __shared__ float sums[1024 / WARP][SUMS];
  uint32_t warp = threadIdx.x / WARP, n = rows.live();
  float own[SUMS] = {};
  for (uint32_t i = warp; i < changed.live(); i += blockDim.x / WARP) {
    uint32_t at = s.row_of(i, row[i], n);
    if (at == NONE) continue;
    const float* want = exact + uint64_t(i) * d;
    float was = distance(before + uint64_t(i) * d, want, d), is = distance(after + uint64_t(at) * d, want, d);
    own[0] += 1.f, own[1] += was, own[2] += is;
    if (was > 0.f) own[3] += 1.f, own[4] += was, own[5] += is;
  }
  if (lane_id() == 0) {
    for (uint32_t k = 0; k < SUMS; k++) sums[warp][k] = own[k];
  }
  __syncthreads();  // the sums of all warps have been written
  if (threadIdx.x >= SUMS) return;
  float sum = errors[threadIdx.x];
  for (uint32_t w = 0; w < blockDim.x / WARP; w++) sum += sums[w][threadIdx.x];
  errors[threadIdx.x] = sum;
}

// mean: out = sum of a / (n d), 0 if there are no elements; and the gradient of a
//
// shapes    a, da [n, d] f32, out, dout [1, 1]
// grid      one thread per element, grid-stride loop; at most 128 blocks of 256 for the mean
// memory    reads n d words; the gradient writes n d; coalesced
// limiter   memory; latency for small inputs
// backward  da = dout / (n d)
// source    -
#include "common.cuh"

__device__ __forceinline__ float reciprocal(uint64_t n) { return n ? float(1.0 / double(n)) : 0.f; }

// `made` holds a sum per block.
extern "C" __global__ void __launch_bounds__(256, 6)
mean(const float* a, float* made, uint32_t* ticket, float* out, Rows rows, uint32_t d) {
  __shared__ float of_warps[WARP];
  uint64_t n = uint64_t(rows.live()) * d;
  float sum = 0.f;
  for (uint64_t i = thread_item(); i < n; i += thread_items()) sum += a[i];
  sum = warp_sum(sum);
  if (lane_id() == 0) of_warps[threadIdx.x / WARP] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (uint32_t w = 1; w < blockDim.x / WARP; w++) sum += of_warps[w];
    made[blockIdx.x] = sum;
  }
  if (!comes_last(ticket, gridDim.x) || threadIdx.x > 0) return;
  *out = sum_of_parts(made, gridDim.x, 1, 0) * reciprocal(n);
}

extern "C" __global__ void __launch_bounds__(256, 8) mean_grad(const float* dout, float* da, Rows rows, uint32_t d) {
  uint64_t n = uint64_t(rows.live()) * d;
  float each = *dout * reciprocal(n);
  for (uint64_t i = thread_item(); i < n; i += thread_items()) da[i] = each;
}

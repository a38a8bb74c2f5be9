// clip_norm: norm = sqrt(sum g^2) over all gradients, scale = min(1, most / (norm + 1e-6))
//
// shapes    norm, scale [1, 1] f32; g of every parameter, f32
// grid      one launch for all gradients: one block per 1024 elements, four elements per thread
// memory    reads 4 bytes per element; coalesced
// limiter   memory; latency of the last block, which adds the sums of all blocks
// backward  -
// source    Pascanu et al. 2013; as PyTorch's clip_grad_norm_
#include "common.cuh"

constexpr unsigned EACH = 4;
constexpr float EPS = 1e-6f;

// Sum over the threads of a block, in thread 0. The caller separates two calls by a barrier.
__device__ float block_sum(float v, float (&of_warps)[WARP]) {
  v = warp_sum(v);
  if (lane_id() == 0) of_warps[threadIdx.x / WARP] = v;
  __syncthreads();
  if (threadIdx.x > 0) return 0.f;
  float sum = 0.f;
  for (uint32_t w = 0; w < blockDim.x / WARP; w++) sum += of_warps[w];
  return sum;
}

// `sums` has one number per block of all launches, `first` of them from earlier launches. `ticket` is null except in
// the last launch, whose last block writes norm and scale.
extern "C" __global__ void __launch_bounds__(256, FULL)
clip_norm(Parameters gradients, float* sums, uint32_t first, float* norm, float* scale, float most, uint32_t* ticket) {
  after_previous_kernel();
  __shared__ float of_warps[WARP];
  uint32_t at = gradients.index(blockIdx.x);
  const Parameter& p = gradients.of[at];
  uint32_t piece = blockIdx.x - (at ? gradients.of[at - 1].end : 0), from = piece * blockDim.x * EACH + threadIdx.x;
  float sum = 0.f;
#pragma unroll
  for (uint32_t k = 0; k < EACH; k++) {
    uint32_t i = from + k * blockDim.x;
    float g = i < p.n ? p.g[i] : 0.f;
    sum = fmaf(g, g, sum);
  }
  sum = block_sum(sum, of_warps);
  if (threadIdx.x == 0) sums[first + blockIdx.x] = sum;
  if (!ticket || !comes_last(ticket, gridDim.x)) return;
  sum = 0.f;
  for (uint32_t block = threadIdx.x; block < first + gridDim.x; block += blockDim.x) sum += __ldcg(sums + block);
  sum = block_sum(sum, of_warps);
  if (threadIdx.x > 0) return;
  float root = sqrtf(sum), factor = most / (root + EPS);
  *norm = root;
  *scale = factor >= 1.f ? 1.f : factor;  // a factor that is not a number stays one
}

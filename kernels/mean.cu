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
  after_previous_kernel();
  uint64_t n = uint64_t(rows.live()) * d;
  float sum = 0.f;
  for (uint64_t i = thread_item(); i < n; i += thread_items()) sum += a[i];
  if (sum_of_grid(sum, made, ticket)) *out = sum * reciprocal(n);
}

extern "C" __global__ void __launch_bounds__(256, FULL) mean_grad(const float* dout, float* da, Rows rows, uint32_t d) {
  after_previous_kernel();
  uint64_t n = uint64_t(rows.live()) * d;
  float each = *dout * reciprocal(n);
  for (uint64_t i = thread_item(); i < n; i += thread_items()) da[i] = each;
}

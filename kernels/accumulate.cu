// accumulate: sum += x for every pair, or sum = 0
//
// shapes    the sum and x of a pair have the same shape, f32; x is null if the sums are cleared
// grid      one launch for all pairs: one block per 1024 elements, four elements per thread
// memory    reads 8 bytes per element, writes 4; when clearing, writes 4; coalesced, 16 bytes per thread if aligned
// limiter   memory
// backward  -
// source    -
#include "common.cuh"

constexpr unsigned EACH = 4;

// `w` are the sums, `g` the values added to them.
extern "C" __global__ void __launch_bounds__(256, FULL) accumulate(Parameters sums) {
  after_previous_kernel();
  uint32_t at = sums.index(blockIdx.x);
  const Parameter& p = sums.of[at];
  uint32_t piece = blockIdx.x - (at ? sums.of[at - 1].end : 0);
  uint32_t i = (piece * blockDim.x + threadIdx.x) * EACH;
  if (i + EACH <= p.n && by_four(p.w, EACH) && (!p.g || by_four(p.g, EACH))) {
    float4 sum = make_float4(0.f, 0.f, 0.f, 0.f);
    if (p.g) {
      float4 x = *reinterpret_cast<const float4*>(p.g + i);
      sum = *reinterpret_cast<float4*>(p.w + i);
      sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
    }
    *reinterpret_cast<float4*>(p.w + i) = sum;
  } else {
    for (uint32_t end = min(i + EACH, p.n); i < end; i++) p.w[i] = p.g ? p.w[i] + p.g[i] : 0.f;
  }
}

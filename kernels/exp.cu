// exp: out = e^a, element by element
//
// shapes    a, out [n, d] f32
// grid      one thread per element, grid-stride loop
// memory    reads n d words, writes n d; coalesced
// limiter   memory
// backward  da = mul(dout, out)
// source    -
#include "common.cuh"

// Not called `exp`, because the C library has a function of that name.
extern "C" __global__ void __launch_bounds__(256, FULL) exponential(const float* a, float* out, Rows rows, uint32_t d) {
  after_previous_kernel();
  uint64_t n = uint64_t(rows.live()) * d;
  for (uint64_t i = thread_item(); i < n; i += thread_items()) out[i] = expf(a[i]);
}

// mul: out = a * b, element by element
//
// shapes    a, b, out [n, d] f32
// grid      one thread per element, grid-stride loop
// memory    reads 2 n d words, writes n d; coalesced
// limiter   memory
// backward  da = mul(dout, b), db = mul(dout, a)
// source    -
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(256, FULL) mul(const float* a, const float* b, float* out, Rows rows, uint32_t d) {
  after_previous_kernel();
  uint64_t n = uint64_t(rows.live()) * d;
  for (uint64_t i = thread_item(); i < n; i += thread_items()) out[i] = a[i] * b[i];
}

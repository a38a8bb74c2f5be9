// log: out = ln a, element by element; and the gradient of a
//
// shapes    a, out, dout, da [n, d] f32
// grid      one thread per element, grid-stride loop
// memory    reads n d words, writes n d; the gradient reads 2 n d words; coalesced
// limiter   memory
// backward  da = dout / a
// source    -
#include "common.cuh"

// Not called `log`, because the C library has a function of that name.
extern "C" __global__ void __launch_bounds__(256, FULL) logarithm(const float* a, float* out, Rows rows, uint32_t d) {
  after_previous_kernel();
  uint64_t n = uint64_t(rows.live()) * d;
  for (uint64_t i = thread_item(); i < n; i += thread_items()) out[i] = logf(a[i]);
}

extern "C" __global__ void __launch_bounds__(256, FULL)
log_grad(const float* a, const float* dout, float* da, Rows rows, uint32_t d) {
  after_previous_kernel();
  uint64_t n = uint64_t(rows.live()) * d;
  for (uint64_t i = thread_item(); i < n; i += thread_items()) da[i] = dout[i] / a[i];
}

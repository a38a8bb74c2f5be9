// sum: out = x_1 + x_2 + ..
//
// shapes    two to eight terms and out [n, d] f32
// grid      one thread per element, grid-stride loop
// memory    reads n d words of each term, writes n d; coalesced, all terms of an element in flight at once
// limiter   memory
// backward  the gradient is passed to all operands
// source    -
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(256, FULL) sum(Terms terms, float* out, Rows rows, uint32_t d) {
  after_previous_kernel();
  uint64_t n = uint64_t(rows.live()) * d;
  for (uint64_t i = thread_item(); i < n; i += thread_items()) {
    float sum = terms.of[0][i] + terms.of[1][i], x[Terms::MOST];
#pragma unroll
    for (uint32_t t = 2; t < Terms::MOST; t++) x[t] = t < terms.count ? terms.of[t][i] : 0.f;
#pragma unroll
    for (uint32_t t = 2; t < Terms::MOST; t++) {
      if (t < terms.count) sum += x[t];
    }
    out[i] = sum;
  }
}

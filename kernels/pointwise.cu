// pointwise: out = f(a) or f(a, b), element by element
//
// shapes    a, b, out [n, d] f32
// grid      one thread per element, grid-stride loop
// memory    reads n d words of each operand, writes n d; coalesced
// limiter   memory
// backward  by kernels of this file, see src/ops/pointwise.rs
// source    -
#include "common.cuh"

template <class F> __device__ __forceinline__ void each(Rows rows, uint32_t d, F f) {
  uint64_t n = uint64_t(rows.live()) * d;
  for (uint64_t i = thread_item(); i < n; i += thread_items()) f(i);
}

extern "C" __global__ void __launch_bounds__(256, FULL) add(const float* a, const float* b, float* out, Rows rows, uint32_t d) {
  after_previous_kernel();
  each(rows, d, [=](uint64_t i) { out[i] = a[i] + b[i]; });
}

extern "C" __global__ void __launch_bounds__(256, FULL) sub(const float* a, const float* b, float* out, Rows rows, uint32_t d) {
  after_previous_kernel();
  each(rows, d, [=](uint64_t i) { out[i] = a[i] - b[i]; });
}

extern "C" __global__ void __launch_bounds__(256, FULL) mul(const float* a, const float* b, float* out, Rows rows, uint32_t d) {
  after_previous_kernel();
  each(rows, d, [=](uint64_t i) { out[i] = a[i] * b[i]; });
}

// The C library and common.cuh have functions called `div`, `scale`, `exp` and `log`.
extern "C" __global__ void __launch_bounds__(256, FULL) quotient(const float* a, const float* b, float* out, Rows rows, uint32_t d) {
  after_previous_kernel();
  each(rows, d, [=](uint64_t i) { out[i] = a[i] / b[i]; });
}

extern "C" __global__ void __launch_bounds__(256, FULL) scaled(const float* a, float s, float* out, Rows rows, uint32_t d) {
  after_previous_kernel();
  each(rows, d, [=](uint64_t i) { out[i] = s * a[i]; });
}

extern "C" __global__ void __launch_bounds__(256, FULL) exponential(const float* a, float* out, Rows rows, uint32_t d) {
  after_previous_kernel();
  each(rows, d, [=](uint64_t i) { out[i] = expf(a[i]); });
}

extern "C" __global__ void __launch_bounds__(256, FULL) logarithm(const float* a, float* out, Rows rows, uint32_t d) {
  after_previous_kernel();
  each(rows, d, [=](uint64_t i) { out[i] = logf(a[i]); });
}

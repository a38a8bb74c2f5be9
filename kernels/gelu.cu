// gelu: y = drop(x P(x)), where P is the normal distribution function, and its gradient
//
// shapes    x, y, dy, dx [n, d] f32
// grid      one thread per four elements, which one draw of the dropout serves; grid-stride loop
// memory    reads n d words, writes n d; gradient: reads 2 n d; coalesced, 16 bytes at a time if aligned
// limiter   memory
// backward  dx = dy f (P(x) + x p(x)), where p is the normal density and f the factor of the dropout
// source    Hendrycks and Gimpel 2016
#include "gelu.cuh"

// y of the V elements from `first` on, or their dx if `dy` is not null.
template <int V>
__device__ __forceinline__ void apply(const float* x, const float* dy, float* out, uint64_t first, const Drop& drop) {
  float in[V], of[V];
  load(x + first, in), load_if(dy, first, of);
  uint32_t kept = drop.kept(first);
#pragma unroll
  for (int i = 0; i < V; i++) {
    float value = dy ? of[i] * (below(in[i]) + in[i] * density(in[i])) : in[i] * below(in[i]);
    of[i] = value * drop.factor_of(kept >> i & 1);
  }
  store(out + first, of);
}

__device__ __forceinline__ void apply_all(const float* x, const float* dy, float* out, uint64_t n, const Drop& drop) {
  bool aligned = by_four(x, 4) && by_four(dy, 4) && by_four(out, 4);
  for (uint64_t first = 4 * thread_item(); first < n; first += 4 * thread_items()) {
    if (aligned && first + 4 <= n) {
      apply<4>(x, dy, out, first, drop);
    } else {
      for (uint64_t i = first; i < n && i < first + 4; i++) apply<1>(x, dy, out, i, drop);
    }
  }
}

extern "C" __global__ void __launch_bounds__(256, 4)
gelu(const float* x, float* y, Rows rows, uint32_t d, Epilogue epilogue) {
  after_previous_kernel();
  apply_all(x, nullptr, y, uint64_t(rows.live()) * d, epilogue.drop);
}

extern "C" __global__ void __launch_bounds__(256, 4)
gelu_grad(const float* x, const float* dy, float* dx, Rows rows, uint32_t d, Epilogue epilogue) {
  after_previous_kernel();
  apply_all(x, dy, dx, uint64_t(rows.live()) * d, epilogue.drop);
}

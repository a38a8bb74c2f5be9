// mean_rows: y[i, :] = the mean of the first count[i] of the k rows of x from row i k on, and its gradient
//
// shapes    x, dx [n k, d] f32, count [n] u32 or null (all k rows), y, dy [n, d]
// grid      one thread per element of y; gradient: of dy (per four elements if rows are aligned); grid-stride loop
// memory    reads n k d words, writes n d; gradient: reads n d, writes n k d; coalesced
// limiter   memory
// backward  dx[i k + j, :] = dy[i, :] / count[i] for j < count[i], else 0
// source    -
#include "common.cuh"

__device__ __forceinline__ uint32_t used(const uint32_t* count, uint64_t i, uint32_t k) {
  return count ? min(count[i], k) : k;
}

extern "C" __global__ void __launch_bounds__(256, FULL)
mean_rows(const float* x, const uint32_t* count, float* y, Rows rows, uint32_t k, uint32_t d) {
  after_previous_kernel();
  uint64_t items = uint64_t(rows.live()) * d;
  for (uint64_t at = thread_item(); at < items; at += thread_items()) {
    uint64_t i = at / d;
    uint32_t n = used(count, i, k);
    const float* from = x + i * k * d + at % d;
    float sum = 0.f;
#pragma unroll 4  // four loads in flight at once
    for (uint32_t j = 0; j < n; j++) sum += from[uint64_t(j) * d];
    y[at] = n ? sum / float(n) : 0.f;
  }
}

template <int V>
__device__ __forceinline__ void spread(const float* dy, const uint32_t* count, float* dx, uint32_t rows, uint32_t k, uint32_t d) {
  uint32_t columns = d / V;
  uint64_t items = uint64_t(rows) * columns;
  for (uint64_t at = thread_item(); at < items; at += thread_items()) {
    uint64_t i = at / columns, c = at % columns * V;
    uint32_t n = used(count, i, k);
    float of_mean[V];
    load(dy + i * d + c, of_mean);
    for (int l = 0; l < V; l++) of_mean[l] = n ? of_mean[l] / float(n) : 0.f;
    for (uint32_t j = 0; j < k; j++) {
      float v[V];
      for (int l = 0; l < V; l++) v[l] = j < n ? of_mean[l] : 0.f;
      store(dx + (i * k + j) * d + c, v);
    }
  }
}

extern "C" __global__ void __launch_bounds__(256, FULL)
mean_rows_grad(const float* dy, const uint32_t* count, float* dx, Rows rows, uint32_t k, uint32_t d) {
  after_previous_kernel();
  if (by_four(dy, d) && by_four(dx, d)) spread<4>(dy, count, dx, rows.live(), k, d);
  else spread<1>(dy, count, dx, rows.live(), k, d);
}

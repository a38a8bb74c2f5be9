// prefix_rows: out[i, :] = base[i, :] + x[i, :], where a missing row counts as zeros: the first rows of x, or x padded
//
// shapes    x [m, d] f32, base [n, d] f32 or null, out [n, d] f32
// grid      one thread per element, or per four elements if rows are aligned; grid-stride loop
// memory    reads min(m, n) d words and the base, writes n d; coalesced
// limiter   memory
// backward  prefix_rows, from n rows to m
// source    -
#include "common.cuh"

template <class T>
__device__ __forceinline__ void copy_first(const T* x, const T* base, T* out, uint64_t from, uint64_t n) {
  for (uint64_t i = thread_item(); i < n; i += thread_items()) {
    T sum = base ? base[i] : T{};
    if (i < from) add_to(sum, x[i]);
    out[i] = sum;
  }
}

extern "C" __global__ void __launch_bounds__(256, FULL)
prefix_rows(const float* x, const float* base, float* out, Rows from, Rows rows, uint32_t d) {
  after_previous_kernel();
  uint64_t m = from.live(), n = rows.live();
  if (by_four(x, d) && by_four(base, d) && by_four(out, d)) {
    copy_first(reinterpret_cast<const float4*>(x), reinterpret_cast<const float4*>(base), reinterpret_cast<float4*>(out),
               m * (d / 4), n * (d / 4));
  } else {
    copy_first(x, base, out, m * d, n * d);
  }
}

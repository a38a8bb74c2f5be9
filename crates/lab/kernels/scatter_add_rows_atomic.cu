// scatter_add_rows with atomics: out[index[i], :] += src[i, :], with out cleared before; an alternative that no op uses
//
// shapes    src [n, d] f32, index [n] u32 or NONE, out [v, d]
// grid      one warp per row of src, lanes over its words
// memory    reads n (d + 1) words, writes v d, adds n d words in L2
// limiter   atomics in L2; if many rows have the same index, the atomics on its cache line
// backward  -
// source    PyTorch's index_add; the order of the additions varies, so the bits of the result do, too
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(256, 4)
scatter_add_rows_atomic(const float* src, const uint32_t* index, float* out, Rows from, Rows rows, uint32_t d, Status s) {
  after_previous_kernel();
  uint32_t n = from.live(), v = rows.live();
  for (uint32_t i = warp_row(); i < n; i += warp_rows()) {
    uint32_t r = s.row_of(i, index[i], v);
    if (r == NONE) continue;
    for (uint32_t c = lane_id(); c < d; c += WARP) atomicAdd(out + uint64_t(r) * d + c, src[uint64_t(i) * d + c]);
  }
}

// slice_rows: out[i, :] = x[n m / parts + i, :], the m-th of several slices of the n rows
//
// shapes    x [<= n, d], out [<= n / parts + 1, d] 4-byte words; count [1] u32 or null
// grid      one thread per word of the slice; grid-stride loop
// memory    reads and writes the words of the slice; coalesced
// limiter   memory
// backward  -
// source    the micro-batches of Sven, section 3.3.2
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(256, FULL)
slice_rows(const uint32_t* x, uint32_t* out, uint32_t* count, Rows all, uint32_t capacity, uint32_t d, uint32_t slice,
           uint32_t parts) {
  after_previous_kernel();
  uint64_t n = all.live(), first = n * slice / parts, rows = min(n * (slice + 1) / parts - first, uint64_t(capacity));
  for (uint64_t i = thread_item(); out && i < rows * d; i += thread_items()) out[i] = x[first * d + i];
  if (count && thread_item() == 0) *count = uint32_t(rows);
}

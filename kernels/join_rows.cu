// join_rows: out[n m / parts + i, :] = x[i, :], puts the m-th of several slices of n rows into its place
//
// shapes    x [<= k, d], out [<= n, d] 4-byte words
// grid      one launch per part, one thread per word; grid-stride loop
// memory    reads and writes the words of the part; coalesced
// limiter   memory
// backward  slice_rows
// source    the micro-batches of Sven, section 3.3.2
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(256, FULL)
join_rows(const uint32_t* x, uint32_t* out, Rows all, Rows part, uint32_t d, uint32_t slice, uint32_t parts, Status s) {
  after_previous_kernel();
  uint64_t n = all.live(), first = n * slice / parts, rows = n * (slice + 1) / parts - first;
  if (part.live() != rows) {
    if (thread_item() == 0) s.fault(uint32_t(first), uint32_t(rows));
    return;
  }
  for (uint64_t i = thread_item(); i < rows * d; i += thread_items()) out[first * d + i] = x[i];
}

// write_rows: table[index[i], :] = rows[i, :], in place
//
// shapes    table [v, d] f32, index [n] u32 distinct, rows [n, d] f32
// grid      a thread an element, grid-stride: rows are narrow
// memory    reads n (d + 1) words, writes n d
// limiter   memory
// backward  -
// source    -
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(256, 8)
write_rows(float* table, const uint32_t* index, const float* rows, Rows to, Rows from, uint32_t d, Status s) {
  uint64_t n = uint64_t(from.live()) * d;
  uint32_t v = to.live();
  for (uint64_t at = thread_item(); at < n; at += thread_items()) {
    uint32_t i = uint32_t(at / d), r = s.row_of(i, index[i], v);
    if (r != NONE) table[uint64_t(r) * d + at % d] = rows[at];
  }
}

// gather_rows: out[i, :] = table[index[i], :]; zeros if the index is NONE; for up to eight tables
//
// shapes    tables [v, d] 4-byte words or 16-bit numbers, each of its own width d; index [n] u32, outs [n, d] 4-byte words
// grid      one warp per row, which it gathers from one table after the other; lanes over the row's numbers (four per
//           lane if rows are aligned)
// memory    per table reads n d words (16-bit if the table's are), writes n d words; reads n indices; coalesced
// limiter   memory; latency for few rows
// backward  scatter_add_rows(dout, index)
// source    Sven, Algorithm 2: dispatch through Psi
#include "table_rows.cuh"

extern "C" __global__ void __launch_bounds__(256, 4)
gather_rows(Tables tables, const uint32_t* index, Rows rows, Rows from, Status s) {
  after_previous_kernel();
  uint32_t n = rows.live(), v = from.live();
  for (uint32_t i = warp_row(); i < n; i += warp_rows()) {
    uint32_t r = s.row_of(i, index[i], v);
    for (uint64_t k = 0; k < tables.count; k++) {
      each_number(tables.of[k], [=](auto* table, auto* out, uint32_t d) {
        for (uint32_t c = lane_id(); c < d; c += WARP) {
          out[uint64_t(i) * d + c] = r == NONE ? decltype(real(*table)){} : real(table[uint64_t(r) * d + c]);
        }
      });
    }
  }
}

// write_rows: table[index[i], :] = rows[from[i], :], in place; for up to eight tables
//
// shapes    tables [v, d] 4-byte words or 16-bit numbers, each of its own width d; index [n] u32 unique or NONE, from [n]
//           u32 or NONE, or null for 0, 1, 2, ...; rows [m, d] 4-byte words, f32 if their table is 16-bit
// grid      one warp per row, which it writes to one table after the other; lanes over the row's numbers (four per lane if
//           rows are aligned)
// memory    per table reads n d words, writes n d; reads 2 n indices; coalesced
// limiter   memory; latency for narrow rows
// backward  -
// source    -
#include "table_rows.cuh"

extern "C" __global__ void __launch_bounds__(256, 4)
write_rows(Tables tables, const uint32_t* index, const uint32_t* from, Rows to, Rows indices, Rows given, Status s) {
  after_previous_kernel();
  uint32_t v = to.live(), n = indices.live(), m = given.live();
  for (uint32_t i = warp_row(); i < n; i += warp_rows()) {
    uint32_t at = s.row_of(i, index[i], v), row = from ? s.row_of(i, from[i], m) : i;
    if (at == NONE || row == NONE) continue;
    for (uint64_t k = 0; k < tables.count; k++) {
      each_number(tables.of[k], [=](auto* table, auto* rows, uint32_t d) {
        for (uint32_t c = lane_id(); c < d; c += WARP) keep(table[uint64_t(at) * d + c], rows[uint64_t(row) * d + c]);
      });
    }
  }
}

// write_rows: table[index[i], :] = rows[from[i], :], in place
//
// shapes    table [v, d] 4-byte words or 16-bit numbers, index [n] u32 unique or NONE, from [n] u32 or NONE, or null
//           for 0, 1, 2, ...; rows [m, d] 4-byte words, f32 if the table is 16-bit
// grid      one warp per row, lanes over the row's numbers (four per lane if rows are aligned)
// memory    reads n (d + 2) words, writes n d; coalesced
// limiter   memory; latency for narrow rows
// backward  -
// source    -
#include "stored.cuh"

__device__ __forceinline__ void keep(uint32_t& to, uint32_t word) { to = word; }
__device__ __forceinline__ void keep(uint4& to, uint4 words) { to = words; }

template <class T, class In>
__device__ __forceinline__ void write_all(T* table, const uint32_t* index, const uint32_t* from, const In* rows, uint32_t v,
                                          uint32_t n, uint32_t m, uint32_t d, Status s) {
  for (uint32_t i = warp_row(); i < n; i += warp_rows()) {
    uint32_t to = s.row_of(i, index[i], v), row = from ? s.row_of(i, from[i], m) : i;
    if (to == NONE || row == NONE) continue;
    for (uint32_t c = lane_id(); c < d; c += WARP) keep(table[uint64_t(to) * d + c], rows[uint64_t(row) * d + c]);
  }
}

extern "C" __global__ void __launch_bounds__(256, 8)
write_rows(uint32_t* table, const uint32_t* index, const uint32_t* from, const uint32_t* rows, Rows to, Rows indices,
           Rows given, uint32_t d, Status s) {
  uint32_t v = to.live(), n = indices.live(), m = given.live();
  if (by_four(table, d) && by_four(rows, d)) {
    write_all(reinterpret_cast<uint4*>(table), index, from, reinterpret_cast<const uint4*>(rows), v, n, m, d / 4, s);
  } else {
    write_all(table, index, from, rows, v, n, m, d, s);
  }
}

extern "C" __global__ void __launch_bounds__(256, 8)
write_half_rows(uint16_t* table, uint32_t kind, const uint32_t* index, const uint32_t* from, const float* rows, Rows to,
                Rows indices, Rows given, uint32_t d, Status s) {
  uint32_t v = to.live(), n = indices.live(), m = given.live();
  as_kept(table, kind, [=](auto* kept) {
    if (by_four(table, d) && by_four(rows, d)) {
      write_all(fours(kept), index, from, fours(rows), v, n, m, d / 4, s);
    } else {
      write_all(kept, index, from, rows, v, n, m, d, s);
    }
  });
}

// gather_rows: out[i, :] = table[index[i], :]; zeros if the index is NONE
//
// shapes    table [v, d] 4-byte words or 16-bit numbers, index [n] u32, out [n, d] 4-byte words
// grid      one warp per row, lanes over the row's words (four words or numbers per lane if rows are aligned)
// memory    reads n d words (16-bit if the table's are) and n indices, writes n d words; coalesced
// limiter   memory
// backward  scatter_add_rows(dout, index)
// source    Sven, Algorithm 2: dispatch through Psi
#include "stored.cuh"

__device__ __forceinline__ uint32_t real(uint32_t word) { return word; }
__device__ __forceinline__ uint4 real(uint4 words) { return words; }

template <class T, class Out>
__device__ __forceinline__ void copy_rows(const T* table, const uint32_t* index, Out* out, uint32_t n, uint32_t v, uint32_t d,
                                          Status s) {
  for (uint32_t i = warp_row(); i < n; i += warp_rows()) {
    uint32_t r = s.row_of(i, index[i], v);
    const T* from = table + uint64_t(r) * d;
    Out* to = out + uint64_t(i) * d;
    for (uint32_t c = lane_id(); c < d; c += WARP) to[c] = r == NONE ? Out{} : real(from[c]);
  }
}

extern "C" __global__ void __launch_bounds__(256, 4)
gather_rows(const uint32_t* table, const uint32_t* index, uint32_t* out, Rows rows, Rows from, uint32_t d,
            Status s) {
  if (by_four(table, d) && by_four(out, d)) {
    copy_rows(reinterpret_cast<const uint4*>(table), index, reinterpret_cast<uint4*>(out), rows.live(), from.live(), d / 4, s);
  } else {
    copy_rows(table, index, out, rows.live(), from.live(), d, s);
  }
}

extern "C" __global__ void __launch_bounds__(256, 4)
gather_half_rows(const uint16_t* table, uint32_t kind, const uint32_t* index, float* out, Rows rows, Rows from, uint32_t d,
                 Status s) {
  as_kept(table, kind, [=](auto* kept) {
    if (by_four(table, d) && by_four(out, d)) {
      copy_rows(fours(kept), index, fours(out), rows.live(), from.live(), d / 4, s);
    } else {
      copy_rows(kept, index, out, rows.live(), from.live(), d, s);
    }
  });
}

// Several tables whose rows a kernel reads or writes at the same indices.
#pragma once
#include "stored.cuh"

__device__ __forceinline__ uint32_t real(uint32_t word) { return word; }
__device__ __forceinline__ uint4 real(uint4 words) { return words; }
__device__ __forceinline__ void keep(uint32_t& to, uint32_t word) { to = word; }
__device__ __forceinline__ void keep(uint4& to, uint4 words) { to = words; }

// Calls the generic lambda `use` with a table, its rows and their width, in numbers as they are stored, or in groups of
// four if the rows are aligned.
template <class Use> __device__ __forceinline__ void each_number(const TableRows& t, Use use) {
  bool by = by_four(t.table, t.width) && by_four(t.rows, t.width);
  if (t.kind) {
    as_kept(static_cast<uint16_t*>(t.table), t.kind - 1, [=](auto* kept) {
      float* rows = static_cast<float*>(t.rows);
      if (by) use(fours(kept), fours(rows), t.width / 4);
      else use(kept, rows, t.width);
    });
  } else if (by) {
    use(static_cast<uint4*>(t.table), static_cast<uint4*>(t.rows), t.width / 4);
  } else {
    use(static_cast<uint32_t*>(t.table), static_cast<uint32_t*>(t.rows), t.width);
  }
}

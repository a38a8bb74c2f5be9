// expand_targets: each root followed by its k neighbours, at the root's time or at the neighbours' own; and their rows
//
// shapes    node [n] u32, time [n] i64, neighbor [n, k] u32, own [n, k] i64 or null; target, at [n (1 + k)],
//           row [n, k], root, identity [n]
// grid      one thread per target, grid-stride loop
// memory    reads 12 n + 4 n k bytes, 8 n k more if neighbours have times, writes 12 (1 + k) n + 4 n k + 8 n; coalesced
// limiter   memory
// backward  -
// source    -
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(256, FULL)
expand_targets(const uint32_t* node, const int64_t* time, const uint32_t* neighbor, const int64_t* own, uint32_t* target, int64_t* at,
               uint32_t* row, uint32_t* root, uint32_t* identity, Rows rows, uint32_t k) {
  after_previous_kernel();
  uint32_t n = rows.live() * (1 + k);
  for (uint32_t t = uint32_t(thread_item()); t < n; t += uint32_t(thread_items())) {
    uint32_t i = t / (1 + k), j = t % (1 + k), v;
    int64_t when = time[i];
    if (j == 0) {
      v = node[i];
      if (root) root[i] = t;
      if (identity) identity[i] = i;
    } else {
      uint64_t slot = uint64_t(i) * k + j - 1;
      v = neighbor[slot];
      if (own) when = own[slot];
      if (row) row[slot] = v == NONE ? NONE : t;
    }
    if (target) target[t] = v;
    if (at) at[t] = when;
  }
}

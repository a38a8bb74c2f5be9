// Code shared by the memory update cells.
//
// n nodes, m of them with a mail; memory and mail are [v, d], edge [e, f], w and b [1, t]; messages [m, c],
// c = 2 d + f + t; weights [columns, c].
#pragma once
#include "product.cuh"

// Computes messages times weights, [m, columns], a tile at a time. The grid's x dimension may have fewer blocks than there
// are rows of tiles.
// `take(sums, tile)` computes the new memory from a tile's sums. The loop over slabs is chosen once for all tiles
// (`with_loop`). Rows that are not aligned have that of before.
template <class Take>
__device__ __forceinline__ void update_memory(const MemoryUpdate& u, uint32_t columns, Take take) {
  uint32_t m = u.mails.live(), c = u.width();
  bool aligned = by_four(u.messages, c) && by_four(u.weights, c);
  with_loop<false>(u.precision | (aligned ? 0 : TESTED), aligned, [&](auto loop) {
    for (uint32_t row0 = blockIdx.x * TILE; row0 < m; row0 += gridDim.x * TILE) {
      Tile tile{row0, m, blockIdx.y * TILE, columns};
      take(sum_of_product<Along::Sum, Along::Sum>(loop, tile, 0, c, Matrix{u.messages, c}, Matrix{u.weights, c}), tile);
    }
  });
}

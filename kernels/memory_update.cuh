// Code shared by the memory update cells.
//
// n nodes, m of them with a mail; memory and mail are [v, d], edge [e, f], w and b [1, t]; messages [m, c],
// c = 2 d + f + t; weights [columns, c].
#pragma once
#include "product.cuh"

// Computes messages times weights, [m, columns], a tile at a time: the grid may have fewer blocks than there are tiles.
// `take(sums, tile)` computes the new memory from a tile's sums.
template <class Take>
__device__ __forceinline__ void update_memory(const MemoryUpdate& u, uint32_t columns, Take take) {
  uint32_t m = u.mails.live(), c = u.width();
  uint32_t across = max(1u, (columns + TILE - 1) / TILE), tiles = (m + TILE - 1) / TILE * across;
  for (uint32_t i = blockIdx.x; i < tiles; i += gridDim.x) {
    Tile tile{i / across * TILE, m, i % across * TILE, columns};
    Sums sums = {};
    add_products<Along::Sum, Along::Sum>(u.precision, sums, tile, 0, c, Matrix{u.messages, c}, Matrix{u.weights, c});
    take(sums, tile);
  }
}

// Code shared by the memory update cells: messages, and the tiles of their products with a cell's weights.
//
// n nodes, m of them with a mail; memory and mail are [v, d], edge [e, f], w and b [1, t]; messages [m, c],
// c = 2 d + f + t.
#pragma once
#include "product.cuh"
#include "time_encoding.cuh"

// Element l of the message {s | s_partner | e | Phi(dt)} of the mail at row `node` of memory and mail and row `feature`
// of the edge features.
__device__ __forceinline__ float message(const MemoryUpdate& u, uint32_t node, uint32_t feature, float dt, uint32_t l) {
  uint32_t d = u.d, f = u.f;
  if (l < d) return u.memory[uint64_t(node) * d + l];
  if (l < 2 * d) return u.mail[uint64_t(node) * d + (l - d)];
  if (l < 2 * d + f) return u.edge[uint64_t(feature) * f + (l - 2 * d)];
  uint32_t p = l - 2 * d - f;
  return Turned(time_angle(dt, u.w[p], u.b[p])).cosine();
}

// The messages of a tile of mails, as an operand of a product.
struct Messages {
  const MemoryUpdate& u;
  const uint32_t *node, *feature;  // rows of the tile's mails
  const float* dt;
  uint32_t row0;
  bool aligned;  // whether four consecutive elements come from one table and are aligned to 16 bytes
  __device__ __forceinline__ Messages(const MemoryUpdate& u, const uint32_t* node, const uint32_t* feature, const float* dt,
                                      uint32_t row0)
      : u(u), node(node), feature(feature), dt(dt), row0(row0),
        aligned(by_four(u.memory, u.d) && by_four(u.mail, u.d) && by_four(u.edge, u.f)) {}
  __device__ __forceinline__ float operator()(uint32_t k, uint32_t l) const {
    return message(u, node[k - row0], feature[k - row0], dt[k - row0], l);
  }
  // Loads four elements at once; false for the time encoding and for unaligned tables.
  __device__ __forceinline__ bool four(uint32_t k, uint32_t l, float (&x)[EACH]) const {
    uint32_t d = u.d, f = u.f, r = k - row0;
    if (!aligned || l >= 2 * d + f) return false;
    if (l >= 2 * d) load(u.edge + (uint64_t(feature[r]) * f + (l - 2 * d)), x);
    else load((l < d ? u.memory : u.mail) + (uint64_t(node[r]) * d + (l < d ? l : l - d)), x);
    return true;
  }
};

// Computes this block's tile of messages times weights, [m, columns]. Tiles are numbered row by row.
// - `own_weight(l, column)`: the weight of element l of the node's own memory, i.e. of the first d elements.
// - `input_row(column)`: the row of weights of a whole message, used for its other elements; null for zeros.
// - `take(sums, tile, nodes)` computes the new memory from the tile's sums.
// Every thread of the grid must call it.
template <class Own, class Row, class Take>
__device__ __forceinline__ void update_memory(const MemoryUpdate& u, uint32_t columns, Own own_weight, Row input_row,
                                              Take take) {
  __shared__ uint32_t tile_node[TILE], tile_feature[TILE];
  __shared__ float tile_dt[TILE];
  uint32_t n = u.rows.live(), m = u.mails.live(), d = u.d, c = u.width();
  uint32_t across = max(1u, (columns + TILE - 1) / TILE), tiles = (m + TILE - 1) / TILE * across;

  // Work without a product: rows without a mail keep their memory, and messages are stored for the backward pass.
  // Blocks without a tile take the first rows; there are many of them if few of the rows up to the capacity are live.
  uint32_t warps = PRODUCT_THREADS / WARP, all = gridDim.x * warps;
  uint32_t first = (blockIdx.x + gridDim.x - tiles) % gridDim.x * warps + threadIdx.x / WARP;
  for (uint32_t i = first; i < n; i += all) {
    uint32_t v = u.gathered ? i : u.unique[i];
    bool is = v < u.nodes;  // if not, `memory_update_list` has reported a fault
    if (is && u.mail_event[v] != NONE) continue;
    for (uint32_t j = lane_id(); j < d; j += WARP) {
      u.out[uint64_t(i) * d + j] = is ? u.memory[uint64_t(v) * d + j] : 0.f;
    }
  }
  for (uint32_t k = first; u.messages && k < m; k += all) {
    uint32_t v = u.node[k], row = u.feature[k];
    float gap = u.dt[k];
    for (uint32_t l = lane_id(); l < c; l += WARP) u.messages[uint64_t(k) * c + l] = message(u, v, row, gap, l);
  }

  Tile tile{blockIdx.x / across * TILE, m, blockIdx.x % across * TILE, columns};
  if (tile.is_empty()) return;  // the whole block
  uint32_t row0 = tile.row0;
  if (threadIdx.x < TILE && row0 + threadIdx.x < m) {
    uint32_t k = row0 + threadIdx.x;
    tile_node[threadIdx.x] = u.node[k], tile_feature[threadIdx.x] = u.feature[k], tile_dt[threadIdx.x] = u.dt[k];
  }
  __syncthreads();  // the tile's rows have been loaded

  Sums sums = {};
  add_products<Along::Sum, Along::Sum>(
      u.precision, sums, tile, 0, d,
      ByRow{[=](uint32_t k) { return u.memory + uint64_t(tile_node[k - row0]) * d; }, by_four(u.memory, d)}, own_weight);
  add_products<Along::Sum, Along::Sum>(
      u.precision, sums, tile, d, c, Messages(u, tile_node, tile_feature, tile_dt, row0),
      ByRow{input_row, by_four(u.w_x, c)});
  take(sums, tile, tile_node);
}

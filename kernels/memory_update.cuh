// What the cells of memory updates share: messages, and the tiles of their products with a cell's weights.
//
// n nodes, m of them with a mail; memory, mail [v, d], edge [e, f], w, b [1, t]; messages [m, c], c = 2 d + f + t.
#pragma once
#include "product.cuh"

// Element l of the message {s | s_partner | e | Phi(dt)} of the mail with row `node` of memory and mail, and `feature` of the
// edge features.
__device__ __forceinline__ float message(const MemoryUpdate& u, uint32_t node, uint32_t feature, float dt, uint32_t l) {
  uint32_t d = u.d, f = u.f;
  if (l < d) return u.memory[uint64_t(node) * d + l];
  if (l < 2 * d) return u.mail[uint64_t(node) * d + (l - d)];
  if (l < 2 * d + f) return u.edge[uint64_t(feature) * f + (l - 2 * d)];
  uint32_t p = l - 2 * d - f;
  return cosf(time_angle(dt, u.w[p], u.b[p]));
}

// Messages of the mails of a tile, as an operand.
struct Messages {
  const MemoryUpdate& u;
  const uint32_t *node, *feature;  // of the tile's mails
  const float* dt;
  uint32_t row0;
  bool aligned;  // whether four elements side by side are of one part, and lie on 16 bytes
  __device__ __forceinline__ Messages(const MemoryUpdate& u, const uint32_t* node, const uint32_t* feature, const float* dt,
                                      uint32_t row0)
      : u(u), node(node), feature(feature), dt(dt), row0(row0),
        aligned(by_four(u.memory, u.d) && by_four(u.mail, u.d) && by_four(u.edge, u.f)) {}
  __device__ __forceinline__ float operator()(uint32_t k, uint32_t l) const {
    return message(u, node[k - row0], feature[k - row0], dt[k - row0], l);
  }
  // But for the time encoding.
  __device__ __forceinline__ bool four(uint32_t k, uint32_t l, float (&x)[EACH]) const {
    uint32_t d = u.d, f = u.f, r = k - row0;
    if (!aligned || l >= 2 * d + f) return false;
    if (l >= 2 * d) load(u.edge + (uint64_t(feature[r]) * f + (l - 2 * d)), x);
    else load((l < d ? u.memory : u.mail) + (uint64_t(node[r]) * d + (l < d ? l : l - d)), x);
    return true;
  }
};

// The tile of this block of messages times weights, [m, columns]; tiles are numbered row by row of tiles.
// `own_weight(l, column)` multiplies the node's own memory, with which a message begins; `input_row(column)` is the row of
// weights of whole messages, or null, of which the rest is multiplied by what is theirs. `take(sums, row0, column0, nodes)` makes new memory of the tile's sums. Every thread of the grid comes here.
template <class Own, class Row, class Take>
__device__ __forceinline__ void update_memory(const MemoryUpdate& u, uint32_t columns, Own own_weight, Row input_row,
                                              Take take) {
  __shared__ uint32_t tile_node[TILE], tile_feature[TILE];
  __shared__ float tile_dt[TILE];
  uint32_t n = u.rows.live(), m = u.mails.live(), d = u.d, c = u.width();
  uint32_t across = max(1u, (columns + TILE - 1) / TILE), tiles = (m + TILE - 1) / TILE * across;

  // What needs no product: rows without a mail keep their memory, and the backward gets its messages. Blocks without a
  // tile begin; there are many where few of the rows that there is room for are live.
  uint32_t warps = PRODUCT_THREADS / WARP, all = gridDim.x * warps;
  uint32_t first = (blockIdx.x + gridDim.x - tiles) % gridDim.x * warps + threadIdx.x / WARP;
  for (uint32_t i = first; i < n; i += all) {
    uint32_t v = u.unique[i];
    bool is = v < u.nodes;  // no node: the list has said so
    if (is && u.mail_event[v] != NONE) continue;
    for (uint32_t j = lane_id(); j < d; j += WARP) {
      u.out[uint64_t(i) * d + j] = is ? u.memory[uint64_t(u.gathered ? i : v) * d + j] : 0.f;
    }
  }
  for (uint32_t k = first; u.messages && k < m; k += all) {
    uint32_t v = u.node[k], row = u.feature[k];
    float gap = u.dt[k];
    for (uint32_t l = lane_id(); l < c; l += WARP) u.messages[uint64_t(k) * c + l] = message(u, v, row, gap, l);
  }

  uint32_t row0 = blockIdx.x / across * TILE, column0 = blockIdx.x % across * TILE;
  if (row0 >= m || column0 >= columns) return;  // the whole block
  if (threadIdx.x < TILE && row0 + threadIdx.x < m) {
    uint32_t k = row0 + threadIdx.x;
    tile_node[threadIdx.x] = u.node[k], tile_feature[threadIdx.x] = u.feature[k], tile_dt[threadIdx.x] = u.dt[k];
  }
  __syncthreads();  // the rows of the tile are known

  Sums sums = {};
  add_products<Along::Sum, Along::Sum>(
      u.precision, sums, row0, m, column0, columns, 0, d,
      ByRow{[=](uint32_t k) { return u.memory + uint64_t(tile_node[k - row0]) * d; }, by_four(u.memory, d)}, own_weight);
  add_products<Along::Sum, Along::Sum>(
      u.precision, sums, row0, m, column0, columns, d, c, Messages(u, tile_node, tile_feature, tile_dt, row0),
      ByRow{input_row, by_four(u.w_x, c)});
  take(sums, row0, column0, tile_node);
}

// head_linear: {y_h | s_h} = x_h {W_h | b_h} (up), y_h = {x_h | s_h} {W_h | b_h}^T (down), and the gradients of W and b
//
// shapes    short [n, h p] f32, long [n, h c], W [h p, c], b [1, h p], s [n, h]; if given, b and s act as an extra
//           column
// grid      one block of 256 per tile of 64 x 64 (product.cuh), heads along z; down: heads x ranges of the columns of x
//           along z, because there are few tiles, in clusters of the ranges of a tile or without clusters; weight
//           gradients: heads x row ranges along z
// memory    reads n h p c / 64 words of each operand through L2, writes n h c or n h p; down: partial sums go through
//           distributed shared memory or, without clusters, through scratch
// limiter   f32 arithmetic, 2 n h p c operations
// backward  up and down are each other's gradient; {dW_h | db_h} = short_h^T {long_h | s_h}
// source    docs/attention.md
#include "product.cuh"

extern "C" __global__ void __launch_bounds__(256, 2)
head_linear_up(const float* x, const float* w, const float* b, float* y, float* s, Rows rows, uint32_t heads, uint32_t p,
               uint32_t c, uint32_t precision) {
  after_previous_kernel();
  uint32_t h = blockIdx.z;
  product<Along::Sum, Along::Edge>(
      precision, Tile::of_block(rows.live(), b ? c + 1 : c), 0, p, Matrix{x + uint64_t(h) * p, uint64_t(heads) * p},
      WithColumns{Matrix{w + uint64_t(h) * p * c, c}, c, [=](uint32_t l, uint32_t) { return b[uint64_t(h) * p + l]; }},
      [=](const Sums& sums, Tile tile) {
        Output to{y + uint64_t(h) * c, uint64_t(heads) * c, c};
        tile.store(sums, to, [=](uint32_t i, float sum) { s[uint64_t(i) * heads + h] = sum; });
      });
}

extern "C" __global__ void __launch_bounds__(256, 2)
head_linear_down(const float* x, const float* w, const float* b, const float* s, float* made, uint32_t* tickets, float* y,
                 Rows rows, uint32_t heads, uint32_t p, uint32_t c, uint32_t precision) {
  after_previous_kernel();
  uint32_t room = gridDim.z / heads, h = blockIdx.z / room;
  Tile tile = Tile::of_block(rows.live(), p);
  Part part(c, room, 64);
  if (tile.is_empty() || part.is_idle()) return;  // the whole block
  Sums sums = sum_of_product<Along::Sum, Along::Sum>(
      precision, tile, part.first(), part.last(), Matrix{x + uint64_t(h) * c, uint64_t(heads) * c},
      Matrix{w + uint64_t(h) * p * c, c});
  bool waits = false;
  if (cluster_blocks() > 1) waits = add_parts_in_cluster(sums, part, tile);
  else if (!add_parts(sums, part, {made, tickets})) return;
  if (b) {
    tile.map(sums, [=](uint32_t i, uint32_t j, float sum) {
      return sum + b[uint64_t(h) * p + j] * s[uint64_t(i) * heads + h];
    });
  }
  tile.store(sums, Output{y + uint64_t(h) * p, uint64_t(heads) * p, p});
  if (waits) cluster_wait();
}

// dw and db may be null.
extern "C" __global__ void __launch_bounds__(256, 2)
head_weight_grad(const float* dshort, const float* dlong, const float* s, float* made, uint32_t* tickets, float* dw,
                 float* db, Rows rows, uint32_t heads, uint32_t p, uint32_t c, uint32_t precision) {
  after_previous_kernel();
  uint32_t room = gridDim.z / heads, h = blockIdx.z / room;
  product_over_rows(
      precision, p, s ? c + 1 : c, rows.live(), room, {made, tickets},
      Matrix{dshort + uint64_t(h) * p, uint64_t(heads) * p},
      WithColumns{Matrix{dlong + uint64_t(h) * c, uint64_t(heads) * c}, c,
                  [=](uint32_t i, uint32_t) { return s[uint64_t(i) * heads + h]; }},
      [=](const Sums& sums, Tile tile) {
        Output to{dw ? dw + uint64_t(h) * p * c : nullptr, c, c};
        tile.store(sums, to, [=](uint32_t l, float sum) { if (db) db[uint64_t(h) * p + l] = sum; });
      });
}

// linear_pair: y1 = x w1^T + b1 and y2 = x w2^T + b2, and their gradients
//
// shapes    x [n, k] f32, w1 [m1, k], w2 [m2, k], b1 [1, m1], b2 [1, m2], y1 [n, m1], y2 [n, m2]
// grid      a block of 256 a tile of 64 x 64 (product.cuh), rows along x, the tiles of y1 and then those of y2 along y; weight
//           gradients: parts of the rows of the first, then of the second, along z
// memory    reads n k (m1 + m2) / 64 words of each operand through L2, writes n (m1 + m2)
// limiter   f32 arithmetic, 2 n k (m1 + m2) operations
// backward  dx = dy1 w1 + dy2 w2, dw_i = dy_i^T x, db_i = column sums of dy_i
// source    -
#include "product.cuh"

extern "C" __global__ void __launch_bounds__(256, 2)
linear_pair(const float* x, const float* w1, const float* b1, const float* w2, const float* b2, float* y1, float* y2,
            Rows rows, uint32_t k, uint32_t m1, uint32_t m2, uint32_t precision) {
  uint32_t of_first = max(1u, (m1 + TILE - 1) / TILE), n = rows.live();
  bool second = blockIdx.y >= of_first;
  const float *w = second ? w2 : w1, *b = second ? b2 : b1;
  float* y = second ? y2 : y1;
  uint32_t m = second ? m2 : m1;
  uint32_t row0 = blockIdx.x * TILE, column0 = (blockIdx.y - (second ? of_first : 0)) * TILE;
  if (row0 >= n || column0 >= m) return;  // the whole block
  Sums sums = {};
  add_products<Along::Sum, Along::Sum>(
      precision, sums, row0, n, column0, m, 0, k, [=](uint32_t i, uint32_t l) { return x[uint64_t(i) * k + l]; },
      [=](uint32_t l, uint32_t j) { return w[uint64_t(j) * k + l]; });
  take_sums(sums, row0, n, column0, m, [=](uint32_t i, uint32_t j, float z) { y[uint64_t(i) * m + j] = z + b[j]; });
}

extern "C" __global__ void __launch_bounds__(256, 2)
linear_pair_input_grad(const float* dy1, const float* w1, const float* dy2, const float* w2, float* dx, Rows rows,
                       uint32_t m1, uint32_t m2, uint32_t k, uint32_t precision) {
  uint32_t n = rows.live(), row0 = blockIdx.x * TILE, column0 = blockIdx.y * TILE;
  if (row0 >= n || column0 >= k) return;  // the whole block
  Sums sums = {};
#pragma unroll 1  // the code once
  for (uint32_t of = 0; of < 2; of++) {
    const float *dy = of ? dy2 : dy1, *w = of ? w2 : w1;
    uint32_t m = of ? m2 : m1;
    add_products<Along::Sum, Along::Edge>(
        precision, sums, row0, n, column0, k, 0, m, [=](uint32_t i, uint32_t j) { return dy[uint64_t(i) * m + j]; },
        [=](uint32_t j, uint32_t l) { return w[uint64_t(j) * k + l]; });
  }
  take_sums(sums, row0, n, column0, k, [=](uint32_t i, uint32_t l, float sum) { dx[uint64_t(i) * k + l] = sum; });
}

extern "C" __global__ void __launch_bounds__(256, 2)
linear_pair_weight_grad(const float* dy1, const float* dy2, const float* x, float* made, uint32_t* tickets, float* dw1,
                        float* db1, float* dw2, float* db2, Rows rows, uint32_t m1, uint32_t m2, uint32_t k,
                        uint32_t precision) {
  uint32_t parts = gridDim.z / 2;
  bool second = blockIdx.z >= parts;
  const float* dy = second ? dy2 : dy1;
  float *dw = second ? dw2 : dw1, *db = second ? db2 : db1;
  uint32_t m = second ? m2 : m1;
  weight_grad(
      precision, rows.live(), m, k, parts, {made, tickets}, [=](uint32_t i, uint32_t j) { return dy[uint64_t(i) * m + j]; },
      [=](uint32_t i, uint32_t l) { return x[uint64_t(i) * k + l]; }, WeightAndBias{dw, db, k});
}

// linear_pair: y1 = x w1^T + c v^T + b1 and y2 = x w2^T + b2, and their gradients; that of x may be added to a base
//
// shapes    x [n, k] f32, c [1, s], w1 [m1, k], v [m1, s], w2 [m2, k], b1 [1, m1], b2 [1, m2], y1 [n, m1], y2 [n, m2];
//           base [n', k], n' >= n
// grid      one block of 256 per tile of 64 x 64 (product.cuh), rows along x, the tiles of y1 and then those of y2
//           along y; weight gradients: the row ranges of the first linear map, then of the second, along z
// memory    reads n k (m1 + m2) / 64 words of each operand through L2, and v once per 64 rows; writes n (m1 + m2)
// limiter   f32 arithmetic, 2 n k (m1 + m2) operations
// backward  dx = base + dy1 w1 + dy2 w2, dw_i = dy_i^T x, db_i = column sums of dy_i, dv = db1^T c
// source    -
#include "product.cuh"

// One thread's partial sum of c . v, which four threads compute together: V of every 4 V elements.
template <int V> __device__ __forceinline__ float share_of_dot(const float* c, const float* v, uint32_t s) {
  float sum = 0.f;
#pragma unroll 4  // 4 loads in flight at once
  for (uint32_t l = threadIdx.x % 4 * V; l < s; l += 4 * V) {
    float a[V], b[V];
    load(c + l, a), load(v + l, b);
#pragma unroll
    for (int i = 0; i < V; i++) sum = fmaf(a[i], b[i], sum);
  }
  return sum;
}

extern "C" __global__ void __launch_bounds__(256, 2)
linear_pair(const float* x, const float* w1, const float* b1, const float* c, const float* v, const float* w2,
            const float* b2, float* y1, float* y2, Rows rows, uint32_t k, uint32_t s, uint32_t m1, uint32_t m2,
            uint32_t precision) {
  after_previous_kernel();
  __shared__ float bias[TILE];
  uint32_t of_first = max(1u, (m1 + TILE - 1) / TILE), n = rows.live();
  bool second = blockIdx.y >= of_first;
  const float *w = second ? w2 : w1, *b = second ? b2 : b1;
  float* y = second ? y2 : y1;
  uint32_t m = second ? m2 : m1;
  Tile tile{blockIdx.x * TILE, n, (blockIdx.y - (second ? of_first : 0)) * TILE, m};
  if (tile.is_empty()) return;  // the whole block
  // The term that all rows share, four threads per column; the first barrier of the product makes it visible.
  uint32_t column = threadIdx.x / 4, j = tile.column0 + column;
  float shared = 0.f;
  if (!second && j < m) {
    const float* of_v = v + uint64_t(j) * s;
    shared = by_four(c, s) && by_four(v, s) ? share_of_dot<4>(c, of_v, s) : share_of_dot<1>(c, of_v, s);
  }
  shared += __shfl_xor_sync(ALL, shared, 1), shared += __shfl_xor_sync(ALL, shared, 2);
  if (threadIdx.x % 4 == 0 && j < m) bias[column] = b[j] + shared;
  Sums sums = sum_of_product<Along::Sum, Along::Sum>(precision, tile, 0, k, Matrix{x, k}, Matrix{w, k});
  tile.map(sums, [&](uint32_t, uint32_t j, float z) { return z + bias[j - tile.column0]; });
  tile.store(sums, Output{y, m, m});
}

extern "C" __global__ void __launch_bounds__(256, 2)
linear_pair_input_grad(const float* dy1, const float* w1, const float* dy2, const float* w2, const float* base, float* dx,
                       Rows rows, Rows base_rows, uint32_t m1, uint32_t m2, uint32_t k, uint32_t precision) {
  after_previous_kernel();
  uint32_t n = rows.live();
  Tile to = Tile::of_block(base ? base_rows.live() : n, k);
  if (to.is_empty()) return;  // the whole block
  Tile tile = Tile::of_block(min(n, to.rows), k);
  Sums sums = sum_of_products<Along::Sum, Along::Edge>(precision, tile, [=](auto add) {
#pragma unroll 1  // one copy of the code
    for (uint32_t of = 0; of < 2; of++) {
      uint32_t m = of ? m2 : m1;
      add(Matrix{of ? dy2 : dy1, m}, Matrix{of ? w2 : w1, k}, 0, m);
    }
  });
  // Beyond the rows of the products, `sums` has no meaning.
  if (base) {
    to.map(sums, [=](uint32_t i, uint32_t j, float sum) {
      return base[uint64_t(i) * k + j] + (i < tile.rows ? sum : 0.f);
    });
  }
  to.store(sums, Output{dx, k, k});
}

// Any of the outputs may be null.
extern "C" __global__ void __launch_bounds__(256, 2)
linear_pair_weight_grad(const float* dy1, const float* dy2, const float* x, const float* c, float* made, uint32_t* tickets,
                        float* dw1, float* db1, float* dw2, float* db2, float* dv, Rows rows, uint32_t m1, uint32_t m2,
                        uint32_t k, uint32_t s, uint32_t precision) {
  after_previous_kernel();
  uint32_t room = gridDim.z / 2;
  bool second = blockIdx.z >= room;
  const float* dy = second ? dy2 : dy1;
  float *dw = second ? dw2 : dw1, *db = second ? db2 : db1, *shared = second ? nullptr : dv;
  uint32_t m = second ? m2 : m1;
  weight_grad(
      precision, rows.live(), m, k, room, {made, tickets}, Matrix{dy, m}, Matrix{x, k},
      [=](const Sums& sums, Tile tile) {
        __shared__ float of_rows[TILE];
        tile.store(sums, Output{dw, k, k}, [=](uint32_t j, float sum) {
          if (db) db[j] = sum;
          of_rows[j - tile.row0] = sum;
        });
        if (!shared || k < tile.column0 || k >= tile.column0 + TILE) return;  // the whole block
        __syncthreads();  // the sums of all rows have been written
        uint32_t items = min(TILE, m - tile.row0) * s;
        for (uint32_t i = threadIdx.x; i < items; i += PRODUCT_THREADS) {
          shared[uint64_t(tile.row0) * s + i] = of_rows[i / s] * c[i % s];
        }
      });
}

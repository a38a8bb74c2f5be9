// linear: y = drop(act(x w^T + b + residual)), and its gradients
//
// shapes    x [n, k] f32, w [m, k], b [1, m], residual and y [n, m]
// grid      one block of 256 per tile of 64 x 64 (product.cuh), rows along x; weight gradients: row ranges along z;
//           narrow maps: one thread per row, grid-stride loop over blocks of 256 rows
// memory    reads n k m / 64 words of each operand through L2, writes n m; narrow maps: reads n k, writes n m, coalesced,
//           through shared memory (38 KB, no bank conflicts)
// limiter   f32 arithmetic, 2 n k m operations; narrow maps: memory
// backward  activation_grad (four elements per thread, 16 bytes at a time; limited by memory), then dx = dz w,
//           dw = dz^T x, db = column sums of dz
// source    -
#include "product.cuh"

extern "C" __global__ void __launch_bounds__(256, 2)
linear(const float* x, const float* w, const float* b, const float* residual, float* y, Rows rows, uint32_t k, uint32_t m,
       Epilogue epilogue, uint32_t precision) {
  after_previous_kernel();
  // Mask of this thread's elements that the dropout keeps; computed here because one draw serves several elements.
  uint32_t kept = 0;
#pragma unroll 1
  for (uint32_t i = 0; i < EACH; i++) {
    uint64_t row = blockIdx.x * TILE + own_row() + i;
    kept |= epilogue.drop.kept(row * m + blockIdx.y * TILE + own_column()) << (EACH * i);
  }
  product<Along::Sum, Along::Sum>(
      precision, Tile::of_block(rows.live(), m), 0, k, Matrix{x, k}, Matrix{w, k},
      [=](Sums sums, Tile tile) {
        if (b) tile.map(sums, [=](uint32_t, uint32_t j, float z) { return z + b[j]; });
        if (residual) tile.map(sums, [=](uint32_t i, uint32_t j, float z) { return z + residual[uint64_t(i) * m + j]; });
        tile.map(sums, [=](uint32_t i, uint32_t j, float z) { return epilogue.of(z, kept, i % EACH * EACH + j % EACH); });
        tile.store(sums, Output{y, m, m});
      });
}

// The gradient of the V elements from `first` on.
template <int V>
__device__ __forceinline__ void grad_of(const float* y, const float* dy, float* dz, uint64_t first, const Epilogue& epilogue) {
  float value[V], grad[V];
  load(y + first, value), load(dy + first, grad);
  uint32_t kept = epilogue.activation == 1 ? 0 : epilogue.drop.kept(first);
#pragma unroll
  for (int i = 0; i < V; i++) grad[i] = epilogue.grad(value[i], grad[i], kept, i);
  store(dz + first, grad);
}

extern "C" __global__ void __launch_bounds__(256, 4)
activation_grad(const float* y, const float* dy, float* dz, Rows rows, uint32_t m, Epilogue epilogue) {
  after_previous_kernel();
  uint64_t n = uint64_t(rows.live()) * m;
  bool aligned = by_four(y, 4) && by_four(dy, 4) && by_four(dz, 4);
  for (uint64_t first = 4 * thread_item(); first < n; first += 4 * thread_items()) {
    if (aligned && first + 4 <= n) {
      grad_of<4>(y, dy, dz, first, epilogue);
    } else {
      for (uint64_t i = first; i < n && i < first + 4; i++) grad_of<1>(y, dy, dz, i, epilogue);
    }
  }
}

extern "C" __global__ void __launch_bounds__(256, 2)
linear_input_grad(const float* dz, const float* w, float* dx, Rows rows, uint32_t m, uint32_t k, uint32_t precision) {
  after_previous_kernel();
  product<Along::Sum, Along::Edge>(
      precision, Tile::of_block(rows.live(), k), 0, m, Matrix{dz, m}, Matrix{w, k},
      [=](const Sums& sums, Tile tile) { tile.store(sums, Output{dx, k, k}); });
}

extern "C" __global__ void __launch_bounds__(256, 2)
linear_weight_grad(const float* dz, const float* x, float* made, uint32_t* tickets, float* dw, float* db, Rows rows,
                   uint32_t m, uint32_t k, uint32_t precision) {
  after_previous_kernel();
  weight_grad(
      precision, rows.live(), m, k, gridDim.z, {made, tickets}, Matrix{dz, m}, Matrix{x, k},
      [=](const Sums& sums, Tile tile) {
        tile.store(sums, Output{dw, k, k}, [=](uint32_t j, float sum) { if (db) db[j] = sum; });
      });
}

// ---- narrow maps ----
// Where neither width exceeds NARROW, most of a tile would be empty. Instead, a thread multiplies a row on the vector
// units; the rows of a block pass through shared memory, in which they are an odd number of floats apart.
constexpr uint32_t NARROW = 32;  // `NARROW` in src/ops/dense/linear.rs
constexpr uint32_t BLOCK_ROWS = 256;

// Calls `f(first, place, column)` for every four consecutive elements of the rows of a block: their places in shared
// memory, and their columns.
template <class F> __device__ __forceinline__ void each_four(uint32_t elements, uint32_t width, F f) {
  constexpr uint32_t STEP = 4 * BLOCK_ROWS;
  uint32_t row = 4 * threadIdx.x / width, column = 4 * threadIdx.x % width;
  for (uint32_t first = 4 * threadIdx.x; first < elements; first += STEP) {
    uint32_t place[4], at[4], r = row, c = column;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
      place[i] = r * (width | 1) + c, at[i] = c;
      if (++c == width) c = 0, r++;
    }
    f(first, place, at);
    row += STEP / width, column += STEP % width;
    if (column >= width) column -= width, row++;
  }
}

// The products of the rows x [n, depth] with `width` vectors `weight(j, l)`. Calls `out(first, z, column)` for every four
// elements of the result, of which those below `n width` count.
template <class Weight, class Out>
__device__ __forceinline__ void narrow_product(const float* x, uint32_t n, uint32_t depth, uint32_t width, Weight weight,
                                               Out out) {
  __shared__ __align__(16) float weights[NARROW][NARROW];
  __shared__ float tile[BLOCK_ROWS * (NARROW + 1)];
  for (uint32_t i = threadIdx.x; i < NARROW * NARROW; i += BLOCK_ROWS) {
    uint32_t j = i / NARROW, l = i % NARROW;
    weights[j][l] = j < width && l < depth ? weight(j, l) : 0.f;
  }
  bool aligned = by_four(x, 4);
  for (uint64_t row0 = uint64_t(blockIdx.x) * BLOCK_ROWS; row0 < n; row0 += uint64_t(gridDim.x) * BLOCK_ROWS) {
    uint32_t rows = uint32_t(min(uint64_t(BLOCK_ROWS), n - row0)), elements = rows * depth;
    const float* from = x + row0 * depth;
    each_four(elements, depth, [&](uint32_t first, const uint32_t(&place)[4], const uint32_t(&)[4]) {
      float v[4];
      bool whole = aligned && first + 4 <= elements;
      if (whole) load(from + first, v);
#pragma unroll
      for (uint32_t i = 0; i < 4; i++) {
        if (first + i < elements) tile[place[i]] = whole ? v[i] : from[first + i];
      }
    });
    __syncthreads();  // the rows and the weights have been written
    float in[NARROW], *own = tile + threadIdx.x * (depth | 1);
#pragma unroll
    for (uint32_t l = 0; l < NARROW; l++) in[l] = threadIdx.x < rows && l < depth ? own[l] : 0.f;
    __syncthreads();  // the rows have been read
    own = tile + threadIdx.x * (width | 1);
#pragma unroll 1
    for (uint32_t j = 0; threadIdx.x < rows && j < width; j++) {
      float sum = 0.f;
#pragma unroll
      for (uint32_t l = 0; l < NARROW; l += 4) {
        if (l >= depth) break;
        float w[4];
        load(&weights[j][l], w);
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) sum = fmaf(in[l + i], w[i], sum);
      }
      own[j] = sum;
    }
    __syncthreads();  // the results have been written
    each_four(rows * width, width, [&](uint32_t first, const uint32_t(&place)[4], const uint32_t(&at)[4]) {
      float z[4];
#pragma unroll
      for (uint32_t i = 0; i < 4; i++) z[i] = first + i < rows * width ? tile[place[i]] : 0.f;
      out(row0 * width + first, z, at);
    });
    __syncthreads();  // the results have been read
  }
}

// Stores four consecutive elements, of which those below `elements` count.
__device__ __forceinline__ void store_below(float* y, uint64_t first, uint64_t elements, const float (&v)[4]) {
  if (by_four(y, 4) && first + 4 <= elements) return store(y + first, v);
  for (uint32_t i = 0; i < 4 && first + i < elements; i++) y[first + i] = v[i];
}

extern "C" __global__ void __launch_bounds__(256, 2)
linear_narrow(const float* x, const float* w, const float* b, const float* residual, float* y, Rows rows, uint32_t k,
              uint32_t m, Epilogue epilogue) {
  after_previous_kernel();
  uint32_t n = rows.live();
  uint64_t elements = uint64_t(n) * m;
  narrow_product(
      x, n, k, m, [=](uint32_t j, uint32_t l) { return w[j * k + l]; },
      [=](uint64_t first, float(&z)[4], const uint32_t(&column)[4]) {
        uint32_t kept = epilogue.drop.kept(first);
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
          if (b) z[i] += b[column[i]];
          if (residual && first + i < elements) z[i] += residual[first + i];
          z[i] = epilogue.of(z[i], kept, i);
        }
        store_below(y, first, elements, z);
      });
}

extern "C" __global__ void __launch_bounds__(256, 2)
linear_narrow_input_grad(const float* dz, const float* w, float* dx, Rows rows, uint32_t m, uint32_t k) {
  after_previous_kernel();
  uint32_t n = rows.live();
  narrow_product(
      dz, n, m, k, [=](uint32_t l, uint32_t j) { return w[j * k + l]; },
      [=](uint64_t first, const float(&sum)[4], const uint32_t(&)[4]) { store_below(dx, first, uint64_t(n) * k, sum); });
}

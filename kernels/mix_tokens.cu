// mix_tokens: y = x + drop(W2 drop(gelu(W1 LayerNorm(x) + b1)) + b2) over the k rows of each root, and its gradient
//
// shapes    x, y, dy, dx [n k, d] f32, gain, bias, b2 [1, k], w1 [m, k], b1 [1, m], w2 [k, m]
// grid      one block per tile: some columns, counted over all roots, which follow each other in memory for each token,
//           and all tokens of them in shared memory; grid-stride loop. A thread normalises a column, then computes four
//           rows (hidden units or tokens) of four columns at a time. Gradient: a fixed number of blocks, each of which sums
//           the gradients of the weights over its tiles; a warp sums those of four rows by four rows over the columns. A
//           second kernel adds the sums of the blocks
// memory    reads 2 n k d words (the second time from the L2 cache), writes n k d; gradient: reads 3 n k d; coalesced, 16
//           bytes at a time if aligned. The weights are read through the L1 cache, by all lanes of a warp at once
// limiter   shared memory, random numbers
// backward  computed again from x; see src/ops/dense/mix_tokens/mod.rs
// source    Tolstikhin et al. 2021; Cong et al., ICLR 2023
#include "gelu.cuh"

constexpr uint32_t MEMORY = 8000, GRAD_MEMORY = 12000;  // of src/ops/dense/mix_tokens/mod.rs
constexpr uint32_t ROWS = 4;                            // rows that a thread computes at a time

// The operands that the kernel and its gradient share.
struct Mixer {
  const float *x, *gain, *bias, *w1, *b1, *w2;
  uint32_t k, m, d;
  float eps;
};

// Columns `first` to `first + columns` of all `live` ones, which roots have one after the other. In shared memory, rows
// are `columns` long, and columns that are not live are zero.
struct Tile {
  uint32_t first, columns, live, k, m, d;
  __device__ __forceinline__ bool has(uint32_t c) const { return first + c < live; }
  // The element of x at the first token of a column, and that of the first dropout at its first hidden unit; the next
  // ones are d further.
  __device__ __forceinline__ uint64_t token(uint32_t c) const { return start(c, k); }
  __device__ __forceinline__ uint64_t unit(uint32_t c) const { return start(c, m); }
  __device__ __forceinline__ uint64_t start(uint32_t c, uint32_t rows) const {
    uint32_t at = first + c, root = at / d;
    return uint64_t(root) * rows * d + (at - root * d);
  }
};

// Calls `work(row, c)` for the first of every ROWS rows of `rows` and the first of every V columns, in turn for each
// thread.
template <int V, class Work>
__device__ __forceinline__ void each_patch(uint32_t rows, uint32_t columns, Work work) {
  uint32_t across = columns / V, down = (rows + ROWS - 1) / ROWS;
  for (uint32_t i = threadIdx.x; i < across * down; i += blockDim.x) work(i / across * ROWS, i % across * V);
}

// Adds the products of ROWS rows of weights from `row` on, `down` numbers apart, and V columns from `c` on of the rows
// that `load_row(t, v)` loads; weights of a row are `along` numbers apart. Rows beyond the last of `rows` repeat it.
template <int V, class Load>
__device__ __forceinline__ void add_products(float (&sums)[ROWS][V], const float* w, uint32_t down, uint32_t along, uint32_t row,
                                             uint32_t rows, uint32_t terms, Load load_row) {
  uint32_t at[ROWS];  // no layer has more weights than 32 bits count
#pragma unroll
  for (uint32_t i = 0; i < ROWS; i++) at[i] = min(row + i, rows - 1) * down;
#pragma unroll 2
  for (uint32_t t = 0; t < terms; t++) {
    float v[V];
    load_row(t, v);
#pragma unroll
    for (uint32_t i = 0; i < ROWS; i++) {
      float weight = w[at[i] + t * along];
#pragma unroll
      for (int l = 0; l < V; l++) sums[i][l] = fmaf(weight, v[l], sums[i][l]);
    }
  }
}

// Normalises the columns of a tile into `xh`, times `gain` plus `bias` if they are not null; `rstd` receives 1 /
// deviation, unless it is null.
__device__ __forceinline__ void normalise(const Mixer& o, const Tile& tile, const float* gain, const float* bias, float* xh,
                                          float* rstd) {
  for (uint32_t c = threadIdx.x; c < tile.columns; c += blockDim.x) {
    const float* x = o.x + (tile.has(c) ? tile.token(c) : 0);
    float sum = 0, squares = 0;
#pragma unroll 4
    for (uint32_t t = 0; t < o.k; t++) {
      float v = tile.has(c) ? x[uint64_t(t) * o.d] : 0.f;
      xh[t * tile.columns + c] = v, sum += v;
    }
    float mean = sum / float(o.k);
#pragma unroll 4
    for (uint32_t t = 0; t < o.k; t++) {
      float v = xh[t * tile.columns + c] - mean;
      squares += v * v;
    }
    float scale = 1.f / sqrtf(squares / float(o.k) + o.eps);
#pragma unroll 4
    for (uint32_t t = 0; t < o.k; t++) {
      float v = (xh[t * tile.columns + c] - mean) * scale;
      xh[t * tile.columns + c] = gain ? v * gain[t] + bias[t] : v;
    }
    if (rstd) rstd[c] = scale;
  }
}

template <int V>
__device__ __forceinline__ void mix(const Mixer& o, const float* b2, float* y, uint32_t roots, uint32_t columns, uint32_t hidden,
                                    const Drop& first, const Drop& second, float* memory) {
  float *v = memory, *g = memory + o.k * columns;
  Tile tile{0, columns, roots * o.d, o.k, o.m, o.d};
  for (uint64_t at = uint64_t(blockIdx.x) * columns; at < tile.live; at += uint64_t(gridDim.x) * columns) {
    tile.first = uint32_t(at);
    normalise(o, tile, o.gain, o.bias, v, nullptr);
    __syncthreads();  // the columns are normalised
    for (uint32_t from = 0; from < o.m; from += hidden) {
      uint32_t units = min(hidden, o.m - from);
      each_patch<V>(units, columns, [&](uint32_t j, uint32_t c) {
        float z[ROWS][V];
#pragma unroll
        for (uint32_t i = 0; i < ROWS; i++) {
          for (int l = 0; l < V; l++) z[i][l] = o.b1[from + min(j + i, units - 1)];
        }
        add_products<V>(z, o.w1 + uint64_t(from) * o.k, o.k, 1, j, units, o.k,
                        [&](uint32_t t, float(&of)[V]) { load(v + t * columns + c, of); });
        uint64_t unit = tile.unit(c) + uint64_t(from + j) * o.d;
#pragma unroll
        for (uint32_t i = 0; i < ROWS; i++) {
          if (j + i >= units) continue;
          uint32_t kept = first.kept(unit + uint64_t(i) * o.d);
#pragma unroll
          for (int l = 0; l < V; l++) z[i][l] *= below(z[i][l]) * first.factor_of(kept >> l & 1);
          store(g + (j + i) * columns + c, z[i]);
        }
      });
      __syncthreads();  // the hidden units are there
      bool last = from + units == o.m;
      each_patch<V>(o.k, columns, [&](uint32_t t, uint32_t c) {
        if (!tile.has(c)) return;
        float u[ROWS][V];
        uint64_t element = tile.token(c) + uint64_t(t) * o.d;
#pragma unroll
        for (uint32_t i = 0; i < ROWS; i++) {
          uint32_t row = min(i, o.k - 1 - t);
          // Sums over earlier hidden units are in y.
          if (from > 0) load(y + element + uint64_t(row) * o.d, u[i]);
          else for (int l = 0; l < V; l++) u[i][l] = b2[t + row];
        }
        add_products<V>(u, o.w2 + from, o.m, 1, t, o.k, units,
                        [&](uint32_t j, float(&of)[V]) { load(g + j * columns + c, of); });
#pragma unroll
        for (uint32_t i = 0; i < ROWS; i++) {
          uint64_t place = element + uint64_t(i) * o.d;
          if (t + i >= o.k) continue;
          if (last) {
            float x[V];
            load(o.x + place, x);
            uint32_t kept = second.kept(place);
#pragma unroll
            for (int l = 0; l < V; l++) u[i][l] = x[l] + u[i][l] * second.factor_of(kept >> l & 1);
          }
          store(y + place, u[i]);
        }
      });
      __syncthreads();  // the hidden units have been read
    }
  }
}

extern "C" __global__ void __launch_bounds__(256, 3)
mix_tokens(const float* x, const float* gain, const float* bias, const float* w1, const float* b1, const float* w2,
           const float* b2, float* y, Rows rows, uint32_t k, uint32_t m, uint32_t d, float eps, uint32_t columns,
           uint32_t hidden, Epilogue first, Epilogue second) {
  after_previous_kernel();
  __shared__ float4 memory[MEMORY / 4];
  Mixer o{x, gain, bias, w1, b1, w2, k, m, d, eps};
  float* shared = &memory[0].x;
  uint32_t roots = rows.live() / k;
  if (columns % 4 == 0 && by_four(x, d) && by_four(y, d)) {
    mix<4>(o, b2, y, roots, columns, hidden, first.drop, second.drop, shared);
  } else {
    mix<1>(o, b2, y, roots, columns, hidden, first.drop, second.drop, shared);
  }
}

// Adds to `sums[i down + j along]` the sum over the columns of row i of `a` times row j of `b`; a warp has four rows by
// four at a time. `load_a(row, c, v)` loads V columns of a row.
template <int V, class A, class B>
__device__ __forceinline__ void add_outer(float* sums, uint32_t down, uint32_t along, uint32_t a_rows, uint32_t b_rows,
                                          uint32_t columns, A load_a, B load_b) {
  uint32_t across = (b_rows + ROWS - 1) / ROWS, patches = (a_rows + ROWS - 1) / ROWS * across;
  for (uint32_t patch = threadIdx.x / WARP; patch < patches; patch += blockDim.x / WARP) {
    uint32_t row = patch / across * ROWS, column = patch % across * ROWS;
    float v[WARP] = {};
    for (uint32_t c = lane_id() * V; c < columns; c += WARP * V) {
      float b[ROWS][V];
#pragma unroll
      for (uint32_t j = 0; j < ROWS; j++) load_b(min(column + j, b_rows - 1), c, b[j]);
#pragma unroll
      for (uint32_t i = 0; i < ROWS; i++) {
        float a[V];
        load_a(min(row + i, a_rows - 1), c, a);
#pragma unroll
        for (uint32_t j = 0; j < ROWS; j++) {
#pragma unroll
          for (int l = 0; l < V; l++) v[i * ROWS + j] = fmaf(a[l], b[j][l], v[i * ROWS + j]);
        }
      }
    }
    transposed_sums<WARP / 4>(v);  // of each half of the warp
    float sum = v[0] + __shfl_xor_sync(ALL, v[0], int(WARP / 2));
    uint32_t i = row + lane_id() / ROWS, j = column + lane_id() % ROWS;
    if (lane_id() < ROWS * ROWS && i < a_rows && j < b_rows) sums[uint64_t(i) * down + uint64_t(j) * along] += sum;
  }
}

// Adds to `sums[row]` the sum over the columns of `term(row, c)`, for each row; a warp has a row at a time.
template <class Term>
__device__ __forceinline__ void add_row_sums(float* sums, uint32_t rows, uint32_t columns, Term term) {
  for (uint32_t row = threadIdx.x / WARP; row < rows; row += blockDim.x / WARP) {
    float sum = 0;
    for (uint32_t c = lane_id(); c < columns; c += WARP) sum += term(row, c);
    sum = warp_sum(sum);
    if (lane_id() == 0) sums[row] += sum;
  }
}

// The gradients of the weights, one after the other, as every block sums them.
struct WeightGrads {
  float *gain, *bias, *w1, *b1, *w2, *b2, *end;
  __device__ __forceinline__ WeightGrads(float* sums, uint32_t block, uint32_t k, uint32_t m) {
    uint64_t weights = uint64_t(k) * m;
    gain = sums + block * (2 * weights + 3 * k + m), bias = gain + k, w1 = bias + k, b1 = w1 + weights, w2 = b1 + m;
    b2 = w2 + weights, end = b2 + k;
  }
};

// The parts of shared memory of the gradient: normalised tokens, gradients of the second layer's sums and of the
// normalised tokens, hidden units, their gradients, and 1 / deviation of each column.
struct GradMemory {
  float *xh, *du, *dv, *g, *dz, *rstd;
  __device__ __forceinline__ GradMemory(float* memory, uint32_t k, uint32_t columns, uint32_t hidden) {
    xh = memory, du = xh + k * columns, dv = du + k * columns, g = dv + k * columns, dz = g + hidden * columns;
    rstd = dz + hidden * columns;
  }
};

// The hidden units `from` to `from + units` of a tile and their gradients.
template <int V>
__device__ __forceinline__ void hidden_gradients(const Mixer& o, const Tile& tile, uint32_t from, uint32_t units, const Drop& drop,
                                                 const GradMemory& s) {
  uint32_t columns = tile.columns;
  each_patch<V>(units, columns, [&](uint32_t j, uint32_t c) {
    // First the gradients behind the GELU, which stay in shared memory meanwhile: registers for both sums would not do.
    float sums[ROWS][V] = {};
    add_products<V>(sums, o.w2 + from, 1, o.m, j, units, o.k,
                    [&](uint32_t t, float(&v)[V]) { load(s.du + t * columns + c, v); });
#pragma unroll
    for (uint32_t i = 0; i < ROWS; i++) {
      if (j + i < units) store(s.dz + (j + i) * columns + c, sums[i]);
      for (int l = 0; l < V; l++) sums[i][l] = o.b1[from + min(j + i, units - 1)];
    }
    add_products<V>(sums, o.w1 + uint64_t(from) * o.k, o.k, 1, j, units, o.k, [&](uint32_t t, float(&v)[V]) {
      load(s.xh + t * columns + c, v);
      for (int l = 0; l < V; l++) v[l] = v[l] * o.gain[t] + o.bias[t];
    });
    uint64_t unit = tile.unit(c) + uint64_t(from + j) * o.d;
#pragma unroll
    for (uint32_t i = 0; i < ROWS; i++) {
      if (j + i >= units) continue;
      float dz[V];
      load(s.dz + (j + i) * columns + c, dz);
      uint32_t kept = drop.kept(unit + uint64_t(i) * o.d);
#pragma unroll
      for (int l = 0; l < V; l++) {
        float z = sums[i][l], p = below(z), factor = drop.factor_of(kept >> l & 1);
        sums[i][l] = z * p * factor, dz[l] *= (p + z * density(z)) * factor;
      }
      store(s.g + (j + i) * columns + c, sums[i]), store(s.dz + (j + i) * columns + c, dz);
    }
  });
}

// dx = (dv gain - mean(dv gain) - xh mean(dv gain xh)) rstd + dy. The product from which its mean is subtracted is
// rounded first: fused with the subtraction, it would leave its rounding error where a root has one token.
__device__ __forceinline__ void input_gradients(const Mixer& o, const Tile& tile, const float* dy, float* dx, const GradMemory& s) {
  for (uint32_t c = threadIdx.x; c < tile.columns && tile.has(c); c += blockDim.x) {
    uint64_t first = tile.token(c);
    float sum_g = 0, sum_gx = 0;
#pragma unroll 4
    for (uint32_t t = 0; t < o.k; t++) {
      float g = __fmul_rn(s.dv[t * tile.columns + c], o.gain[t]);
      sum_g += g, sum_gx += g * s.xh[t * tile.columns + c];
    }
    float mean_g = sum_g / float(o.k), mean_gx = sum_gx / float(o.k);
#pragma unroll 4
    for (uint32_t t = 0; t < o.k; t++) {
      uint64_t at = first + uint64_t(t) * o.d;
      float g = __fmul_rn(s.dv[t * tile.columns + c], o.gain[t]);
      dx[at] = (g - mean_g - s.xh[t * tile.columns + c] * mean_gx) * s.rstd[c] + dy[at];
    }
  }
}

template <int V>
__device__ __forceinline__ void mix_back(const Mixer& o, const float* dy, float* dx, const WeightGrads& sums, uint32_t roots,
                                         uint32_t columns, uint32_t hidden, const Drop& first, const Drop& second,
                                         float* memory) {
  GradMemory s(memory, o.k, columns, hidden);
  Tile tile{0, columns, roots * o.d, o.k, o.m, o.d};
  auto of_xh = [&](uint32_t t, uint32_t c, float(&v)[V]) {
    load(s.xh + t * columns + c, v);
    for (int l = 0; l < V; l++) v[l] = v[l] * o.gain[t] + o.bias[t];
  };
  auto of_du = [&](uint32_t t, uint32_t c, float(&v)[V]) { load(s.du + t * columns + c, v); };
  auto of_g = [&](uint32_t j, uint32_t c, float(&v)[V]) { load(s.g + j * columns + c, v); };
  auto of_dz = [&](uint32_t j, uint32_t c, float(&v)[V]) { load(s.dz + j * columns + c, v); };
  for (uint64_t at = uint64_t(blockIdx.x) * columns; at < tile.live; at += uint64_t(gridDim.x) * columns) {
    tile.first = uint32_t(at);
    normalise(o, tile, nullptr, nullptr, s.xh, s.rstd);
    each_patch<V>(o.k, columns, [&](uint32_t t, uint32_t c) {
      uint64_t element = tile.token(c) + uint64_t(t) * o.d;
#pragma unroll
      for (uint32_t i = 0; i < ROWS; i++) {
        if (t + i >= o.k) continue;
        float v[V] = {};
        if (tile.has(c)) {
          load(dy + element + uint64_t(i) * o.d, v);
          uint32_t kept = second.kept(element + uint64_t(i) * o.d);
#pragma unroll
          for (int l = 0; l < V; l++) v[l] *= second.factor_of(kept >> l & 1);
        }
        store(s.du + (t + i) * columns + c, v);
      }
    });
    __syncthreads();  // normalised tokens and du are there
    add_row_sums(sums.b2, o.k, columns, [&](uint32_t t, uint32_t c) { return s.du[t * columns + c]; });
    for (uint32_t from = 0; from < o.m; from += hidden) {
      uint32_t units = min(hidden, o.m - from);
      hidden_gradients<V>(o, tile, from, units, first, s);
      __syncthreads();  // the hidden units and their gradients are there
      each_patch<V>(o.k, columns, [&](uint32_t t, uint32_t c) {
        float dv[ROWS][V] = {};
        for (uint32_t i = 0; from > 0 && i < ROWS; i++) load(s.dv + min(t + i, o.k - 1) * columns + c, dv[i]);
        add_products<V>(dv, o.w1 + uint64_t(from) * o.k, 1, o.k, t, o.k, units,
                        [&](uint32_t j, float(&v)[V]) { load(s.dz + j * columns + c, v); });
#pragma unroll
        for (uint32_t i = 0; i < ROWS; i++) {
          if (t + i < o.k) store(s.dv + (t + i) * columns + c, dv[i]);
        }
      });
      add_outer<V>(sums.w2 + from, o.m, 1, o.k, units, columns, of_du, of_g);
      add_outer<V>(sums.w1 + uint64_t(from) * o.k, o.k, 1, units, o.k, columns, of_dz, of_xh);
      add_row_sums(sums.b1 + from, units, columns, [&](uint32_t j, uint32_t c) { return s.dz[j * columns + c]; });
      __syncthreads();  // the hidden units have been read, and dv is there
    }
    add_row_sums(sums.bias, o.k, columns, [&](uint32_t t, uint32_t c) { return s.dv[t * columns + c]; });
    add_row_sums(sums.gain, o.k, columns,
                 [&](uint32_t t, uint32_t c) { return s.dv[t * columns + c] * s.xh[t * columns + c]; });
    if (dx) input_gradients(o, tile, dy, dx, s);
    __syncthreads();  // the tile has been read
  }
}

// `sums` holds the gradients of the weights, once for each block; dx may be null.
extern "C" __global__ void __launch_bounds__(256, 2)
mix_tokens_grad(const float* x, const float* gain, const float* bias, const float* w1, const float* b1, const float* w2,
                const float* dy, float* dx, float* sums, Rows rows, uint32_t k, uint32_t m, uint32_t d, float eps,
                uint32_t columns, uint32_t hidden, Epilogue first, Epilogue second) {
  after_previous_kernel();
  __shared__ float4 memory[GRAD_MEMORY / 4];
  Mixer o{x, gain, bias, w1, b1, w2, k, m, d, eps};
  WeightGrads mine(sums, blockIdx.x, k, m);
  for (float* sum = mine.gain + threadIdx.x; sum < mine.end; sum += blockDim.x) *sum = 0;
  __syncthreads();  // other threads add to them
  float* shared = &memory[0].x;
  uint32_t roots = rows.live() / k;
  if (columns % 4 == 0 && by_four(x, d) && by_four(dy, d)) {
    mix_back<4>(o, dy, dx, mine, roots, columns, hidden, first.drop, second.drop, shared);
  } else {
    mix_back<1>(o, dy, dx, mine, roots, columns, hidden, first.drop, second.drop, shared);
  }
}

// Adds the gradients of the weights of `blocks` blocks, 32 weights in a block; every output may be null.
extern "C" __global__ void __launch_bounds__(256, 4)
mix_tokens_weight_grads(const float* sums, uint32_t blocks, float* dgain, float* dbias, float* dw1, float* db1, float* dw2,
                        float* db2, uint32_t k, uint32_t m) {
  after_previous_kernel();
  __shared__ float of_warps[256 / WARP][WARP];
  uint32_t weights = k * m, all = 2 * weights + 3 * k + m, c = blockIdx.x * WARP + lane_id();
  float sum = column_sum(sums, blocks, all, c, of_warps);
  if (threadIdx.x >= WARP || c >= all) return;
  // Once the output is found, c wraps around, beyond every size.
  auto give = [&](float* out, uint32_t size) {
    if (out && c < size) out[c] = sum;
    c -= size;
  };
  give(dgain, k), give(dbias, k), give(dw1, weights), give(db1, m), give(dw2, weights), give(db2, k);
}

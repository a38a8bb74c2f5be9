// Tiled dense products: out[i, j] = sum over l of a(i, l) b(l, j), where operands may be computed on the fly.
//
// A block of 256 threads computes a tile of 64 x 64. It loads 64 x 16 elements of both operands into shared memory at a
// time, prefetching the next slab while it sums the current one; each of its eight warps sums 16 x 32 elements on the
// matrix units. Each operand is therefore read once per tile, whatever gather, activation or mask computes its
// elements. The caller also decides what happens with each sum. The order of the additions over l is fixed, so the bits
// of the result depend on the operands alone.
//
// The matrix units multiply TF32 (11 significant bits) or bfloat16 (8 bits): operands are rounded to that format,
// products are exact (`precision` is `runtime::MatmulPrecision` on the host). For f32, an operand is split into the sum
// of two TF32 numbers, exact but for its last bit, and three of the four products of two such sums are computed
// ("3xTF32"); that of the low halves hardly counts.
//
// The units cut sums off instead of rounding them (emu/matrix.hpp), so a long sum of theirs drifts towards zero: over a
// depth of 376 it is 8 to 23 times as far off as a sum in f32. For f32, therefore, they sum one slab at a time, from
// zero, and the vector units add that to the sums of the slabs before, rounding to nearest.
//
// An infinity has no such split, and neither has a number that rounds to one: their sums become NaN. A tile with a NaN
// is therefore computed again without the matrix units, so that it has infinities and NaN where IEEE 754 has them.
#pragma once
#include "ptx.cuh"

constexpr uint32_t TILE = 64;           // rows and columns of a tile
constexpr uint32_t DEPTH = 16;          // depth of a slab in shared memory
constexpr uint32_t PRODUCT_THREADS = 256;
constexpr uint32_t F32 = 0, TF32 = 1, BF16 = 2;  // precisions of products
constexpr uint32_t UNSPLIT = 3;                  // f32 without the matrix units
constexpr uint32_t EACH = 4;            // rows and columns of a thread
constexpr uint32_t PITCH = TILE + 8;    // row stride in shared memory: no bank conflicts when a warp reads

// The index of an operand that is contiguous in memory; neighbouring threads take neighbouring elements along it.
enum class Along { Sum, Edge };

// The sums of a thread: rows row0 + r and columns column0 + c of the result.
struct Sums {
  float at[EACH][EACH];
};

// The first row (or column) of a thread within its tile; its other rows (or columns) follow.
__device__ __forceinline__ uint32_t own_row() { return threadIdx.x / (TILE / EACH) * EACH; }
__device__ __forceinline__ uint32_t own_column() { return threadIdx.x % (TILE / EACH) * EACH; }

// A matrix in memory that sums are stored to. `y` may be null.
struct Output {
  float* y;
  uint64_t stride;  // of rows
  uint32_t columns;
};

// A tile of a product of `rows` x `columns`, at (row0, column0).
struct Tile {
  uint32_t row0, rows, column0, columns;
  uint32_t own = (1 << EACH) - 1;  // bits: which of a thread's rows the functions below handle
  // The tile of this block, if the grid's x dimension tiles the rows and its y dimension the columns.
  static __device__ __forceinline__ Tile of_block(uint32_t rows, uint32_t columns) {
    return {blockIdx.x * TILE, rows, blockIdx.y * TILE, columns};
  }
  __device__ __forceinline__ bool is_empty() const { return row0 >= rows || column0 >= columns; }
  __device__ __forceinline__ bool has(uint32_t i) const { return own >> i & 1; }
  // Replaces each sum by `value(i, j, sum)`. All that `value` reads is loaded before anything is stored.
  template <class Value> __device__ __forceinline__ void map(Sums& sums, Value value) const {
    each(sums, [&](uint32_t i, uint32_t j, float& sum) { sum = value(i, j, sum); });
  }
  // Calls `out(i, j, sum)` for every sum.
  template <class S, class Out> __device__ __forceinline__ void each(S& sums, Out out) const {
    uint32_t i0 = row0 + own_row(), j0 = column0 + own_column();
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++) {
#pragma unroll
      for (uint32_t j = 0; j < EACH; j++) {
        if (has(i) && i0 + i < rows && j0 + j < columns) out(i0 + i, j0 + j, sums.at[i][j]);
      }
    }
  }
  // Stores the sums, 16 bytes at a time if rows are aligned. `extra(i, sum)` receives those beyond the columns of `to`.
  template <class Extra> __device__ __forceinline__ void store(const Sums& sums, Output to, Extra extra) const {
    uint32_t i0 = row0 + own_row(), j0 = column0 + own_column();
    bool four = by_four(to.y, uint32_t(to.stride % EACH)) && j0 + EACH <= to.columns;
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++) {
      if (i0 + i >= rows) break;
      if (!has(i)) continue;
      float* row = to.y + (i0 + i) * to.stride + j0;
      if (four) {
        if (to.y) ::store(row, sums.at[i]);
        continue;
      }
#pragma unroll
      for (uint32_t j = 0; j < EACH; j++) {
        if (j0 + j >= columns) break;
        if (j0 + j >= to.columns) extra(i0 + i, sums.at[i][j]);
        else if (to.y) row[j] = sums.at[i][j];
      }
    }
  }
  __device__ __forceinline__ void store(const Sums& sums, Output to) const {
    store(sums, to, [](uint32_t, float) {});
  }
};

// Operands. Any function object that returns an element (edge, l), or (l, column) for the second operand, is an
// operand. It may also have a `four(edge, l, x)` that loads four elements consecutive along the sum and returns whether
// it did. The other operands describe a memory layout:
// - a matrix whose rows are `stride` apart; a row is an edge or a depth, depending on `Along`;
struct Matrix {
  const float* x;
  uint64_t stride;
};
// - rows at arbitrary addresses, one per edge: `row(edge)`, null for a row of zeros; for Along::Sum;
template <class Row> struct ByRow {
  Row row;
  bool aligned;  // whether all rows are aligned to 16 bytes
};
template <class Row> ByRow(Row, bool) -> ByRow<Row>;
// - a matrix with extra columns: from column `columns` on, row l has `extra(l, column)`; for Along::Edge.
template <class Extra> struct WithColumns {
  Matrix m;
  uint32_t columns;
  Extra extra;
};
template <class Extra> WithColumns(Matrix, uint32_t, Extra) -> WithColumns<Extra>;

// The second operand with its indices swapped, edge first, as in the first operand.
template <class B> __device__ __forceinline__ auto by_edge(B b) {
  return [=](uint32_t column, uint32_t l) { return b(l, column); };
}
__device__ __forceinline__ Matrix by_edge(Matrix m) { return m; }
template <class Row> __device__ __forceinline__ ByRow<Row> by_edge(ByRow<Row> m) { return m; }
template <class Extra> __device__ __forceinline__ WithColumns<Extra> by_edge(WithColumns<Extra> m) { return m; }

// DEPTH x TILE elements of an operand, divided among the threads of the block. Each thread has four consecutive
// elements, which are also consecutive in memory if the operand is a matrix. So a row of a gather is looked up once,
// and a matrix is read 16 bytes at a time if its rows are aligned.
struct Slab {
  float x[EACH];
};
static_assert(EACH == 4 && DEPTH == 4 * EACH && TILE * DEPTH == EACH * PRODUCT_THREADS, "four elements for each thread");
template <Along along> __device__ __forceinline__ uint32_t own_edge() {
  return along == Along::Sum ? threadIdx.x / EACH : threadIdx.x % (TILE / EACH) * EACH;
}
template <Along along> __device__ __forceinline__ uint32_t own_depth() {
  return along == Along::Sum ? threadIdx.x % EACH * EACH : threadIdx.x / (TILE / EACH);
}

// Whether an operand has a `four`.
template <class Operand, class = void> constexpr bool says_four = false;
template <class Operand> constexpr bool says_four<Operand, decltype(void(&Operand::four))> = true;

// Loads this thread's elements of one slab after the other, starting at edge0; zeros outside the operand.
template <Along along, class Operand> struct Source {
  Operand element;
  uint32_t edge, edges;
  __device__ __forceinline__ Source(Operand operand, uint32_t edge0, uint32_t edges, uint32_t)
      : element(operand), edge(edge0 + own_edge<along>()), edges(edges) {}
  __device__ __forceinline__ Slab next(uint32_t l, uint32_t l1) {
    Slab slab = {};
    l += own_depth<along>();
    if constexpr (says_four<Operand>) {
      if (edge < edges && l + EACH <= l1 && element.four(edge, l, slab.x)) return slab;
    }
#pragma unroll
    for (uint32_t q = 0; q < EACH; q++) {
      uint32_t e = along == Along::Sum ? edge : edge + q, at = along == Along::Sum ? l + q : l;
      if (e < edges && at < l1) slab.x[q] = element(e, at);
    }
    return slab;
  }
};
// The first `there` of four elements starting at p; zeros for the rest.
__device__ __forceinline__ Slab first_of(const float* p, uint32_t there, bool aligned) {
  Slab slab = {};
  if (there == EACH && aligned) return load(p, slab.x), slab;
#pragma unroll
  for (uint32_t q = 0; q < EACH; q++) {
    if (q < there) slab.x[q] = p[q];
  }
  return slab;
}
template <class Row> struct Source<Along::Sum, ByRow<Row>> {
  const float* row;
  bool aligned;
  __device__ __forceinline__ Source(ByRow<Row> m, uint32_t edge0, uint32_t edges, uint32_t l0)
      : row(edge0 + own_edge<Along::Sum>() < edges ? m.row(edge0 + own_edge<Along::Sum>()) : nullptr),
        aligned(m.aligned && l0 % EACH == 0) {}
  __device__ __forceinline__ Slab next(uint32_t l, uint32_t l1) {
    l += own_depth<Along::Sum>();
    return first_of(row + l, row && l < l1 ? min(l1 - l, EACH) : 0, aligned);
  }
};
// A matrix whose rows are edges is a special case of ByRow.
struct RowOf {
  Matrix m;
  __device__ __forceinline__ const float* operator()(uint32_t edge) const { return m.x + edge * m.stride; }
};
template <> struct Source<Along::Sum, Matrix> : Source<Along::Sum, ByRow<RowOf>> {
  __device__ __forceinline__ Source(Matrix m, uint32_t edge0, uint32_t edges, uint32_t l0)
      : Source<Along::Sum, ByRow<RowOf>>({RowOf{m}, by_four(m.x, uint32_t(m.stride % EACH))}, edge0, edges, l0) {}
};
template <> struct Source<Along::Edge, Matrix> {
  const float* p;   // this thread's first element of the next slab
  uint64_t step;
  uint32_t inside;  // number of this thread's edges inside the matrix
  bool aligned;
  __device__ __forceinline__ Source(Matrix m, uint32_t edge0, uint32_t edges, uint32_t l0) {
    uint32_t edge = edge0 + own_edge<Along::Edge>(), l = l0 + own_depth<Along::Edge>();
    inside = edge < edges ? min(edges - edge, EACH) : 0;
    p = m.x + (l * m.stride + edge), step = DEPTH * m.stride;
    aligned = by_four(m.x, uint32_t(m.stride % EACH));
  }
  __device__ __forceinline__ Slab next(uint32_t l, uint32_t l1) {
    Slab slab = first_of(p, l + own_depth<Along::Edge>() < l1 ? inside : 0, aligned);
    p += step;
    return slab;
  }
};
template <class Extra> struct Source<Along::Edge, WithColumns<Extra>> {
  Source<Along::Edge, Matrix> of;
  Extra extra;
  uint32_t edge, edges, columns;
  __device__ __forceinline__ Source(WithColumns<Extra> m, uint32_t edge0, uint32_t edges, uint32_t l0)
      : of(m.m, edge0, m.columns, l0), extra(m.extra), edge(edge0 + own_edge<Along::Edge>()), edges(edges), columns(m.columns) {}
  __device__ __forceinline__ Slab next(uint32_t l, uint32_t l1) {
    Slab slab = of.next(l, l1);
    l += own_depth<Along::Edge>();
    if (edge + EACH > columns && l < l1) {
#pragma unroll
      for (uint32_t q = 0; q < EACH; q++) {
        if (edge + q >= columns && edge + q < edges) slab.x[q] = extra(l, edge + q);
      }
    }
    return slab;
  }
};

// The row of shared memory of depth l of a slab, for both operands: a warp's simultaneous stores hit different banks.
__device__ __forceinline__ uint32_t row_of_depth(uint32_t l) { return l % EACH * EACH + l / EACH; }
template <Along along> __device__ __forceinline__ void share(const Slab& slab, float (&to)[DEPTH][PITCH]) {
  uint32_t edge = own_edge<along>(), first = own_depth<along>();
  if (along == Along::Sum) {
#pragma unroll
    for (uint32_t q = 0; q < EACH; q++) to[row_of_depth(first + q)][edge] = slab.x[q];
  } else {
    store(&to[row_of_depth(first)][edge], slab.x);
  }
}

// The sums of a warp on the matrix units: four adjacent fragments of 16 x 8 elements.
struct Fragments {
  float at[4][4];
};
__device__ __forceinline__ uint32_t warp_tile_row() { return threadIdx.x / WARP % 4 * 16; }
__device__ __forceinline__ uint32_t warp_tile_column() { return threadIdx.x / WARP / 4 * 32; }

// Converts x to TF32; with SPLIT, `low` is the remainder. The remainder has up to 12 significant bits and the units
// read 11 (CUTLASS relies on this, too): truncating the last bit is as accurate as rounding it, so `low` is not
// rounded. With SPLIT the remainder is not finite if `x` or `high` is not.
template <bool SPLIT, int N> __device__ __forceinline__ void to_tf32(const float (&x)[N], float (&high)[N], float (&low)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) {
    if (SPLIT) high[i] = __uint_as_float((__float_as_uint(x[i]) + 0x1000u) & 0xFFFFE000u), low[i] = x[i] - high[i];
    else high[i] = to_tf32(x[i]);
  }
}

// A lane's operands of products of depth 8: its elements of `a` from row `r` on, or of `b` from column `c` on, at
// depths `k` and `k + 4`.
__device__ __forceinline__ void take(const float (&s)[DEPTH][PITCH], uint32_t k, uint32_t r, float (&a)[4]) {
  a[0] = s[k][r], a[1] = s[k][r + 8], a[2] = s[k + 4][r], a[3] = s[k + 4][r + 8];
}
__device__ __forceinline__ void take(const float (&s)[DEPTH][PITCH], uint32_t k, uint32_t c, float (&b)[2]) {
  b[0] = s[k][c], b[1] = s[k + 4][c];
}

// Adds the TF32 products of a slab in shared memory; with SPLIT each operand is a sum of two TF32 numbers.
template <bool SPLIT>
__device__ __forceinline__ void add_slab_tf32(Fragments& sums, const float (&sa)[DEPTH][PITCH],
                                              const float (&sb)[DEPTH][PITCH], uint32_t t, uint32_t r, uint32_t c) {
  Fragments of_slab = {};
  Fragments& to = SPLIT ? of_slab : sums;
#pragma unroll 1  // unrolled, the loop would leave too few registers to compute the elements, e.g. for a cosine
  for (uint32_t k = t; k < DEPTH; k += 8) {
    float a[4], a_high[4], a_low[4];
    take(sa, k, r, a), to_tf32<SPLIT>(a, a_high, a_low);
#pragma unroll
    for (uint32_t n = 0; n < 4; n++) {
      float b[2], b_high[2], b_low[2];
      take(sb, k, c + 8 * n, b), to_tf32<SPLIT>(b, b_high, b_low);
      if constexpr (SPLIT) {
        mma_tf32(to.at[n], a_low, b_high);
        mma_tf32(to.at[n], a_high, b_low);
      }
      mma_tf32(to.at[n], a_high, b_high);
    }
  }
  if constexpr (SPLIT) {
#pragma unroll
    for (uint32_t n = 0; n < 4; n++) {
#pragma unroll
      for (uint32_t i = 0; i < 4; i++) sums.at[n][i] += of_slab.at[n][i];
    }
  }
}

// Adds the bfloat16 products of a whole slab. The order of the depths within a product is arbitrary as long as both
// operands use the same one; here a lane has the same depths as for TF32 and so the same reads of shared memory.
__device__ __forceinline__ void add_slab_bf16(Fragments& sums, const float (&sa)[DEPTH][PITCH],
                                              const float (&sb)[DEPTH][PITCH], uint32_t t, uint32_t r, uint32_t c) {
  uint32_t a[4];
#pragma unroll
  for (uint32_t half = 0; half < 2; half++) {
    float x[4];
    take(sa, t + 8 * half, r, x);
    a[2 * half] = to_bf16x2(x[0], x[2]), a[2 * half + 1] = to_bf16x2(x[1], x[3]);
  }
#pragma unroll
  for (uint32_t n = 0; n < 4; n++) {
    uint32_t b[2];
#pragma unroll
    for (uint32_t half = 0; half < 2; half++) {
      float x[2];
      take(sb, t + 8 * half, c + 8 * n, x);
      b[half] = to_bf16x2(x[0], x[1]);
    }
    mma_bf16(sums.at[n], a, b);
  }
}

// Adds the products of a whole slab in f32.
__device__ __forceinline__ void add_slab_unsplit(Fragments& sums, const float (&sa)[DEPTH][PITCH],
                                                 const float (&sb)[DEPTH][PITCH], uint32_t t, uint32_t r, uint32_t c) {
#pragma unroll 1
  for (uint32_t k = 0; k < DEPTH; k++) {
    float a[2] = {sa[k][r], sa[k][r + 8]};
#pragma unroll
    for (uint32_t n = 0; n < 4; n++) {
#pragma unroll
      for (uint32_t i = 0; i < 4; i++) sums.at[n][i] = fmaf(a[i / 2], sb[k][c + 8 * n + 2 * t + i % 2], sums.at[n][i]);
    }
  }
}

// The precision is the same in the whole grid, so one branch here serves all kernels that compute products.
__device__ __forceinline__ void add_slab(Fragments& sums, const float (&sa)[DEPTH][PITCH], const float (&sb)[DEPTH][PITCH],
                                         uint32_t precision) {
  uint32_t g = lane_id() / 4, t = lane_id() % 4, r = warp_tile_row() + g, c = warp_tile_column() + g;
  if (precision == BF16) add_slab_bf16(sums, sa, sb, t, r, c);
  else if (precision == TF32) add_slab_tf32<false>(sums, sa, sb, t, r, c);
  else if (precision == F32) add_slab_tf32<true>(sums, sa, sb, t, r, c);
  else add_slab_unsplit(sums, sa, sb, t, r, c - g);
}

// Whether a sum of the thread is NaN. (Infinities of both signs also count as one: the tile is then computed twice.)
__device__ __forceinline__ bool has_nan(const Fragments& sums) {
  float all = 0;
#pragma unroll
  for (uint32_t n = 0; n < 4; n++) {
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) all += sums.at[n][i];
  }
  return all != all;
}

// Adds the warps' fragments to the threads' sums through shared memory, one half of the tile at a time, with rows PITCH
// apart.
__device__ __forceinline__ void hand_out(const Fragments& from, Sums& sums, float (&shared)[2 * DEPTH * PITCH]) {
  constexpr uint32_t HALF = TILE / 2;
  static_assert(HALF * PITCH <= 2 * DEPTH * PITCH, "half a tile fits");
  uint32_t g = lane_id() / 4, t = lane_id() % 4;
#pragma unroll
  for (uint32_t half = 0; half < 2; half++) {
    if (warp_tile_row() / HALF == half) {
#pragma unroll
      for (uint32_t n = 0; n < 4; n++) {
        float* to = shared + (warp_tile_row() % HALF + g) * PITCH + warp_tile_column() + 8 * n + 2 * t;
        *reinterpret_cast<float2*>(to) = make_float2(from.at[n][0], from.at[n][1]);
        *reinterpret_cast<float2*>(to + 8 * PITCH) = make_float2(from.at[n][2], from.at[n][3]);
      }
    }
    __syncthreads();  // this half has been written
    if (own_row() / HALF == half) {
#pragma unroll
      for (uint32_t i = 0; i < EACH; i++) {
        float of[EACH];
        load(shared + (own_row() % HALF + i) * PITCH + own_column(), of);
#pragma unroll
        for (uint32_t j = 0; j < EACH; j++) sums.at[i][j] += of[j];
      }
    }
    __syncthreads();  // this half has been read
  }
}

// Adds the products over l0..l1 to the sums of a tile. Every thread of the block must call it.
template <Along a_along, Along b_along, class A, class B>
__device__ __forceinline__ void add_products(uint32_t precision, Sums& sums, Tile tile, uint32_t l0, uint32_t l1, A a, B b) {
  __shared__ __align__(16) float shared[2 * DEPTH * PITCH];
  auto& sa = reinterpret_cast<float(&)[DEPTH][PITCH]>(shared[0]);
  auto& sb = reinterpret_cast<float(&)[DEPTH][PITCH]>(shared[DEPTH * PITCH]);
  auto turned = by_edge(b);
  Fragments fragments;
#pragma unroll 1
  for (bool again = true; again;) {
    Source<a_along, A> of_a(a, tile.row0, tile.rows, l0);
    Source<b_along, decltype(turned)> of_b(turned, tile.column0, tile.columns, l0);
    fragments = {};
    Slab next_a = of_a.next(l0, l1), next_b = of_b.next(l0, l1);
    for (uint32_t l = l0; l < l1; l += DEPTH) {
      share<a_along>(next_a, sa);
      share<b_along>(next_b, sb);
      __syncthreads();  // this slab has been written
      // Prefetches the next slab while this one is summed.
      next_a = of_a.next(l + DEPTH, l1), next_b = of_b.next(l + DEPTH, l1);
      add_slab(fragments, sa, sb, precision);
      __syncthreads();  // all threads have read this slab
    }
    again = precision == F32 && __syncthreads_or(has_nan(fragments));
    precision = UNSPLIT;
  }
  hand_out(fragments, sums, shared);
}

// Computes this block's tile of a product of `rows` x `columns` with sums over l0..l1, and calls `finish(sums, tile)`.
template <Along a_along, Along b_along, class A, class B, class Finish>
__device__ __forceinline__ void product(uint32_t precision, uint32_t rows, uint32_t columns, uint32_t l0, uint32_t l1, A a,
                                        B b, Finish finish) {
  Tile tile = Tile::of_block(rows, columns);
  if (tile.is_empty()) return;  // the whole block
  Sums sums = {};
  add_products<a_along, b_along>(precision, sums, tile, l0, l1, a, b);
  finish(sums, tile);
}

// Long sums, such as weight gradients over the rows of a batch, are split into ranges: each block adds up one range,
// and the last block of a tile, or all blocks of its cluster, add the partial sums in order. The z dimension of the
// grid has `room` ranges for each product, one product after the other. If few terms are live, fewer ranges are used,
// so that each has at least `least` terms; the blocks of the others are idle. (`Grid::ranges`.)
struct Part {
  uint32_t at, of, room, terms;
  __device__ __forceinline__ Part(uint32_t terms, uint32_t room, uint32_t least = 128)
      : at(blockIdx.z % room), of(max(1u, min(room, terms / least))), room(room), terms(terms) {}
  __device__ __forceinline__ bool is_idle() const { return at >= of; }
  __device__ __forceinline__ uint32_t start(uint32_t part) const {
    uint32_t size = ((terms + of - 1) / of + DEPTH - 1) / DEPTH * DEPTH;
    return min(terms, part * size);
  }
  __device__ __forceinline__ uint32_t first() const { return start(at); }
  __device__ __forceinline__ uint32_t last() const { return start(at + 1); }
};

// Scratch for partial sums of tiles, in the layout of the threads, and one ticket per tile. (`Grid::tile_parts`.)
struct TileParts {
  float* made;
  uint32_t* tickets;
};
// Turns the partial sums of this block's tile into the total; returns false in all but the last block.
__device__ __forceinline__ bool add_parts(Sums& sums, Part part, TileParts to) {
  if (part.of == 1) return true;
  uint32_t tile = (blockIdx.z / part.room * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  float4* parts = reinterpret_cast<float4*>(to.made) + uint64_t(tile) * part.room * EACH * PRODUCT_THREADS + threadIdx.x;
#pragma unroll
  for (uint32_t i = 0; i < EACH; i++) {
    const float(&row)[EACH] = sums.at[i];
    parts[(part.at * EACH + i) * PRODUCT_THREADS] = make_float4(row[0], row[1], row[2], row[3]);
  }
  if (!comes_last(to.tickets + tile, part.of)) return false;
  sums = {};
#pragma unroll 2  // eight loads in flight at once
  for (uint32_t p = 0; p < part.of; p++) {
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++) {
      float4 row = __ldcg(parts + (p * EACH + i) * PRODUCT_THREADS);
      sums.at[i][0] += row.x, sums.at[i][1] += row.y, sums.at[i][2] += row.z, sums.at[i][3] += row.w;
    }
  }
  return true;
}

// The same through distributed shared memory, for a launch in clusters of the blocks of a tile: each block adds up some
// of the rows, and `tile` then has these alone. Returns whether `cluster_wait` must follow before the block exits,
// because others may still read its sums.
__device__ __forceinline__ bool add_parts_in_cluster(Sums& sums, Part part, Tile& tile) {
  __shared__ float4 made[EACH * PRODUCT_THREADS];
  if (part.of == 1) return false;
  tile.own = 0;
#pragma unroll
  for (uint32_t i = 0; i < EACH; i++) {
    const float(&row)[EACH] = sums.at[i];
    made[i * PRODUCT_THREADS + threadIdx.x] = make_float4(row[0], row[1], row[2], row[3]);
    tile.own |= uint32_t(i * part.of / EACH == part.at) << i;
  }
  cluster_arrive_shared();
  cluster_wait();  // all partial sums have been written
  sums = {};
#pragma unroll
  for (uint32_t i = 0; i < EACH; i++) {
    if (!tile.has(i)) continue;
#pragma unroll 4  // four loads in flight at once
    for (uint32_t p = 0; p < part.of; p++) {
      float4 row = in_block(made, p)[i * PRODUCT_THREADS + threadIdx.x];
      sums.at[i][0] += row.x, sums.at[i][1] += row.y, sums.at[i][2] += row.z, sums.at[i][3] += row.w;
    }
  }
  cluster_arrive();
  return true;
}

// Like `product`, with sums over rows 0..n split into row ranges.
template <class A, class B, class Finish>
__device__ __forceinline__ void product_over_rows(uint32_t precision, uint32_t rows, uint32_t columns, uint32_t n,
                                                  uint32_t room, TileParts to, A a, B b, Finish finish) {
  Tile tile = Tile::of_block(rows, columns);
  Part part(n, room);
  if (tile.is_empty() || part.is_idle()) return;  // the whole block
  Sums sums = {};
  add_products<Along::Edge, Along::Edge>(precision, sums, tile, part.first(), part.last(), a, b);
  if (add_parts(sums, part, to)) finish(sums, tile);
}

// An extra column of ones: the product then sums the rows of the other matrix.
struct Ones {
  __device__ __forceinline__ float operator()(uint32_t, uint32_t) const { return 1.f; }
};
// The gradients of a linear map: dw = dz^T x [m, k], and db = column sums of dz, which `finish` finds in column k. `dz`
// and `x` are matrices of `n` rows. Column k of x counts as 1; a `WithColumns` must return that 1.
template <class Extra, class Finish>
__device__ __forceinline__ void weight_grad(uint32_t precision, uint32_t n, uint32_t m, uint32_t k, uint32_t room,
                                            TileParts to, Matrix dz, WithColumns<Extra> x, Finish finish) {
  product_over_rows(precision, m, k + 1, n, room, to, dz, x, finish);
}
template <class Finish>
__device__ __forceinline__ void weight_grad(uint32_t precision, uint32_t n, uint32_t m, uint32_t k, uint32_t room,
                                            TileParts to, Matrix dz, Matrix x, Finish finish) {
  weight_grad(precision, n, m, k, room, to, dz, WithColumns{x, k, Ones{}}, finish);
}

// Tiled dense products: out[i, j] = sum over l of a(i, l) b(l, j), of matrices that may have extra, computed columns.
//
// A block of 256 threads computes a tile of 64 x 64. It copies slabs of 64 x 16 elements of both operands to shared
// memory, three of them ahead of the one that it sums; each of its eight warps sums 16 x 32 elements on the matrix
// units. Each operand is therefore read once per tile. The caller decides what happens with each sum. The order of the
// additions over l is fixed, so the bits of the result depend on the operands alone.
//
// The matrix units multiply TF32 (11 significant bits) or bfloat16 (8 bits): operands are rounded to that format,
// products are exact (`precision` is `runtime::MatmulPrecision` on the host). For f32, an operand is split into the sum
// of two TF32 numbers, exact but for its last bit, and three of the four products of two such sums are computed
// ("3xTF32"); that of the low halves hardly counts.
//
// The units cut sums off instead of rounding them (emu/matrix.hpp), so a long sum of theirs drifts towards zero: over a
// depth of 376 it is 8 to 23 times as far off as a sum in f32. For f32, therefore, they sum the products of high halves
// one slab at a time, from zero, and the vector units add that to the sums of the slabs before, rounding to nearest.
// The products with a low half have sums of their own, which are so small that it does not matter there.
//
// Measured on an H200: 24.5 cycles from a product of the units to one that needs its sum, and 6.1 cycles a product if
// four do not depend on each other. Hence the order of the products in `add_split`.
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
constexpr uint32_t PITCH = TILE + 8;    // row stride of a tile in shared memory: no bank conflicts
constexpr uint32_t STAGES = 4;          // slabs in shared memory: one is summed while the others arrive

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

// An operand: a matrix whose rows are `stride` apart. A row is an edge or a depth, depending on `Along`.
struct Matrix {
  const float* x;
  uint64_t stride;
};
// A matrix with extra columns: from column `columns` on, row l has `extra(l, column)`; for Along::Edge.
template <class Extra> struct WithColumns {
  Matrix m;
  uint32_t columns;
  Extra extra;
};
template <class Extra> WithColumns(Matrix, uint32_t, Extra) -> WithColumns<Extra>;

// DEPTH x TILE elements of an operand in shared memory: its four consecutive elements, which are also consecutive in
// global memory if the operand is a matrix, are adjacent. An operand along the sum has DEPTH elements of one edge after
// the other; an operand along the edge has TILE elements of one depth after the other. Groups of elements swap places
// such that a warp's simultaneous accesses hit different banks.
template <Along along> __device__ __forceinline__ uint32_t place(uint32_t edge, uint32_t l) {
  return along == Along::Sum ? edge * DEPTH + (l ^ (edge / 2 % 4 * 4)) : l * TILE + (edge ^ (l % 4 * 8));
}
constexpr uint32_t SLAB = DEPTH * TILE;

// The elements of a thread in a slab: four consecutive ones. So a row of a gather is looked up once, and a matrix is
// read 16 bytes at a time if its rows are aligned.
struct Slab {
  float x[EACH];
};
static_assert(EACH == 4 && DEPTH == 4 * EACH && SLAB == EACH * PRODUCT_THREADS, "four elements for each thread");
template <Along along> __device__ __forceinline__ uint32_t own_edge() {
  return along == Along::Sum ? threadIdx.x / EACH : threadIdx.x % (TILE / EACH) * EACH;
}
template <Along along> __device__ __forceinline__ uint32_t own_depth() {
  return along == Along::Sum ? threadIdx.x % EACH * EACH : threadIdx.x / (TILE / EACH);
}

// Fetches this thread's elements of one slab after the other, from l0 on, starting at edge0; zeros outside the operand.
// `fetch` starts to copy them to shared memory and returns false, or computes some of them, in `slab`, and returns true:
// then they are stored when the slab before has been summed.
template <Along along, class Operand> struct Source;
template <Along along> struct Source<along, Matrix> {
  const float* next;  // this thread's first element of the next slab
  uint64_t step;
  int32_t left;     // depths from there on
  uint32_t inside;  // number of this thread's edges inside the matrix
  bool aligned;
  __device__ __forceinline__ Source(Matrix m, uint32_t edge0, uint32_t edges, uint32_t l0, uint32_t l1) {
    uint32_t edge = edge0 + own_edge<along>(), l = l0 + own_depth<along>();
    inside = edge < edges ? min(edges - edge, EACH) : 0;
    left = inside ? int32_t(l1 - l) : 0;
    next = m.x + (along == Along::Sum ? edge * m.stride + l : l * m.stride + edge);
    step = along == Along::Sum ? DEPTH : DEPTH * m.stride;
    aligned = by_four(m.x, uint32_t(m.stride % EACH)) && (along == Along::Sum ? (l0 | l1) % EACH == 0 : edges % EACH == 0);
  }
  __device__ __forceinline__ void go_on() { next += step, left -= int32_t(DEPTH); }
  __device__ __forceinline__ bool fetch(Shared to, Slab&) {
    if (aligned) {
      if (left > 0) to.template copy<4>(next);
      else to.store({0.f, 0.f, 0.f, 0.f});
    } else {
#pragma unroll 1  // a branch, which is not taken as a rule
      for (uint32_t q = 0; q < EACH; q++) {
        bool there = along == Along::Sum ? left > int32_t(q) : left > 0 && q < inside;
        if (there) (to + q).template copy<1>(next + q);
        else (to + q).store(0.f);
      }
    }
    go_on();
    return false;
  }
};
template <class Extra> struct Source<Along::Edge, WithColumns<Extra>> {
  Source<Along::Edge, Matrix> of;
  Extra extra;
  uint32_t edge, edges, columns, l;
  bool mixed;  // whether some of this thread's columns are extra ones
  __device__ __forceinline__ Source(WithColumns<Extra> m, uint32_t edge0, uint32_t edges, uint32_t l0, uint32_t l1)
      : of(m.m, edge0, m.columns, l0, l1), extra(m.extra), edge(edge0 + own_edge<Along::Edge>()), edges(edges),
        columns(m.columns), l(l0 + own_depth<Along::Edge>()), mixed(edge + EACH > columns && edge < edges) {
    if (mixed) of.left = int32_t(l1 - l);  // also without columns of the matrix
  }
  __device__ __forceinline__ bool fetch(Shared to, Slab& slab) {
    if (!mixed) return of.fetch(to, slab);
#pragma unroll
    for (uint32_t q = 0; q < EACH; q++) {
      bool is = of.left > 0 && edge + q < edges;
      slab.x[q] = !is ? 0.f : edge + q < columns ? of.next[q] : extra(l, edge + q);
    }
    of.go_on(), l += DEPTH;
    return true;
  }
};

// The sums of a warp on the matrix units: four adjacent fragments of 16 x 8 elements.
struct Fragments {
  float at[4][4];
  __device__ __forceinline__ void add(const Fragments& other) {
#pragma unroll
    for (uint32_t n = 0; n < 4; n++) {
#pragma unroll
      for (uint32_t i = 0; i < 4; i++) at[n][i] += other.at[n][i];
    }
  }
};
__device__ __forceinline__ uint32_t warp_tile_row() { return threadIdx.x / WARP % 4 * 16; }
__device__ __forceinline__ uint32_t warp_tile_column() { return threadIdx.x / WARP / 4 * 32; }

// Splits x into the sum of two TF32 numbers. `low`, the remainder, has up to 12 significant bits and the units read 11
// (CUTLASS relies on this, too): truncating the last bit is as accurate as rounding it, so `low` is not rounded. It is
// not finite if `x` or `high` is not. The units ignore the bits of `high` beyond the first 11 significant ones.
template <int N> __device__ __forceinline__ void split(const float (&x)[N], float (&high)[N], float (&low)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) {
    high[i] = __uint_as_float(__float_as_uint(x[i]) + 0x1000u);
    low[i] = x[i] - __uint_as_float(__float_as_uint(high[i]) & 0xFFFFE000u);
  }
}

// What a lane reads of an operand in a slab: with g = lane / 4 and t = lane % 4, the elements (8 m + g, 4 j + t) from
// edge `first` on, for M values of m. `take` loads those of products of depth 8, which begin at depth 8 K: x[m][i] is
// at depth 8 K + 4 i + t.
template <Along along, uint32_t M> struct Lane {
  Shared at[4];  // by K, or by m
  __device__ __forceinline__ Lane(Shared slab, uint32_t first) {
    uint32_t lane = lane_id(), matrix = lane / 8;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
      uint32_t row = first + matrix / 2 * 8 + lane % 8, depth = 8 * (i % 2) + matrix % 2 * 4;
      uint32_t own = along == Along::Sum ? place<along>(row, depth) : place<along>(first + 8 * (i % M) + lane / 4, lane % 4);
      at[i] = slab + own;
    }
  }
  template <uint32_t K> __device__ __forceinline__ void take(uint32_t slab, float (&x)[M][2]) const {
    if constexpr (along == Along::Sum) {
      (at[K] + slab).template load_matrices<0>(x[0][0], x[0][1], x[1][0], x[1][1]);
      if constexpr (M == 4) (at[K] + slab).template load_matrices<16 * DEPTH>(x[2][0], x[2][1], x[3][0], x[3][1]);
    } else {
#pragma unroll
      for (uint32_t m = 0; m < M; m++) {
        x[m][0] = (at[m] + slab).template load<8 * K * TILE>();
        x[m][1] = (at[m] + slab).template load<(8 * K + 4) * TILE>();
      }
    }
  }
};
// The slabs of both operands, and how a warp's lanes read them for its part of the tile.
template <Along a_along, Along b_along> struct Slabs {
  const float* memory;
  Lane<a_along, 2> a;
  Lane<b_along, 4> b;
  uint32_t at = 0;  // the present slabs
  __device__ __forceinline__ explicit Slabs(float* memory)
      : memory(memory), a(Shared(memory), warp_tile_row()), b(Shared(memory + SLAB), warp_tile_column()) {}
  // The operands of the matrix units.
  template <uint32_t K> __device__ __forceinline__ void take(float (&x)[4], float (&y)[4][2]) const {
    float of[2][2];
    a.template take<K>(at, of), b.template take<K>(at, y);
    x[0] = of[0][0], x[1] = of[1][0], x[2] = of[0][1], x[3] = of[1][1];
  }
};

// Adds products of depth 8 as f32: of the four products of high and low parts that of the low parts is left out.
template <uint32_t K, class S>
__device__ __forceinline__ void add_split(Fragments& high, Fragments& low, const S& slabs) {
  float x[4], y[4][2], a[4], a_low[4], b[4][2], b_low[4][2];
  slabs.template take<K>(x, y);
  split(x, a, a_low);
#pragma unroll
  for (uint32_t n = 0; n < 4; n++) split(y[n], b[n], b_low[n]);
#pragma unroll
  for (uint32_t n = 0; n < 4; n++) mma_tf32(high.at[n], a, b[n]);
#pragma unroll
  for (uint32_t n = 0; n < 4; n++) mma_tf32(low.at[n], a_low, b[n]);
#pragma unroll
  for (uint32_t n = 0; n < 4; n++) mma_tf32(low.at[n], a, b_low[n]);
}

// Adds TF32 products of depth 8.
template <uint32_t K, class S> __device__ __forceinline__ void add_tf32(Fragments& sums, const S& slabs) {
  float a[4], b[4][2];
  slabs.template take<K>(a, b);
#pragma unroll
  for (uint32_t i = 0; i < 4; i++) a[i] = to_tf32(a[i]);
#pragma unroll
  for (uint32_t n = 0; n < 4; n++) {
    b[n][0] = to_tf32(b[n][0]), b[n][1] = to_tf32(b[n][1]);
    mma_tf32(sums.at[n], a, b[n]);
  }
}

// Adds the bfloat16 products of a slab. The order of the depths within a product is arbitrary as long as both operands
// use the same one; here a lane has the same depths as for TF32.
template <class S> __device__ __forceinline__ void add_bf16(Fragments& sums, const S& slabs) {
  float a[2][4], b[2][4][2];
  slabs.template take<0>(a[0], b[0]), slabs.template take<1>(a[1], b[1]);
  uint32_t of_a[4] = {to_bf16x2(a[0][0], a[0][2]), to_bf16x2(a[0][1], a[0][3]),
                      to_bf16x2(a[1][0], a[1][2]), to_bf16x2(a[1][1], a[1][3])};
#pragma unroll
  for (uint32_t n = 0; n < 4; n++) {
    uint32_t of_b[2] = {to_bf16x2(b[0][n][0], b[0][n][1]), to_bf16x2(b[1][n][0], b[1][n][1])};
    mma_bf16(sums.at[n], of_a, of_b);
  }
}

// Adds the products of a slab without the matrix units.
template <Along a_along, Along b_along>
__device__ __forceinline__ void add_unsplit(Fragments& sums, const Slabs<a_along, b_along>& slabs) {
  uint32_t row = warp_tile_row() + lane_id() / 4, column = warp_tile_column() + 2 * (lane_id() % 4);
  const float *a = slabs.memory + slabs.at, *b = a + SLAB;
#pragma unroll 1
  for (uint32_t k = 0; k < DEPTH; k++) {
#pragma unroll
    for (uint32_t n = 0; n < 4; n++) {
#pragma unroll
      for (uint32_t i = 0; i < 4; i++) {
        float x = a[place<a_along>(row + i / 2 * 8, k)], y = b[place<b_along>(column + 8 * n + i % 2, k)];
        sums.at[n][i] = fmaf(x, y, sums.at[n][i]);
      }
    }
  }
}

// Adds the products of a slab in shared memory. For f32, `low` has the sums of the products with low parts, and the sum
// of the high parts starts from zero in each slab. The precision is the same in the whole grid, so one branch here
// serves all kernels that compute products.
template <class S>
__device__ __forceinline__ void add_slab(Fragments& sums, Fragments& low, const S& slabs, uint32_t precision) {
  if (precision == F32) {
    Fragments high = {};
    add_split<0>(high, low, slabs), add_split<1>(high, low, slabs);
    sums.add(high);
  } else if (precision == TF32) {
    add_tf32<0>(sums, slabs), add_tf32<1>(sums, slabs);
  } else if (precision == BF16) {
    add_bf16(sums, slabs);
  } else {
    add_unsplit(sums, slabs);
  }
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

// Shared memory of a product: the slabs on their way, then the tile, rows PITCH apart, then the parts of a cluster.
// One array serves all products of a kernel.
__device__ __forceinline__ float* product_memory() {
  __shared__ __align__(16) float memory[STAGES * 2 * SLAB];
  static_assert(TILE * PITCH <= STAGES * 2 * SLAB, "a tile fits");
  return memory;
}

// Adds the warps' fragments to the threads' sums through shared memory.
__device__ __forceinline__ void hand_out(const Fragments& from, Sums& sums) {
  float* memory = product_memory();
  uint32_t g = lane_id() / 4, t = lane_id() % 4;
#pragma unroll
  for (uint32_t n = 0; n < 4; n++) {
    float* to = memory + (warp_tile_row() + g) * PITCH + warp_tile_column() + 8 * n + 2 * t;
    *reinterpret_cast<float2*>(to) = make_float2(from.at[n][0], from.at[n][1]);
    *reinterpret_cast<float2*>(to + 8 * PITCH) = make_float2(from.at[n][2], from.at[n][3]);
  }
  __syncthreads();  // the tile has been written
#pragma unroll
  for (uint32_t i = 0; i < EACH; i++) {
    float of[EACH];
    load(memory + (own_row() + i) * PITCH + own_column(), of);
#pragma unroll
    for (uint32_t j = 0; j < EACH; j++) sums.at[i][j] += of[j];
  }
  __syncthreads();  // the tile has been read
}

// Adds the products over l0..l1 to the sums of a tile. Every thread of the block must call it. While a slab is summed,
// others are on their way: memory takes longer to answer than a slab to be summed.
template <Along a_along, Along b_along, class A, class B>
__device__ __forceinline__ void add_products(uint32_t precision, Sums& sums, Tile tile, uint32_t l0, uint32_t l1, A a, B b) {
  constexpr uint32_t AHEAD = STAGES - 1, SIZE = 2 * SLAB;
  float* memory = product_memory();
  Shared own_a(memory + place<a_along>(own_edge<a_along>(), own_depth<a_along>()));
  Shared own_b(memory + SLAB + place<b_along>(own_edge<b_along>(), own_depth<b_along>()));
  Slabs<a_along, b_along> slabs(memory);
  uint32_t count = l0 < l1 ? (l1 - l0 + DEPTH - 1) / DEPTH : 0;
  Fragments fragments;
#pragma unroll 1
  for (bool again = true; again;) {
    Source<a_along, A> of_a(a, tile.row0, tile.rows, l0, l1);
    Source<b_along, B> of_b(b, tile.column0, tile.columns, l0, l1);
    Fragments low = {};
    fragments = {};
    uint32_t to = 0;  // where the next slab goes
#pragma unroll 1
    for (uint32_t i = 0; i < count + AHEAD; i++) {
      bool in_a = false, in_b = false;
      Slab of_next_a, of_next_b;
      if (i >= AHEAD) {
        copies_wait<AHEAD - 1>();
        __syncthreads();  // slab i - AHEAD has been written, and the one before has been read
      }
      if (i < count) in_a = of_a.fetch(own_a + to, of_next_a), in_b = of_b.fetch(own_b + to, of_next_b);
      copies_end();
      if (i >= AHEAD) {
        slabs.at = (to + SIZE) % (STAGES * SIZE);
        add_slab(fragments, low, slabs, precision);
      }
      if (in_a) (own_a + to).store(of_next_a.x);
      if (in_b) (own_b + to).store(of_next_b.x);
      to = (to + SIZE) % (STAGES * SIZE);
    }
    fragments.add(low);
    again = __syncthreads_or(precision == F32 && has_nan(fragments));  // all slabs have been read
    precision = UNSPLIT;
  }
  hand_out(fragments, sums);
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
#pragma unroll 4  // sixteen loads in flight at once
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
  float4* made = reinterpret_cast<float4*>(product_memory());
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

// Tiled dense products: out[i, j] = sum over l of a(i, l) b(l, j), of matrices that may have extra, computed columns.
//
// A block of 256 threads computes a tile of 64 x 64: two groups of four warps sum every other slab, 16 deep, and add
// their tiles at the end. Of each slab a warp has 16 rows of a in registers; the group shares the columns of b in
// shared memory. Every element is fetched once per tile, and split once. The caller decides what happens with each
// sum. The order of the additions over l is fixed, so the bits of the result depend on the operands alone.
//
// The matrix units multiply TF32 (11 significant bits): operands are rounded to that format, and products are exact
// (`precision` is `runtime::MatmulPrecision` on the host). For f32, an operand is split into the sum of two TF32
// numbers, exact but for its last bit, and three of the four products of two such sums are computed ("3xTF32"); that
// of the low halves hardly counts.
//
// The units cut sums off instead of rounding them (emu/matrix.hpp), so a long sum of theirs drifts towards zero: over
// a depth of 376 it is 8 to 23 times as far off as a sum in f32. Therefore they sum one slab at a time, from zero, and
// the vector units add that to the sums of the slabs before, rounding to nearest.
//
// On compute capability 9.0 (`sm_90a`) the products are those of wgmma, which a group starts together, and which run
// while the next slab is prepared; elsewhere each warp multiplies by mma.sync, with the same operands in the same
// places.
//
// For wgmma, the loop over slabs is compiled for each precision, and again for operands that are not aligned to 16 bytes
// (`Known`); a kernel has all of these loops, and a block chooses one.
//
// An infinity has no such split, and neither has a number that rounds to one: their sums become NaN. A tile with a NaN
// is therefore computed again without the matrix units, so that it has infinities and NaN where IEEE 754 has them.
#pragma once
#include "ptx.cuh"

constexpr uint32_t TILE = 64;           // rows and columns of a tile
constexpr uint32_t DEPTH = 16;          // depth of a slab in shared memory
constexpr uint32_t PRODUCT_THREADS = 256;
constexpr uint32_t F32 = 0;             // precision of products; the other is TF32
constexpr uint32_t TESTED = 2;          // added to a precision: use the loop of before (`TGNN_BEFORE=products`)
constexpr uint32_t EACH = 4;            // rows and columns of a thread
constexpr uint32_t GROUPS = 2;          // groups of four warps; each sums every other slab
constexpr uint32_t GROUP_THREADS = PRODUCT_THREADS / GROUPS;
constexpr uint32_t ROUND = GROUPS * DEPTH;  // depths that the groups sum at a time
constexpr uint32_t SLAB = DEPTH * TILE;
static_assert(DEPTH == COLUMN_DEPTH, "as the matrix units read it");
static_assert(TILE * TILE == PRODUCT_THREADS * EACH * EACH, "the threads share a tile");

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

// The element at an edge and a depth.
template <Along along> __device__ __forceinline__ float element(Matrix m, uint32_t edge, uint32_t l) {
  return along == Along::Sum ? m.x[edge * m.stride + l] : m.x[l * m.stride + edge];
}
template <Along along, class Extra>
__device__ __forceinline__ float element(const WithColumns<Extra>& m, uint32_t edge, uint32_t l) {
  return edge < m.columns ? element<along>(m.m, edge, l) : m.extra(l, edge);
}

// What a thread fetches of a slab of an operand: two edges, each at four depths. With w = warp of the group, g = lane
// / 4 and t = lane % 4:
//
//            edges                  depths              in memory
//   a, Sum   16 w + g, 8 further    4 t, ..., 4 t + 3   16 bytes of each of two rows
//   b, Sum   8 w + g, 32 further    4 t, ..., 4 t + 3   16 bytes of each of two rows
//   a, Edge  16 w + g, 8 further    4 t, ..., 4 t + 3   two floats of each of four rows
//   b, Edge  lane, 32 further       w, w + 4, ...       two floats of each of four rows
//
// Beyond the last edge it is that edge again, of which nothing is stored; beyond the last depth it is zero.
enum class Side { A, B };
struct Piece {
  float x[2][4];
  // Loads four elements of edge `e`, or one of them; zeros unless they are `there`.
  __device__ __forceinline__ void four(uint32_t e, const float* from, bool there) {
#pragma unroll
    for (uint32_t j = 0; j < 4; j++) x[e][j] = 0.f;
    if (there) load(from, x[e]);
  }
  __device__ __forceinline__ void one(uint32_t e, uint32_t j, const float* from, bool there) {
    x[e][j] = there ? *from : 0.f;
  }
};
__device__ __forceinline__ uint32_t group() { return threadIdx.x / GROUP_THREADS; }
__device__ __forceinline__ uint32_t group_warp() { return threadIdx.x / WARP % (GROUP_THREADS / WARP); }
template <Side side, Along along> struct Own {
  static constexpr bool ACROSS = side == Side::B && along == Along::Edge;
  static constexpr uint32_t EDGES_APART = side == Side::A ? 8 : 32;
  static constexpr int32_t DEPTHS_APART = ACROSS ? 4 : 1;
  static __device__ __forceinline__ uint32_t edge() {
    return ACROSS ? lane_id() : group_warp() * (side == Side::A ? 16 : 8) + lane_id() / 4;
  }
  static __device__ __forceinline__ uint32_t depth() {
    return group() * DEPTH + (ACROSS ? group_warp() : lane_id() % 4 * 4);
  }
};

// Whether all threads may read 16 bytes of a row at a time, in a sum over l0..l1. Across rows they read single floats.
template <Along along, class Operand>
__device__ __forceinline__ bool is_aligned(const Operand& of, uint32_t l0, uint32_t l1) {
  if constexpr (along == Along::Sum) return by_four(of.x, uint32_t(of.stride % 4)) && (l0 | l1) % 4 == 0;
  return true;
}

// Fetches this thread's pieces of the slabs of its group, one after the other. `left` is the number of depths from the
// first one of the round on; `aligned` is whether all threads read 16 bytes of a row at a time.
template <Side side, Along along, class Operand> struct Source;
template <Side side> struct Source<side, Along::Sum, Matrix> {
  using Of = Own<side, Along::Sum>;
  const float* at;  // this thread's first element in the next slab
  uint32_t second;  // distance of the second row
  __device__ __forceinline__ Source(Matrix m, uint32_t edge0, uint32_t edges, uint32_t l0) {
    uint32_t edge = min(edge0 + Of::edge(), edges - 1);
    at = m.x + edge * m.stride + (l0 + Of::depth());
    second = (min(edge + Of::EDGES_APART, edges - 1) - edge) * uint32_t(m.stride);
  }
  __device__ __forceinline__ void fetch(Piece& to, int32_t left, bool aligned) {
    left -= int32_t(Of::depth());
#pragma unroll
    for (uint32_t e = 0; e < 2; e++) {
      const float* from = at + e * second;
      if (aligned) {
        to.four(e, from, left > 0);
      } else {
#pragma unroll
        for (int32_t j = 0; j < 4; j++) to.one(e, uint32_t(j), from + j, left > j);
      }
    }
    at += ROUND;
  }
};
template <Side side> struct Source<side, Along::Edge, Matrix> {
  using Of = Own<side, Along::Edge>;
  const float* at;  // this thread's first element in the next slab
  uint32_t stride;
  uint32_t second;  // distance of the second edge
  __device__ __forceinline__ Source(Matrix m, uint32_t edge0, uint32_t edges, uint32_t l0)
      : stride(uint32_t(m.stride)) {
    uint32_t edge = min(edge0 + Of::edge(), edges - 1);
    at = m.x + (l0 + Of::depth()) * m.stride + edge;
    second = min(edge + Of::EDGES_APART, edges - 1) - edge;
  }
  __device__ __forceinline__ void fetch(Piece& to, int32_t left, bool) {
    left -= int32_t(Of::depth());
#pragma unroll
    for (int32_t j = 0; j < 4; j++) {
#pragma unroll
      for (uint32_t e = 0; e < 2; e++) to.one(e, uint32_t(j), at + e * second, left > j * Of::DEPTHS_APART);
      at += uint64_t(stride) * (j < 3 ? Of::DEPTHS_APART : ROUND - 3 * Of::DEPTHS_APART);
    }
  }
};
template <class Extra> struct Source<Side::B, Along::Edge, WithColumns<Extra>> {
  using Stored = Source<Side::B, Along::Edge, Matrix>;
  Stored of;
  Extra extra;
  uint32_t edge[2], columns, l;
  __device__ __forceinline__ Source(WithColumns<Extra> m, uint32_t edge0, uint32_t edges, uint32_t l0)
      : of(m.m, edge0, m.columns, l0), extra(m.extra), columns(m.columns), l(l0 + Stored::Of::depth()) {
    edge[0] = min(edge0 + Stored::Of::edge(), edges - 1);
    edge[1] = min(edge[0] + Stored::Of::EDGES_APART, edges - 1);
  }
  __device__ __forceinline__ void fetch(Piece& to, int32_t left, bool aligned) {
    if (columns > 0) of.fetch(to, left, aligned);
    if (edge[1] >= columns) {
#pragma unroll
      for (uint32_t e = 0; e < 2; e++) {
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) {
          uint32_t d = j * Stored::Of::DEPTHS_APART;
          if (edge[e] >= columns) to.x[e][j] = left > int32_t(Stored::Of::depth() + d) ? extra(l + d, edge[e]) : 0.f;
        }
      }
    }
    l += ROUND;
  }
};

// Splits numbers into sums of two TF32 numbers. `low`, the remainder, has up to 12 significant bits and the units read
// 11 (CUTLASS relies on this, too): truncating the last bit is as accurate as rounding it, so `low` is not rounded. It
// is not finite if `x` or `high` is not. The units ignore the bits of `high` beyond the first 11 significant ones. For
// TF32, `high` is the rounded number, and `low` is not used.
struct Halves {
  float high[2][4], low[2][4];
  __device__ __forceinline__ Halves(const Piece& piece, bool split) {
    if (split) {
      each([&](uint32_t e, uint32_t j) {
        float x = piece.x[e][j];
        high[e][j] = __uint_as_float(__float_as_uint(x) + 0x1000u);
        low[e][j] = x - __uint_as_float(__float_as_uint(high[e][j]) & 0xFFFFE000u);
      });
    } else {
      each([&](uint32_t e, uint32_t j) {
        high[e][j] = to_tf32(piece.x[e][j]), low[e][j] = 0.f;
      });
    }
  }
  template <class F> __device__ __forceinline__ void each(F f) {
#pragma unroll
    for (uint32_t e = 0; e < 2; e++) {
#pragma unroll
      for (uint32_t j = 0; j < 4; j++) f(e, j);
    }
  }
};

// A slab of b in shared memory: DEPTH elements of one column of the tile after the other. Depth 4 t + j is at position
// 4 j + t, so that a lane's depths of a, which it fetches from consecutive addresses, are those of products of depth 8
// as the matrix units want them. Groups of four positions swap places within two rows of 128 bytes, as the 64-byte
// swizzle of the matrix units has it: then the simultaneous accesses of a warp hit different banks.
__device__ __forceinline__ uint32_t place(uint32_t column, uint32_t four) {
  return column * DEPTH + 4 * (four ^ (column / 2 % 4));
}
// Where a thread stores its piece of b.
template <Along along> struct Places {
  // From its first column to the second, which has the same swizzle.
  static constexpr uint32_t SECOND = Own<Side::B, along>::EDGES_APART * DEPTH;
  float* slab;
  uint32_t own;
  __device__ __forceinline__ explicit Places(float* slab) : slab(slab) {
    uint32_t column = Own<Side::B, along>::edge();
    own = along == Along::Edge ? place(column, group_warp()) : place(column, 0) + lane_id() % 4;
  }
  // Stores its column e in the slab that begins at `at`.
  __device__ __forceinline__ void store(uint32_t at, uint32_t e, const float (&x)[4]) const {
    float* to = slab + at + e * SECOND;
    if constexpr (along == Along::Edge) {
      ::store(to + own, x);
    } else {
#pragma unroll
      for (uint32_t j = 0; j < 4; j++) to[own ^ 4 * j] = x[j];
    }
  }
};

// A warp's part of a slab of a: 16 rows, as operands of two products of depth 8.
struct Rows16 {
  float high[2][4], low[2][4];
  __device__ __forceinline__ explicit Rows16(const Halves& of) {
#pragma unroll
    for (uint32_t e = 0; e < 2; e++) {
#pragma unroll
      for (uint32_t j = 0; j < 4; j++) {
        high[j / 2][j % 2 * 2 + e] = of.high[e][j], low[j / 2][j % 2 * 2 + e] = of.low[e][j];
      }
    }
  }
};

// Multiplies a warp's rows of a slab by the slab of b, from zero. Of the four products of high and low parts, that of
// the low parts is left out. The small products come first, so that only two sums are cut off at the size of the
// result.
template <class Loop>
__device__ __forceinline__ void multiply(WarpSums& sums, Rows16& a, SharedColumns b, Loop loop) {
  bool split = loop.split;
  mma_begin<Loop::may_split>(a);
  if (split) {
    SharedColumns b_low = b + SLAB;
    mma_columns(sums, a.low[0], b.at(0), false), mma_columns(sums, a.low[1], b.at(1), true);
    mma_columns(sums, a.high[0], b_low.at(0), true), mma_columns(sums, a.high[1], b_low.at(1), true);
  }
  mma_columns(sums, a.high[0], b.at(0), split), mma_columns(sums, a.high[1], b.at(1), true);
  mma_end();
}

// Whether a sum of the thread is NaN. (Infinities of both signs also count as one: the tile is then computed twice.)
__device__ __forceinline__ bool has_nan(const WarpSums& sums) {
  float all = 0;
#pragma unroll
  for (uint32_t n = 0; n < 8; n++) {
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) all += sums.at[n][i];
  }
  return all != all;
}

// Shared memory of a product: of each group two slabs of b, with high and low parts; then the groups' tiles, then the
// parts of a cluster. One array serves all products of a kernel.
__device__ __forceinline__ float* product_memory() {
  __shared__ __align__(1024) float memory[GROUPS * 2 * 2 * SLAB];
  static_assert(GROUPS * TILE * TILE <= GROUPS * 2 * 2 * SLAB, "the tiles fit");
  return memory;
}

// What a loop over slabs is compiled for: whether operands are split (f32, else they are rounded to TF32), and whether
// all threads read 16 bytes of a row at a time.
template <bool SPLIT, bool ALIGNED> struct Known {
  static constexpr bool split = SPLIT, aligned = ALIGNED, may_split = SPLIT;
};
// The same for the loop that tests both in every round: that of before, and that of mma.sync.
struct Tested {
  bool split, aligned;
  static constexpr bool may_split = true;
};

// Adds the products of the group's slabs to the sums of the warp. While a slab is multiplied, the next one is fetched.
template <Along b_along, class A, class B, class Loop>
__device__ __forceinline__ void add_slabs(WarpSums& total, A of_a, B of_b, int32_t depth, Loop loop) {
  uint32_t own = uniform(group());  // so that ptxas keeps the places of columns in uniform registers
  float* slabs = product_memory() + own * 2 * 2 * SLAB;
  Places<b_along> places(slabs);
  SharedColumns columns(slabs);
  Piece x, y;
  of_a.fetch(x, depth, loop.aligned), of_b.fetch(y, depth, loop.aligned);
  WarpSums made;
  made.set_zero();
#pragma unroll 1
  for (uint32_t at = 0; depth > 0; at ^= 2 * SLAB) {
    depth -= int32_t(ROUND);
    Halves of_y(y, loop.split);
#pragma unroll
    for (uint32_t e = 0; e < 2; e++) places.store(at, e, of_y.high[e]);
    if (loop.split) {
#pragma unroll
      for (uint32_t e = 0; e < 2; e++) places.store(at + SLAB, e, of_y.low[e]);
    }
    of_b.fetch(y, depth, loop.aligned);
    mma_wait(made), total.add(made);
    Rows16 rows(Halves(x, loop.split));
    of_a.fetch(x, depth, loop.aligned);
    group_barrier_of_columns(own);  // the slab has been written, and the one before has been read
    multiply(made, rows, columns + at, loop);
  }
  mma_wait(made), total.add(made);
  group_barrier(own);  // all slabs of the group have been read
}

__device__ __forceinline__ bool is_split(uint32_t precision) { return precision % TESTED == F32; }
template <class Loop> __device__ __forceinline__ bool is_split(Loop loop) { return loop.split; }

// Calls `run(loop)` with the loop for a precision, and for operands that are `aligned` or not, if they may be `MIXED`.
// The loop is chosen outside of other loops: in them, its registers would not suffice. Neither do they for mma.sync.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || defined(TGNN_HOST)
constexpr bool MANY_LOOPS = true;
#else
constexpr bool MANY_LOOPS = false;
#endif
template <bool MIXED, class Run>
__device__ __forceinline__ void with_loop(uint32_t precision, bool aligned, Run run) {
  bool split = is_split(precision);
  if (!MANY_LOOPS || precision >= TESTED) return run(Tested{split, aligned});
  if constexpr (MANY_LOOPS && MIXED) {
    if (!aligned) return split ? run(Known<true, false>{}) : run(Known<false, false>{});
  }
  if constexpr (MANY_LOOPS) split ? run(Known<true, true>{}) : run(Known<false, true>{});
}
template <bool MIXED, class Loop, class Run> __device__ __forceinline__ void with_loop(Loop loop, bool, Run run) { run(loop); }

// Adds the sums of the groups to the threads' sums, through shared memory. A warp's simultaneous accesses hit
// different banks.
__device__ __forceinline__ void hand_out(const WarpSums& from, Sums& sums) {
  auto place = [](uint32_t row, uint32_t column) { return row * TILE + (column ^ (row % 8 * 8)); };
  float* tiles = product_memory();
  float* own = tiles + group() * TILE * TILE;
  uint32_t row = Own<Side::A, Along::Sum>::edge(), column = lane_id() % 4 * 2;
#pragma unroll
  for (uint32_t n = 0; n < 8; n++) {
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
      float* to = own + place(row + 8 * h, column + 8 * n);
      *reinterpret_cast<float2*>(to) = make_float2(from.at[n][2 * h], from.at[n][2 * h + 1]);
    }
  }
  __syncthreads();  // the tiles have been written
#pragma unroll
  for (uint32_t i = 0; i < EACH; i++) {
    const float* at = tiles + place(own_row() + i, own_column());
    float of[EACH], total[EACH] = {};
#pragma unroll
    for (uint32_t tile = 0; tile < GROUPS; tile++) {
      load(at + tile * TILE * TILE, of);
#pragma unroll
      for (uint32_t j = 0; j < EACH; j++) total[j] += of[j];
    }
#pragma unroll
    for (uint32_t j = 0; j < EACH; j++) sums.at[i][j] += total[j];
  }
  __syncthreads();  // the tiles have been read
}

// Adds the products over l0..l1 to the thread's sums without the matrix units.
template <Along a_along, Along b_along, class A, class B>
__device__ void add_unsplit(Sums& sums, Tile tile, uint32_t l0, uint32_t l1, const A& a, const B& b) {
  uint32_t row = tile.row0 + own_row(), column = tile.column0 + own_column();
#pragma unroll 1
  for (uint32_t l = l0; l < l1; l++) {
    float x[EACH] = {}, y[EACH] = {};
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++) if (row + i < tile.rows) x[i] = element<a_along>(a, row + i, l);
#pragma unroll
    for (uint32_t j = 0; j < EACH; j++) if (column + j < tile.columns) y[j] = element<b_along>(b, column + j, l);
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++) {
#pragma unroll
      for (uint32_t j = 0; j < EACH; j++) sums.at[i][j] = fmaf(x[i], y[j], sums.at[i][j]);
    }
  }
}

// Returns the sums of one or more products of a tile: `terms(add)` calls `add(a, b, l0, l1)` for every product, with
// sums over l0..l1. Every thread of the block must call it. Beyond the rows and columns of the tile the sums have no
// meaning. `by` is a precision, whose loop over slabs is chosen here, or the loop.
template <Along a_along, Along b_along, class By, class Terms>
__device__ __forceinline__ Sums sum_of_products(By by, Tile tile, Terms terms) {
  Sums sums = {};
  if (tile.is_empty()) return sums;  // the whole block
  WarpSums total;
  total.set_zero();
  constexpr bool MIXED = a_along == Along::Sum || b_along == Along::Sum;
  bool aligned = true;
  terms([&](auto a, auto b, uint32_t l0, uint32_t l1) {
    aligned = aligned && is_aligned<a_along>(a, l0, l1) && is_aligned<b_along>(b, l0, l1);
  });
  with_loop<MIXED>(by, MIXED ? uniform(aligned) : true, [&](auto loop) {
    terms([&](auto a, auto b, uint32_t l0, uint32_t l1) {
      Source<Side::A, a_along, decltype(a)> of_a(a, tile.row0, tile.rows, l0);
      Source<Side::B, b_along, decltype(b)> of_b(b, tile.column0, tile.columns, l0);
      add_slabs<b_along>(total, of_a, of_b, int32_t(uniform(l0 < l1 ? l1 - l0 : 0)), loop);
    });
  });
  if (__syncthreads_or(is_split(by) && has_nan(total))) {
    terms([&](auto a, auto b, uint32_t l0, uint32_t l1) { add_unsplit<a_along, b_along>(sums, tile, l0, l1, a, b); });
  } else {
    hand_out(total, sums);
  }
  return sums;
}
// The same for one product.
template <Along a_along, Along b_along, class By, class A, class B>
__device__ __forceinline__ Sums sum_of_product(By by, Tile tile, uint32_t l0, uint32_t l1, A a, B b) {
  return sum_of_products<a_along, b_along>(by, tile, [=](auto add) { add(a, b, l0, l1); });
}

// Computes a tile of a product with sums over l0..l1, and calls `finish(sums, tile)`.
template <Along a_along, Along b_along, class A, class B, class Finish>
__device__ __forceinline__ void product(uint32_t precision, Tile tile, uint32_t l0, uint32_t l1, A a, B b, Finish finish) {
  if (tile.is_empty()) return;  // the whole block
  finish(sum_of_product<a_along, b_along>(precision, tile, l0, l1, a, b), tile);
}

// Long sums, such as weight gradients over the rows of a batch, are split into ranges: each block adds up one range,
// and the last block of a tile, or all blocks of its cluster, add the partial sums in order. The z dimension of the
// grid has `room` ranges for each product, one product after the other. If few terms are live, fewer ranges are used,
// so that each has at least `least` terms; the blocks of the others are idle. All but the last have a multiple of
// `multiple` terms. (`Grid::ranges`.)
struct Part {
  uint32_t at, of, room, terms, multiple;
  __device__ __forceinline__ Part(uint32_t terms, uint32_t room, uint32_t least = 128, uint32_t multiple = ROUND)
      : at(blockIdx.z % room), of(max(1u, min(room, terms / least))), room(room), terms(terms), multiple(multiple) {}
  __device__ __forceinline__ bool is_idle() const { return at >= of; }
  __device__ __forceinline__ uint32_t start(uint32_t part) const {
    uint32_t size = ((terms + of - 1) / of + multiple - 1) / multiple * multiple;
    return min(terms, part * size);
  }
  __device__ __forceinline__ uint32_t first() const { return start(at); }
  __device__ __forceinline__ uint32_t last() const { return start(at + 1); }
};

// Scratch for partial sums of tiles, in the layout of the threads, and tickets: one of each for every block.
// (`Grid::tile_parts`, `Grid::count`.)
struct TileParts {
  float* made;
  uint32_t* tickets;
};
// Turns the partial sums of this block's tile into the total; returns false in all but the last block. The last of
// every PARTS_AT_ONCE blocks adds their sums, in order; then the same with the sums of these.
constexpr uint32_t PARTS_AT_ONCE = 16;  // `Grid::PARTS_AT_ONCE` on the host
__device__ __forceinline__ bool add_parts(Sums& sums, Part part, TileParts to) {
  uint32_t tile = (blockIdx.z / part.room * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  float4* parts = reinterpret_cast<float4*>(to.made) + uint64_t(tile) * part.room * EACH * PRODUCT_THREADS + threadIdx.x;
  uint32_t* tickets = to.tickets + tile * part.room;
  uint32_t at = part.at, stride = EACH * PRODUCT_THREADS;  // which of the sums of this round is this block's
#pragma unroll 1
  for (uint32_t left = part.of; left > 1;) {
    uint32_t group = at / PARTS_AT_ONCE, first = group * PARTS_AT_ONCE, n = min(left - first, PARTS_AT_ONCE);
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++) {
      const float(&row)[EACH] = sums.at[i];
      parts[at * stride + i * PRODUCT_THREADS] = make_float4(row[0], row[1], row[2], row[3]);
    }
    if (!comes_last(tickets + group, n)) return false;
    sums = {};
#pragma unroll 4  // sixteen loads in flight at once
    for (uint32_t p = first; p < first + n; p++) {
#pragma unroll
      for (uint32_t i = 0; i < EACH; i++) {
        float4 row = __ldcg(parts + p * stride + i * PRODUCT_THREADS);
        sums.at[i][0] += row.x, sums.at[i][1] += row.y, sums.at[i][2] += row.z, sums.at[i][3] += row.w;
      }
    }
    left = (left + PARTS_AT_ONCE - 1) / PARTS_AT_ONCE;
    tickets += left, at = group, stride *= PARTS_AT_ONCE;
  }
  return true;
}

// The same through distributed shared memory, for a launch in clusters of the blocks of a tile: each block adds up
// some of the rows, and `tile` then has these alone. Returns whether `cluster_wait` must follow before the block
// exits, because others may still read its sums.
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
  Sums sums = sum_of_product<Along::Edge, Along::Edge>(precision, tile, part.first(), part.last(), a, b);
  if (add_parts(sums, part, to)) finish(sums, tile);
}

// An extra column of ones: the product then sums the rows of the other matrix.
struct Ones {
  __device__ __forceinline__ float operator()(uint32_t, uint32_t) const { return 1.f; }
};
// The gradients of a linear map: dw = dz^T x [m, k], and db = column sums of dz, which `finish` finds in column k.
// `dz` and `x` are matrices of `n` rows. Column k of x counts as 1; a `WithColumns` must return that 1.
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

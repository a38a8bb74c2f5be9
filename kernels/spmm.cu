// spmm: y[i] = act(s_i sum_j w_ij r_j x[j] + b), summed over the neighbours j of vertex i in a step
//
// shapes    x [u, d] f32, or [t u, d] f32 or 16-bit, begin, len [t v], col [m] u32, weight [m], scale [t v],
//           column_scale [t u] (if u = v, it may be scale), b [d], y [v, d] f32
// grid      first one block per slice of a long row; then one group of lanes per row, one lane per word (per four words
//           if rows are aligned). Groups of 8 lanes or more load as many columns and scales at once as they have lanes,
//           pass them on by shuffles, and have 8 rows of x in flight
// memory    reads a row of x, its scale, col and weight per neighbour, writes v d words; coalesced within rows
// work      2 d operations per neighbour
// limiter   memory: rows of x from L2, or from device memory if x is larger; latency if rows have few neighbours
// backward  spmm(dz) with the transposed adjacency; db = sum_rows(dz)
// source    Kipf and Welling 2017, equation 2; lanes over columns as in GE-SpMM (Huang et al. 2020); slices are ours
#include "stored.cuh"

constexpr uint32_t THREADS = 256;
constexpr int AT_ONCE = 4;         // rows in flight at once per group
constexpr uint32_t PASSED = 8;     // the same if the lanes of a group pass columns on
constexpr uint32_t SLICE = 1024;  // maximum number of neighbours of a slice (`long_rows::SLICE`)

// `to += by * x`
__device__ __forceinline__ void add_scaled(float& to, float by, float x) { to = fmaf(by, x, to); }
__device__ __forceinline__ void add_scaled(float4& to, float by, float4 x) {
  to.x = fmaf(by, x.x, to.x), to.y = fmaf(by, x.y, to.y), to.z = fmaf(by, x.z, to.z), to.w = fmaf(by, x.w, to.w);
}

// Divides a block's threads into groups of `lanes`, a power of two: enough for a row of `units`, at most a warp.
struct Groups {
  uint32_t lanes, lane, mine, count;
  __device__ __forceinline__ explicit Groups(uint32_t units) {
    lanes = 1;
    while (lanes < units && lanes < WARP) lanes *= 2;
    lane = threadIdx.x % lanes, mine = threadIdx.x / lanes, count = THREADS / lanes;
  }
};

// A sum of rows that a block's groups divide: each group sums its rows, then the first group adds the groups' sums in
// order and returns the result. `add(sum, k, step)` adds AT_ONCE rows: k, k + step, ... Every thread of the block must
// call it; `sums` has one element per thread.
template <class T, class F>
__device__ __forceinline__ T block_sum(const Groups& g, uint32_t first, uint32_t end, T* sums, F add) {
  T sum{};
  for (uint32_t k = first + g.mine; k < end; k += AT_ONCE * g.count) add(sum, k, g.count);
  __syncthreads();  // the previous use of `sums` is over
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (g.mine == 0) {
    for (uint32_t other = 1; other < g.count; other++) add_to(sum, sums[other * g.lanes + g.lane]);
  }
  return sum;
}

// Sums the rows `first` to `end` of `from`, bypassing the L1 cache because other blocks may have written them. The
// first group passes each sum to `use(c, sum)`. Every thread of the block must call it.
template <class T, class F>
__device__ __forceinline__ void sum_over(const Groups& g, const T* from, uint32_t units, uint32_t first, uint32_t end, T* sums, F use) {
  for (uint32_t base = 0; base < units; base += g.lanes) {
    uint32_t c = base + g.lane;
    T sum = block_sum(g, first, end, sums, [=](T& sum, uint32_t k, uint32_t step) {
#pragma unroll
      for (int i = 0; i < AT_ONCE; i++) {
        if (c < units && k + i * step < end) add_to(sum, __ldcg(from + uint64_t(k + i * step) * units + c));
      }
    });
    if (g.mine == 0 && c < units) use(c, sum);
  }
}

// Adds column `c` of AT_ONCE neighbours, at indices k, k + step, ... below `end` of the pool.
template <class T, class X>
__device__ __forceinline__ void add_neighbors(T& sum, const X* x, const Spmm& s, Status status, uint32_t c, uint32_t k, uint32_t step,
                                              uint32_t end) {
  uint32_t j[AT_ONCE];
  float factor[AT_ONCE];
  T term[AT_ONCE];
#pragma unroll
  for (int i = 0; i < AT_ONCE; i++) j[i] = k + i * step < end ? s.col[k + i * step] : NONE;
  // A separate loop: between two loads, the report of a fault would make the second wait for the first.
#pragma unroll
  for (int i = 0; i < AT_ONCE; i++) j[i] = status.row_of(k + i * step, j[i], s.columns);
#pragma unroll
  for (int i = 0; i < AT_ONCE; i++) {
    bool is = j[i] != NONE;
    factor[i] = is ? s.column_scale[j[i]] : 0.f;
    if (is && s.weight) factor[i] *= s.weight[k + i * step];
    term[i] = is ? real(x[uint64_t(j[i]) * s.d + c]) : T{};
  }
#pragma unroll
  for (int i = 0; i < AT_ONCE; i++) add_scaled(sum, factor[i], term[i]);
}

__device__ __forceinline__ float finish(const Spmm& s, float scale, float sum, float bias) {
  return s.then.activate(fmaf(scale, sum, bias));
}
__device__ __forceinline__ float4 finish(const Spmm& s, float scale, float4 sum, float4 bias) {
  return make_float4(finish(s, scale, sum.x, bias.x), finish(s, scale, sum.y, bias.y), finish(s, scale, sum.z, bias.z),
                     finish(s, scale, sum.w, bias.w));
}
// Writes column `c` of row `row` of y.
template <class T> __device__ __forceinline__ void give(const Spmm& s, bool there, uint32_t row, uint32_t c, T sum) {
  T bias = s.bias ? reinterpret_cast<const T*>(s.bias)[c] : T{};
  reinterpret_cast<T*>(s.y)[uint64_t(row) * s.d + c] = finish(s, there ? s.scale[row] : 0.f, sum, bias);
}

// One past the row's last neighbour in the pool, at most the pool's length.
__device__ __forceinline__ uint32_t neighbors_end(const Spmm& s, uint32_t row) {
  return uint32_t(min(uint64_t(s.begin[row]) + s.len[row], uint64_t(s.pool)));
}

// Processes this block's slice of a long row: {row, slice index in the row, number of slices of the row, ticket}.
template <class T, class X> __device__ __forceinline__ void slice(const X* x, const Spmm& s, Status status, uint32_t first, uint32_t at, T* sums) {
  if (uint64_t(first) + at >= s.cut) return;  // the whole block; inconsistent tables end here, too
  uint4 of = reinterpret_cast<const uint4*>(s.slices)[first + at];
  if (of.x >= s.vertices || of.w >= s.most_rows || of.y > at || of.y >= of.z || of.z > s.most_slices - (at - of.y)) return;
  Groups g(s.d);
  uint32_t last = neighbors_end(s, of.x), begin = uint32_t(min(s.begin[of.x] + uint64_t(of.y) * SLICE, uint64_t(last)));
  uint32_t end = min(begin + SLICE, last);
  T* parts = reinterpret_cast<T*>(s.parts) + uint64_t(at - of.y) * s.d;
  for (uint32_t base = 0; base < s.d; base += g.lanes) {
    uint32_t c = base + g.lane;
    T sum = block_sum(g, begin, end, sums, [&](T& sum, uint32_t k, uint32_t step) {
      if (c < s.d) add_neighbors(sum, x, s, status, c, k, step, end);
    });
    if (g.mine > 0 || c >= s.d) continue;
    if (of.z == 1) give(s, true, of.x, c, sum);
    else parts[uint64_t(of.y) * s.d + c] = sum;
  }
  if (of.z > 1 && comes_last(s.tickets + of.w, of.z)) {
    sum_over(g, parts, s.d, 0, of.z, sums, [&](uint32_t c, T sum) { give(s, true, of.x, c, sum); });
  }
}

// The item that a group begins with, of all rows by blocks of columns, and the number of items. For the blocks that are
// left for rows.
struct Items {
  uint32_t blocks;  // of columns
  uint64_t first, all, stride;
  __device__ __forceinline__ Items(const Groups& g, const Spmm& s)
      : blocks((s.d + g.lanes - 1) / g.lanes), first(uint64_t(blockIdx.x - s.most_slices) * g.count + g.mine),
        all(uint64_t(s.vertices) * blocks), stride(uint64_t(gridDim.x - s.most_slices) * g.count) {}
};

// The rows without slices, each by a group that loads its columns itself.
template <class T, class X>
__device__ __forceinline__ void each_alone(const X* x, const Spmm& s, Status status, bool there, const Groups& g) {
  Items items(g, s);
  for (uint64_t item = items.first; item < items.all; item += items.stride) {
    uint32_t row = uint32_t(item / items.blocks), c = uint32_t(item % items.blocks) * g.lanes + g.lane;
    uint32_t len = there ? s.len[row] : 0;
    if (c >= s.d || len > s.short_rows) continue;  // a long row: done by slices
    uint32_t k = there ? s.begin[row] : 0, end = there ? neighbors_end(s, row) : 0;
    T sum{};
    for (; k < end; k += AT_ONCE) add_neighbors(sum, x, s, status, c, k, 1, end);
    give(s, there, row, c, sum);
  }
}

// The same with columns that the lanes of a group load and pass on; for groups of at least PASSED lanes. The groups of a
// warp go through the neighbours of the longest of their rows together.
template <class T, class X>
__device__ __forceinline__ void passed_on(const X* x, const Spmm& s, Status status, bool there, const Groups& g) {
  Items items(g, s);
  uint32_t of_warp = lane_id() / g.lanes;
  for (uint64_t first = items.first - of_warp; first < items.all; first += items.stride) {
    uint64_t item = first + of_warp;
    bool is = item < items.all;
    uint32_t row = is ? uint32_t(items.blocks == 1 ? item : item / items.blocks) : 0;
    uint32_t c = uint32_t(item - uint64_t(row) * items.blocks) * g.lanes + g.lane, len = is && there ? s.len[row] : 0;
    is = is && len <= s.short_rows;  // a long row: done by slices
    uint32_t begin = is && there ? s.begin[row] : 0, end = is && there ? neighbors_end(s, row) : 0;
    uint32_t n = max(begin, end) - begin, longest = __reduce_max_sync(ALL, n);
    is = is && c < s.d;
    T sum{};
    uint32_t next = g.lane < n ? s.col[begin + g.lane] : NONE;
    for (uint32_t base = 0; base < longest; base += g.lanes) {
      uint32_t at = base + g.lane, mine = next;
      next = at + g.lanes < n ? s.col[begin + at + g.lanes] : NONE;
      mine = status.row_of(begin + at, mine, s.columns);
      float own = mine != NONE ? s.column_scale[mine] : 0.f;
      if (mine != NONE && s.weight) own *= s.weight[begin + at];
      for (uint32_t from = 0; from < min(g.lanes, longest - base); from += PASSED) {
        T term[PASSED];
#pragma unroll
        for (uint32_t i = 0; i < PASSED; i++) {
          uint32_t j = __shfl_sync(ALL, mine, int(from + i), int(g.lanes));
          term[i] = is && j != NONE ? real(x[uint64_t(j) * s.d + c]) : T{};
        }
#pragma unroll
        for (uint32_t i = 0; i < PASSED; i++) {
          float factor = __shfl_sync(ALL, own, int(from + i), int(g.lanes));
          // As many zeros are added as in `each_alone`: they would make -0 positive.
          if (base + from + i / AT_ONCE * AT_ONCE < n) add_scaled(sum, factor, term[i]);
        }
      }
    }
    if (is) give(s, there, row, c, sum);
  }
}

// `s.d` counts elements of type T. If `there` is false there is no step, and y is act(b). `pass`: whether lanes pass
// columns on where they can.
template <bool pass, class T, class X>
__device__ __forceinline__ void multiply(const X* x, const Spmm& s, Status status, bool there, uint32_t step, T* sums) {
  if (blockIdx.x < s.most_slices) {
    uint32_t first = there ? s.first[step] : 0, slices = there ? s.first[step + 1] - first : 0;
    if (blockIdx.x < slices) slice(x, s, status, first, blockIdx.x, sums);
    return;  // the whole block
  }
  Groups g(s.d);
  if (pass && g.lanes >= PASSED) passed_on<T>(x, s, status, there, g);
  else each_alone<T>(x, s, status, there, g);
}

// Advances the pointers of `s` to its step. Returns the step, or NONE; `own` becomes the first row of x of that step.
__device__ __forceinline__ uint32_t go_to_step(Spmm& s, uint64_t& own, Status status) {
  uint32_t step = status.row_of(s.place, s.steps[s.place], s.most_steps);
  uint64_t nth = step == NONE ? 0 : step, at = nth * s.vertices, first = nth * s.columns;
  s.begin += at, s.len += at, s.scale += at, s.column_scale += first;
  own = s.x_rows == s.columns ? 0 : first;
  return step;
}

// The product for rows of x of 4-byte numbers.
template <bool pass> __device__ __forceinline__ void multiply_words(const float* x, Spmm& s, Status status, float4* sums) {
  uint64_t own;
  uint32_t step = go_to_step(s, own, status);
  if (by_four(x, s.d) && by_four(s.y, s.d) && by_four(s.bias, s.d) && by_four(s.parts, s.d)) {
    s.d /= 4;
    multiply<pass>(fours(x) + own * s.d, s, status, step != NONE, step, sums);
  } else {
    multiply<pass>(x + own * s.d, s, status, step != NONE, step, reinterpret_cast<float*>(sums));
  }
}
// The product for rows of x of 16-bit numbers.
template <bool pass>
__device__ __forceinline__ void multiply_halves(const uint16_t* x, uint32_t kind, Spmm& s, Status status, float4* sums) {
  uint64_t own;
  uint32_t step = go_to_step(s, own, status);
  bool aligned = by_four(x, s.d) && by_four(s.y, s.d) && by_four(s.bias, s.d) && by_four(s.parts, s.d);
  if (aligned) s.d /= 4;
  as_kept(x, kind, [&](auto* kept) {
    if (aligned) multiply<pass>(fours(kept) + own * s.d, s, status, step != NONE, step, sums);
    else multiply<pass>(kept + own * s.d, s, status, step != NONE, step, reinterpret_cast<float*>(sums));
  });
}

// Whether lanes pass columns on: for sm_80, ptxas would keep the eight rows in flight partly in memory.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr bool PASS = false;
#else
constexpr bool PASS = true;
#endif

extern "C" __global__ void __launch_bounds__(256, 4) spmm(const float* x, Spmm s, Status status) {
  after_previous_kernel();
  __shared__ float4 sums[THREADS];
  multiply_words<PASS>(x, s, status, sums);
}
extern "C" __global__ void __launch_bounds__(256, 3) spmm_half(const uint16_t* x, uint32_t kind, Spmm s, Status status) {
  after_previous_kernel();
  __shared__ float4 sums[THREADS];
  multiply_halves<PASS>(x, kind, s, status, sums);
}

// The same, where each lane loads its columns itself (`Change::Small`).
extern "C" __global__ void __launch_bounds__(256, 4) spmm_before(const float* x, Spmm s, Status status) {
  after_previous_kernel();
  __shared__ float4 sums[THREADS];
  multiply_words<false>(x, s, status, sums);
}
extern "C" __global__ void __launch_bounds__(256, 3)
spmm_half_before(const uint16_t* x, uint32_t kind, Spmm s, Status status) {
  after_previous_kernel();
  __shared__ float4 sums[THREADS];
  multiply_halves<false>(x, kind, s, status, sums);
}

template <class T>
__device__ __forceinline__ void sum_all(const T* x, T* y, T* parts, uint32_t* ticket, T* sums, uint32_t n, uint32_t units,
                                        uint32_t block_rows) {
  uint32_t blocks = max(1u, (n + block_rows - 1) / block_rows), first = blockIdx.x * block_rows;
  if (blockIdx.x >= blocks) return;  // the whole block
  Groups g(units);
  T* mine = parts + uint64_t(blockIdx.x) * units;
  sum_over(g, x, units, first, min(first + block_rows, n), sums, [=](uint32_t c, T sum) { mine[c] = sum; });
  if (comes_last(ticket, blocks)) sum_over(g, parts, units, 0, blocks, sums, [=](uint32_t c, T sum) { y[c] = sum; });
}

// y [1, d] = column sums of x [n, d]; `parts` holds one row for each block with live rows.
extern "C" __global__ void __launch_bounds__(256, FULL)
sum_rows(const float* x, float* y, float* parts, uint32_t* ticket, Rows rows, uint32_t d, uint32_t block_rows) {
  after_previous_kernel();
  __shared__ float4 sums[THREADS];
  if (by_four(x, d) && by_four(y, d) && by_four(parts, d)) {
    sum_all(fours(x), fours(y), fours(parts), ticket, sums, rows.live(), d / 4, block_rows);
  } else {
    sum_all(x, y, parts, ticket, reinterpret_cast<float*>(sums), rows.live(), d, block_rows);
  }
}

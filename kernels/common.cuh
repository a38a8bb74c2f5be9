// The header that every kernel includes: live row counts, faults, warp and block sums, random numbers.
//
// The same source is compiled for the GPU and, for the tests, for the host (`emu/`). Neither this header nor the
// kernels distinguish the two.
#pragma once
#ifdef TGNN_HOST
#include "emu/cuda.hpp"
#else
#include <cstdint>
#endif

constexpr unsigned NONE = 0xFFFFFFFFu;  // no node, no event
constexpr unsigned WARP = 32;
constexpr unsigned ALL = 0xFFFFFFFFu;   // mask of every lane of a warp

// Blocks of 256 threads that fill a multiprocessor.
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ >= 1200 || (__CUDA_ARCH__ >= 860 && __CUDA_ARCH__ < 900))
constexpr unsigned FULL = 6;  // 8.6, 8.9, 12.x: 1,536 threads
#else
constexpr unsigned FULL = 8;
#endif

// Waits for the end of the previous kernel on this CUDA stream; every kernel calls it before anything else. From compute
// capability 9.0 on, a kernel may be launched when all blocks of the previous one have exited, but before it has ended
// ("programmatic dependent launch"). After the wait, the previous kernel's writes are visible. No kernel asks for the
// next one sooner (`griddepcontrol.launch_dependents`): blocks that wait take the place of kernels on other CUDA
// streams.
__device__ __forceinline__ void after_previous_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The row count of a value. `*count * times` rows are live, at most `capacity`; all of them if `count` is null.
// Grids are sized for `capacity`; a kernel reads and writes live rows only. (`runtime::Rows` on the host.)
struct Rows {
  const uint32_t* count;
  uint32_t times, capacity;
  __device__ __forceinline__ uint32_t live() const {
    uint32_t of = ~0u;  // there is no count
#ifdef TGNN_HOST
    if (count) of = *count;
#else
    // Without a branch, so that the counts of several operands are on their way at the same time.
    asm volatile("{\n\t.reg .pred is;\n\tsetp.ne.u64 is, %1, 0;\n\t@is ld.global.u32 %0, [%1];\n\t}" : "+r"(of) : "l"(count));
#endif
    uint64_t n = uint64_t(of) * times;
    return of != ~0u && n < capacity ? uint32_t(n) : capacity;
  }
};

// The first fault of a step; the host reads it together with the step's results. (`runtime::Status`.)
struct Status {
  unsigned long long* word;
  // Reports that `row` holds `value`, which is not finite, or `index`, which is out of range.
  __device__ __forceinline__ void fault(uint32_t row, float value) const {
    record(NOT_FINITE, row, __float_as_uint(value));
  }
  __device__ __forceinline__ void fault(uint32_t row, uint32_t index) const { record(OUT_OF_RANGE, row, index); }
  // Reports that `row` has `count` slots, more than there are.
  __device__ __forceinline__ void above(uint32_t row, uint32_t count) const { record(ABOVE_MOST, row, count); }
  // Returns `index` if it is below `rows`, else NONE. An index out of range other than NONE is a fault of row `at`.
  __device__ __forceinline__ uint32_t row_of(uint32_t at, uint32_t index, uint32_t rows) const {
    if (index < rows) return index;
    if (index != NONE) fault(at, index);
    return NONE;
  }
  // The word has the kind in its highest two bits, and then 30 bits of the row.
  static constexpr uint32_t NOT_FINITE = 1, OUT_OF_RANGE = 2, ABOVE_MOST = 3, ROW_BITS = 30;
  __device__ __forceinline__ void record(uint32_t kind, uint32_t row, uint32_t detail) const {
    uint32_t high = kind << ROW_BITS | (row & ((1u << ROW_BITS) - 1));
    atomicCAS(word, 0ull, (unsigned long long)(high) << 32 | detail);
  }
};

// Reports parameter number `parameter` if its value `w`, or `moment` of 0 or more, is not finite.
__device__ __forceinline__ void check_parameter(Status status, uint32_t parameter, float w, float moment) {
  if (!(fabsf(w) < INFINITY)) status.fault(parameter, w);
  else if (!(moment < INFINITY)) status.fault(parameter, moment);
}

// The windows of all ranks: blocks of their devices' memory, which every rank reads. (`runtime::cuda::windows`.)
struct Windows {
  const uint64_t* of;  // for each rank, address and bytes
  uint32_t rank, ranks;
  template <class T> __device__ __forceinline__ const T* at(uint32_t r, uint64_t byte) const {
    return reinterpret_cast<const T*>(of[2 * r] + byte);
  }
  __device__ __forceinline__ uint64_t bytes(uint32_t r) const { return of[2 * r + 1]; }
};

// Converts the ticks between two events to seconds: the difference is an i64, clamped to `longest`, then one f32
// product. (`runtime::Gaps`.)
struct Gaps {
  int64_t longest;
  float seconds_per_tick;
  uint32_t unused;
  __device__ __forceinline__ float seconds(int64_t from, int64_t to) const {
    // Times may be further apart than an i64 can hold: the difference saturates, as on the host.
    int64_t ticks = int64_t(uint64_t(to) - uint64_t(from));
    if ((to < from) != (ticks < 0)) ticks = to < from ? INT64_MIN : INT64_MAX;
    return float(ticks < longest ? ticks : longest) * seconds_per_tick;
  }
};

// A parameter and what its update changes. Its blocks end before block index `end`. (`abi::Parameter`.)
struct Parameter {
  float* w;
  const float* g;
  float *m, *v;
  float* sum;  // of the values after each step; may be null
  uint32_t n, end;
};
struct Parameters {
  Parameter of[64];  // unused ones have no blocks
  // The index of the parameter of a block: a binary search, since each look into the constant bank takes long.
  __device__ __forceinline__ uint32_t index(uint32_t block) const {
    uint32_t at = 0;
#pragma unroll
    for (uint32_t step = 32; step; step /= 2) at += block >= of[at + step - 1].end ? step : 0;
    return at;
  }
};

// The terms of a sum, two or more. (`abi::Terms`.)
struct Terms {
  static constexpr uint32_t MOST = 8;
  const float* of[MOST];
  uint64_t count;
};

// Lists of ids, and the index of each id's node among the unique nodes. The first list has `stride` ids per event.
struct IdList {
  const uint32_t* ids;
  uint32_t* psi;
  Rows rows;
  uint64_t cols;
  __device__ __forceinline__ uint32_t live() const { return rows.live() * uint32_t(cols); }
};
struct IdLists {
  IdList of[8];
  uint16_t lists, repeated;
  uint32_t stride;
};

// A table and rows of it, `width` 4-byte words or 16-bit numbers wide. (`abi::TableRows`.)
struct TableRows {
  void* table;
  void* rows;  // 4-byte words; f32 if the table is 16-bit
  uint32_t width;
  uint32_t kind;  // 0 if the table has 4-byte words; otherwise one more than the code of its 16-bit format
};
// Tables whose rows are read or written at the same indices. (`abi::Tables`.)
struct Tables {
  TableRows of[8];
  uint64_t count;
};

// ---- a warp ----
__device__ __forceinline__ unsigned lane_id() { return threadIdx.x % WARP; }
// Returns the sum over the lanes, the same in every lane; the order of the additions is fixed. Or over every LANES
// neighbouring lanes, a power of two.
template <unsigned LANES = WARP> __device__ __forceinline__ float warp_sum(float v) {
  for (unsigned o = LANES / 2; o; o /= 2) v += __shfl_xor_sync(ALL, v, int(o));
  return v;
}
__device__ __forceinline__ float warp_max(float v) {
  for (unsigned o = WARP / 2; o; o /= 2) v = fmaxf(v, __shfl_xor_sync(ALL, v, int(o)));
  return v;
}

// Returns the number of set bits of `lanes` below this lane.
__device__ __forceinline__ uint32_t lanes_below(unsigned lanes) { return uint32_t(__popc(lanes & ((1u << lane_id()) - 1))); }

// Transposed sum over a warp: lane l receives the sum over all lanes of `v[l]`, in `v[0]`. Each step exchanges `O`
// numbers: a lane hands over the half that other lanes will sum, then half of the rest.
template <uint32_t O = WARP / 2> __device__ __forceinline__ void transposed_sums(float (&v)[WARP]) {
  bool upper = lane_id() & O;
#pragma unroll
  for (uint32_t i = 0; i < O; i++) {
    float give = upper ? v[i] : v[i + O], keep = upper ? v[i + O] : v[i];
    v[i] = keep + __shfl_xor_sync(ALL, give, int(O));
  }
  if constexpr (O > 1) transposed_sums<O / 2>(v);
}

// ---- work by rows ----
// For kernels with one warp per row: the first row of this warp, and the stride to its next row.
__device__ __forceinline__ uint32_t warp_row() { return (blockIdx.x * blockDim.x + threadIdx.x) / WARP; }
__device__ __forceinline__ uint32_t warp_rows() { return gridDim.x * blockDim.x / WARP; }
// For kernels with one thread per element.
__device__ __forceinline__ uint64_t thread_item() { return uint64_t(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ __forceinline__ uint64_t thread_items() { return uint64_t(gridDim.x) * blockDim.x; }

// Exclusive prefix sum over the threads of a block of whole warps; `all` receives the block's total. To be called by
// every thread of the block.
__device__ __forceinline__ uint32_t block_scan(uint32_t v, uint32_t (&sums)[WARP], uint32_t& all) {
  unsigned lane = lane_id(), warp = threadIdx.x / WARP;
  uint32_t sum = v;
  for (unsigned o = 1; o < WARP; o *= 2) {
    uint32_t below = __shfl_up_sync(ALL, sum, o);
    sum += lane < o ? 0 : below;
  }
  __syncthreads();  // the sums of an earlier scan have been read
  if (lane == WARP - 1) sums[warp] = sum;
  __syncthreads();
  uint32_t of_warp = lane < blockDim.x / WARP ? sums[lane] : 0;
  all = __reduce_add_sync(ALL, of_warp);
  return __reduce_add_sync(ALL, lane < warp ? of_warp : 0) + sum - v;
}

// Whether rows of `width` 4-byte words starting at `p` can be moved 16 bytes at a time.
__device__ __forceinline__ bool by_four(const void* p, uint32_t width) {
  return width % 4 == 0 && reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

__device__ __forceinline__ void add_to(float& a, float b) { a += b; }
__device__ __forceinline__ void add_to(float4& a, float4 b) { a.x += b.x, a.y += b.y, a.z += b.z, a.w += b.w; }
__device__ __forceinline__ void scale(float& a, float by) { a *= by; }
__device__ __forceinline__ void scale(float4& a, float by) { a.x *= by, a.y *= by, a.z *= by, a.w *= by; }
// Adds `term(lane)` for every set bit of `lanes`, in ascending order. `lanes` must be the same in the whole warp.
// Several terms are loaded at once.
template <class T, class F>
__device__ __forceinline__ void add_in_order(T& sum, unsigned lanes, F term) {
  constexpr int AT_ONCE = 4;
  while (lanes) {
    T terms[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++) terms[i] = lanes ? term(__ffs(int(lanes)) - 1) : T{}, lanes &= lanes - 1;
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++) add_to(sum, terms[i]);
  }
}

// relu; a NaN stays NaN, so that it reaches the loss and is reported there.
__device__ __forceinline__ float relu(float z) { return z < 0.f ? 0.f : z; }

__device__ __forceinline__ float sigmoid(float x) { return 1.f / (1.f + expf(-x)); }

// ln(1 + e^x) without overflow.
__device__ __forceinline__ float softplus(float x) { return fmaxf(x, 0.f) + log1pf(expf(-fabsf(x))); }

// ---- memory ----
// Loads and stores V consecutive floats; four of them, or two that are loaded, in one instruction.
template <int V> __device__ __forceinline__ void load(const float* p, float (&v)[V]) {
  if constexpr (V == 4) {
    float4 x = *reinterpret_cast<const float4*>(p);
    v[0] = x.x, v[1] = x.y, v[2] = x.z, v[3] = x.w;
  } else if constexpr (V == 2) {
    float2 x = *reinterpret_cast<const float2*>(p);
    v[0] = x.x, v[1] = x.y;
  } else {
    for (int i = 0; i < V; i++) v[i] = p[i];
  }
}
template <int V> __device__ __forceinline__ void store(float* p, const float (&v)[V]) {
  if constexpr (V == 4) {
    *reinterpret_cast<float4*>(p) = make_float4(v[0], v[1], v[2], v[3]);
  } else {
    for (int i = 0; i < V; i++) p[i] = v[i];
  }
}
// Loads what other blocks have written, past the L1 cache.
template <int V> __device__ __forceinline__ void load_shared(const float* p, float (&v)[V]) {
  if constexpr (V == 4) {
    float4 x = __ldcg(reinterpret_cast<const float4*>(p));
    v[0] = x.x, v[1] = x.y, v[2] = x.z, v[3] = x.w;
  } else {
    for (int i = 0; i < V; i++) v[i] = __ldcg(p + i);
  }
}
// Loads the V floats at `p + at`; zeros if `p` is null.
template <int V> __device__ __forceinline__ void load_if(const float* p, uint64_t at, float (&v)[V]) {
  if (p) {
    load(p + at, v);
  } else {
    for (int i = 0; i < V; i++) v[i] = 0.f;
  }
}

// ---- sums over rows ----
// Each block sums some of the rows and stores its partial sum; the last block to finish adds the partial sums in order.

// Returns whether this block is the last of the `blocks` blocks that share this ticket. The last block can read what
// the others wrote before their call, if it bypasses the L1 cache. The ticket must be zero before the first call; the
// last call resets it (`Op::tickets`). Every thread of the block must call it.
__device__ __forceinline__ bool comes_last(uint32_t* ticket, uint32_t blocks) {
  bool last = false;
  __syncthreads();  // the whole block has written
  if (threadIdx.x == 0) {
    __threadfence();  // the block's partial sums become visible before its ticket
    last = atomicInc(ticket, blocks - 1) == blocks - 1;
    __threadfence();  // the last ticket is taken before the partial sums of all blocks are read
  }
  return __syncthreads_or(last);
}
// Element `i` of the sum of `parts` partial sums of `size` elements each; for the last block.
__device__ __forceinline__ float sum_of_parts(const float* made, uint32_t parts, uint64_t size, uint64_t i) {
  float sum = 0.f;
#pragma unroll 16  // 16 loads in flight at once
  for (uint32_t p = 0; p < parts; p++) sum += __ldcg(made + p * size + i);
  return sum;
}
// Adds up the values `v` of all threads of the grid, with one number per block in `made`. Returns whether this thread is
// the one that gets the sum. Every thread must call it.
__device__ __forceinline__ bool sum_of_grid(float& v, float* made, uint32_t* ticket) {
  __shared__ float of_warps[WARP];
  v = warp_sum(v);
  if (lane_id() == 0) of_warps[threadIdx.x / WARP] = v;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (uint32_t w = 1; w < blockDim.x / WARP; w++) v += of_warps[w];
    made[blockIdx.x] = v;
  }
  if (!comes_last(ticket, gridDim.x) || threadIdx.x > 0) return false;
  v = sum_of_parts(made, gridDim.x, 1, 0);
  return true;
}
// Writes the mean loss of the rows `x` [n, width], unless `loss` is null. A mean that is not finite is a fault of the
// first row that is not. For one thread.
__device__ __forceinline__ void write_loss(float* loss, float mean, const float* x, uint32_t n, uint32_t width,
                                           const Status& status) {
  if (!(fabsf(mean) < INFINITY)) {
    uint64_t size = uint64_t(n) * width, first = 0;
    while (first < size && fabsf(x[first]) < INFINITY) first++;
    status.fault(first < size ? uint32_t(first / width) : 0, mean);
  }
  if (loss) *loss = mean;
}
// Adds the partial sums of all blocks, the rows of `sums` [blocks, 2 width], into two outputs of `width` elements;
// either may be null. For the last block, of 256 threads, which divide the partial sums of each V columns evenly.
template <int V>
__device__ __forceinline__ void add_partial_sums(const float* sums, uint32_t blocks, float* first, float* second,
                                                 uint32_t width, float4 (&of_threads)[256]) {
  constexpr uint32_t THREADS = 256;
  uint32_t columns = 2 * width / V;
  for (uint32_t left = 0; left < columns; left += THREADS) {
    uint32_t here = min(columns - left, THREADS), slices = THREADS / here, slice = threadIdx.x / here;
    uint32_t share = (blocks + slices - 1) / slices, c = (left + threadIdx.x % here) * V;
    uint32_t from = min(slice * share, blocks), n = slice < slices ? min(share, blocks - from) : 0;
    float sum[V] = {};
#pragma unroll 8  // 8 loads in flight at once
    for (uint32_t p = 0; p < n; p++) {
      float v[V];
      load_shared(sums + uint64_t(from + p) * 2 * width + c, v);
#pragma unroll
      for (int l = 0; l < V; l++) sum[l] += v[l];
    }
    __syncthreads();  // the sums of earlier columns have been read
    store(&of_threads[threadIdx.x].x, sum);
    __syncthreads();
    for (uint32_t s = 1; slice == 0 && s < slices; s++) {
      float v[V];
      load(&of_threads[threadIdx.x + s * here].x, v);
#pragma unroll
      for (int l = 0; l < V; l++) sum[l] += v[l];
    }
#pragma unroll
    for (int l = 0; l < V; l++) {
      float* out = c + l < width ? first : second;
      if (slice == 0 && out) out[c + l < width ? c + l : c + l - width] = sum[l];
    }
  }
}
__device__ __forceinline__ void add_block_sums(const float* sums, uint32_t blocks, float* first, float* second,
                                               uint32_t width) {
  __shared__ float4 of_threads[256];
  if (by_four(sums, 2 * width)) add_partial_sums<4>(sums, blocks, first, second, width, of_threads);
  else add_partial_sums<1>(sums, blocks, first, second, width, of_threads);
}

// For a block with one column per lane whose warps divide the rows: returns the sum of the warps' values `v`, in warp
// order, in the lanes of the first warp. Every thread of the block must call it. `sums` is in shared memory and has one
// row per warp.
__device__ __forceinline__ float sum_of_warps(float v, float (*sums)[WARP]) {
  __syncthreads();  // the previous use of `sums` is over
  sums[threadIdx.x / WARP][lane_id()] = v;
  __syncthreads();
  float sum = 0;
  if (threadIdx.x < WARP) {
    for (unsigned w = 0; w < blockDim.x / WARP; w++) sum += sums[w][lane_id()];
  }
  return sum;
}
// Sum of column `c` of `x` [n, width], in the lanes of the first warp. Every thread of the block must call it. A warp
// has 16 loads in flight at once; those beyond the last row repeat it, and are not added.
__device__ __forceinline__ float column_sum(const float* x, uint32_t n, uint32_t width, uint32_t c,
                                            float (*sums)[WARP]) {
  constexpr uint32_t AT_ONCE = 16;
  float sum = 0;
  uint32_t warps = blockDim.x / WARP;
  for (uint32_t first = threadIdx.x / WARP; c < width && first < n; first += AT_ONCE * warps) {
    float v[AT_ONCE];
#pragma unroll
    for (uint32_t i = 0; i < AT_ONCE; i++) v[i] = x[uint64_t(min(first + i * warps, n - 1)) * width + c];
#pragma unroll
    for (uint32_t i = 0; i < AT_ONCE; i++) sum += first + i * warps < n ? v[i] : 0.f;
  }
  return sum_of_warps(sum, sums);
}

// ---- random numbers ----
// Philox4x32-10 (Salmon et al., SC 2011); draws the same numbers as `runtime::philox::Key` on the host.
struct Key {
  uint32_t seed, salted;
  __device__ __forceinline__ uint4 draw(uint64_t index, uint32_t epoch, uint32_t batch) const {
    uint32_t c0 = uint32_t(index), c1 = uint32_t(index >> 32), c2 = epoch, c3 = batch, k0 = seed, k1 = salted;
#pragma unroll
    for (int round = 0; round < 10; round++) {
      uint32_t high_a = __umulhi(0xD2511F53u, c0), low_a = 0xD2511F53u * c0;
      uint32_t high_b = __umulhi(0xCD9E8D57u, c2), low_b = 0xCD9E8D57u * c2;
      c0 = high_b ^ c1 ^ k0, c1 = low_b, c2 = high_a ^ c3 ^ k1, c3 = low_a;
      k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    return make_uint4(c0, c1, c2, c3);
  }
  // A uniform number below `n`.
  __device__ __forceinline__ uint32_t below(uint64_t index, uint32_t n, uint32_t epoch, uint32_t batch) const {
    return __umulhi(draw(index, epoch, batch).x, n);
  }
};

// Decides which elements are dropped, and scales the others. (`ops::epilogue::DropRate`.)
struct Drop {
  const uint32_t* now;  // epoch and batch; null without dropout
  Key key;
  uint32_t threshold;   // elements whose 16-bit number is below it are dropped
  float scale;
  uint32_t per_event;   // elements of each event; 0 if the clock does not count the events of other ranks
  // The eight 16-bit numbers of elements `8 group` to `8 group + 7`.
  __device__ __forceinline__ uint4 draw(uint64_t group) const { return key.draw(group, now[0], now[1]); }
  // The index of the draw of this rank's element: those of the events before its own come first.
  __device__ __forceinline__ uint64_t place(uint64_t element) const {
    return per_event ? element + uint64_t(now[2]) * per_event : element;
  }
  __device__ __forceinline__ float factor(uint64_t element) const {
    if (!now) return 1.f;
    element = place(element);
    uint32_t i = uint32_t(element % 8);
    uint4 of = draw(element / 8);
    uint32_t low = i & 2 ? of.y : of.x, high = i & 2 ? of.w : of.z;
    return factor_of(((i & 4 ? high : low) >> (16 * (i & 1)) & 0xffffu) >= threshold);
  }
  // The factor of an element, given its bit of `kept`.
  __device__ __forceinline__ float factor_of(bool kept) const { return kept ? scale : 0.f; }
  // Mask of the kept elements among `first` to `first + 3`, `first` in the lowest bit. Their numbers come from one
  // draw, or from two if they straddle a group of eight.
  __device__ __forceinline__ uint32_t kept(uint64_t first) const {
    if (!now) return 15;  // keep all four
    first = place(first);
    uint32_t skip = uint32_t(first % 8);
    uint4 of = draw(first / 8);
    uint64_t low = of.x | uint64_t(of.y) << 32, high = of.z | uint64_t(of.w) << 32;
    if (skip >= 4) {
      low = high, skip -= 4;
      if (skip) of = draw(first / 8 + 1), high = of.x | uint64_t(of.y) << 32;
    }
    uint64_t numbers = skip ? low >> (16 * skip) | high << (64 - 16 * skip) : low;
    uint32_t bits = 0;
    for (uint32_t i = 0; i < 4; i++) bits |= uint32_t((numbers >> (16 * i) & 0xffffu) >= threshold) << i;
    return bits;
  }
};

// The epilogue of a product or a sum: y = drop(act(z)). (`ops::epilogue::Epilogue`.)
struct Epilogue {
  uint32_t activation;  // 0 identity, 1 relu, 2 leaky relu with `slope`, 3 tanh, 4 sigmoid
  float slope;
  Drop drop;
  __device__ __forceinline__ float activate(float z) const {
    switch (activation) {
      case 1: return relu(z);
      case 2: return z > 0.f ? z : slope * z;
      case 3: return tanhf(z);
      case 4: return sigmoid(z);
      default: return z;
    }
  }
  // y for `z`, where bit `i` of `kept` says whether the element is kept.
  __device__ __forceinline__ float of(float z, uint32_t kept, uint32_t i) const {
    return activate(z) * drop.factor_of(kept >> i & 1);
  }
  // y of `element`, or of the four elements from `first` on, each from its own z.
  __device__ __forceinline__ float at(uint64_t element, float z) const { return activate(z) * drop.factor(element); }
  __device__ __forceinline__ float4 at(uint64_t first, float4 z) const {
    uint32_t kept = drop.kept(first);
    return make_float4(of(z.x, kept, 0), of(z.y, kept, 1), of(z.z, kept, 2), of(z.w, kept, 3));
  }
  // dz from `y` and `dy`, where bit `i` of `kept` says whether the element is kept.
  __device__ __forceinline__ float grad(float y, float dy, uint32_t kept, uint32_t i) const {
    // A dropped element has y = 0, so `kept` is not needed.
    if (activation == 1) return y > 0.f ? dy * drop.scale : 0.f;
    float v = y / drop.scale, derivative = 1.f;
    if (activation == 2) derivative = v > 0.f ? 1.f : slope;
    if (activation == 3) derivative = 1.f - v * v;
    if (activation == 4) derivative = v * (1.f - v);
    return dy * drop.factor_of(kept >> i & 1) * derivative;
  }
};

// ---- operands of temporal attention, forward and backward ----
struct Attention {
  const float *query, *h, *dt, *edge, *w, *b;
  const uint32_t *starts, *order, *own, *row, *event, *count;
  Rows roots, queries;  // rows of `order`, rows of `query`
  uint32_t heads, k, d, f, t;
  float scale;
  Drop drop;
};

// ---- operands of a memory update, for the kernels of all cells ----
struct MemoryUpdate {
  const uint32_t *unique, *mail_event;
  const float *memory, *mail, *edge, *w, *b, *w_x, *w_h, *b_x, *b_h;
  // For every mail: its row among the unique nodes, its row of memory and mail, its row of the edge features.
  const uint32_t *mailed, *node, *feature;
  const float* dt;
  float* weights;  // of whole messages, for each sum of the cell: row `sums j + g` for sum g of memory column j
  float *out, *messages, *gates;  // `gates` may be null
  Rows rows, mails;
  // `gathered`: whether state has one row per unique node instead of one per node.
  uint32_t d, f, t, gathered, precision, nodes, joint, apart;
  __device__ __forceinline__ uint32_t width() const { return 2 * d + f + t; }
};

// ---- operands of spmm, for its f32 and 16-bit kernels ----
struct Spmm {
  const uint32_t *steps, *begin, *len, *col, *first, *slices;
  const float *weight, *scale, *column_scale, *bias;  // `weight` and `bias` may be null
  float *y, *parts;                                   // `parts`: one row per slice of a step
  uint32_t* tickets;                                  // one per long row of a step
  // `place`: index of the current step in `steps`; `pool`: length of `col`; `cut`: number of slices of all steps.
  uint32_t place, most_steps, x_rows, vertices, columns, d, short_rows, most_slices, most_rows, pool, cut, unused;
  Epilogue then;
};

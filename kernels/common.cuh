// The one header of every kernel: row counts that live on the device, faults, sums over a warp, random numbers.
//
// The same source runs on a GPU and, compiled for the host (`emu/`), in the tests: nothing here or in a kernel asks which.
#pragma once
#ifdef TGNN_HOST
#include "emu/cuda.hpp"
#else
#include <cstdint>
#endif

constexpr unsigned NONE = 0xFFFFFFFFu;  // names no node and no event
constexpr unsigned WARP = 32;
constexpr unsigned ALL = 0xFFFFFFFFu;   // every lane of a warp

// The rows of a value: `*count * times` of them are live, at most `capacity`; all of them where there is no count.
// Launches are made for `capacity`; a kernel reads and writes the live rows only. (`runtime::Rows` on the host.)
struct Rows {
  const uint32_t* count;
  uint32_t times, capacity;
  __device__ __forceinline__ uint32_t live() const {
    if (!count) return capacity;
    uint64_t n = uint64_t(*count) * times;
    return n < capacity ? uint32_t(n) : capacity;
  }
};

// The first fault of a step; the host reads it with the step's results. (`runtime::Status`.)
struct Status {
  unsigned long long* word;
  // `row` holds what it must not; `value` helps to say what.
  __device__ __forceinline__ void fault(uint32_t row, float value) const {
    unsigned long long w = 1ull << 63 | (unsigned long long)(row & 0x7fffffffu) << 32 | __float_as_uint(value);
    atomicCAS(word, 0ull, w);
  }
  // `index` as a row of a table of `rows` rows; NONE where there is none, which is a fault unless it is meant.
  __device__ __forceinline__ uint32_t row_of(uint32_t at, uint32_t index, uint32_t rows) const {
    if (index < rows) return index;
    if (index != NONE) fault(at, float(index));
    return NONE;
  }
};

// How ticks between two events become seconds: exact in 64 bits, saturated, then one product. (`runtime::Gaps`.)
struct Gaps {
  int64_t longest;
  float seconds_per_tick;
  uint32_t unused;
  __device__ __forceinline__ float seconds(int64_t from, int64_t to) const {
    // Times may be as far apart as 64 bits are: then the difference saturates, as the host's does.
    int64_t ticks = int64_t(uint64_t(to) - uint64_t(from));
    if ((to < from) != (ticks < 0)) ticks = to < from ? INT64_MIN : INT64_MAX;
    return float(ticks < longest ? ticks : longest) * seconds_per_tick;
  }
};

// A parameter, and what its update changes. Its blocks end before block `end`. (`abi::Parameter`.)
struct Parameter {
  float* w;
  const float* g;
  float *m, *v;
  uint32_t n, end;
};
struct Parameters {
  Parameter of[64];
};

// Lists of ids, and for each id where it is among the unique ones. The first list has `stride` an event.
struct IdList {
  const uint32_t* ids;
  uint32_t* psi;
  Rows rows;
  uint64_t cols;
  __device__ __forceinline__ uint32_t live() const { return rows.live() * uint32_t(cols); }
};
struct IdLists {
  IdList of[8];
  uint32_t lists, stride;
};

// ---- a warp ----
__device__ __forceinline__ unsigned lane_id() { return threadIdx.x % WARP; }
// Sum over the lanes, the same in every lane; always in the same order.
__device__ __forceinline__ float warp_sum(float v) {
  for (unsigned o = WARP / 2; o; o /= 2) v += __shfl_xor_sync(ALL, v, int(o));
  return v;
}
__device__ __forceinline__ float warp_max(float v) {
  for (unsigned o = WARP / 2; o; o /= 2) v = fmaxf(v, __shfl_xor_sync(ALL, v, int(o)));
  return v;
}

// How many of `lanes` are below this one.
__device__ __forceinline__ uint32_t lanes_below(unsigned lanes) { return uint32_t(__popc(lanes & ((1u << lane_id()) - 1))); }

// ---- work by rows ----
// For the kernels that give a warp to a row: the first row of this warp, and how far its next one is.
__device__ __forceinline__ uint32_t warp_row() { return (blockIdx.x * blockDim.x + threadIdx.x) / WARP; }
__device__ __forceinline__ uint32_t warp_rows() { return gridDim.x * blockDim.x / WARP; }
// For those that give a thread to an element.
__device__ __forceinline__ uint64_t thread_item() { return uint64_t(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ __forceinline__ uint64_t thread_items() { return uint64_t(gridDim.x) * blockDim.x; }

// Sum over the threads before this one of a block of whole warps; `all` is that over the block. Every thread comes here.
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

// Whether rows of `width` 4-byte words that start at `p` can be moved 16 bytes at a time.
__device__ __forceinline__ bool by_four(const void* p, uint32_t width) {
  return width % 4 == 0 && reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

__device__ __forceinline__ void add_to(float& a, float b) { a += b; }
__device__ __forceinline__ void add_to(float4& a, float4 b) { a.x += b.x, a.y += b.y, a.z += b.z, a.w += b.w; }
__device__ __forceinline__ void scale(float& a, float by) { a *= by; }
__device__ __forceinline__ void scale(float4& a, float by) { a.x *= by, a.y *= by, a.z *= by, a.w *= by; }
// Adds `term(lane)` for every set bit of `lanes`, which is the same in the whole warp, in order; several are on their
// way at a time.
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

// relu: a NaN stays one, so that it reaches the loss and is seen there.
__device__ __forceinline__ float relu(float z) { return z < 0.f ? 0.f : z; }

__device__ __forceinline__ float sigmoid(float x) { return 1.f / (1.f + expf(-x)); }

// ln(1 + e^x) without overflow.
__device__ __forceinline__ float softplus(float x) { return fmaxf(x, 0.f) + log1pf(expf(-fabsf(x))); }

// ---- time encoding ----
// What Phi(dt) is the cosine of: a product and a sum, each rounded, as on the host.
__device__ __forceinline__ float time_angle(float dt, float w, float b) { return __fadd_rn(__fmul_rn(w, dt), b); }

// V floats side by side, in one go.
template <int V> __device__ __forceinline__ void load(const float* p, float (&v)[V]) {
  if constexpr (V == 4) {
    float4 x = *reinterpret_cast<const float4*>(p);
    v[0] = x.x, v[1] = x.y, v[2] = x.z, v[3] = x.w;
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
// Those at `at`; zeros where there are none.
template <int V> __device__ __forceinline__ void load_if(const float* p, uint64_t at, float (&v)[V]) {
  if (p) {
    load(p + at, v);
  } else {
    for (int i = 0; i < V; i++) v[i] = 0.f;
  }
}

// ---- sums over rows ----
// Blocks make the sums over some rows each, and leave them as parts; the block that is done last adds the parts, in order.

// Whether this block is the last of `blocks` that come here with this ticket: what the others had written before they
// came can be read then, past the L1 cache. A ticket is zero before the first comes and after the last (`Op::tickets`).
// Every thread of the block comes here.
__device__ __forceinline__ bool comes_last(uint32_t* ticket, uint32_t blocks) {
  bool last = false;
  __syncthreads();  // the whole block has written
  if (threadIdx.x == 0) {
    __threadfence();  // first the block's parts, then its ticket
    last = atomicInc(ticket, blocks - 1) == blocks - 1;
    __threadfence();  // first the last ticket, then the parts of all
  }
  return __syncthreads_or(last);
}
// Element `i` of the sum of `parts` parts of `size` elements each; for the block that comes last.
__device__ __forceinline__ float sum_of_parts(const float* made, uint32_t parts, uint64_t size, uint64_t i) {
  float sum = 0.f;
#pragma unroll 16  // that many loads are under way together
  for (uint32_t p = 0; p < parts; p++) sum += __ldcg(made + p * size + i);
  return sum;
}
// Adds what every block left, rows of `sums` [blocks, 2 width], into two outputs of `width`; either may be null. For the
// block that comes last.
__device__ __forceinline__ void add_block_sums(const float* sums, uint32_t blocks, float* first, float* second,
                                               uint32_t width) {
  for (uint32_t c = threadIdx.x; c < 2 * width; c += blockDim.x) {
    float* out = c < width ? first : second;
    if (out) out[c < width ? c : c - width] = sum_of_parts(sums, blocks, 2 * width, c);
  }
}

// For a block that gives a column to each lane and a share of the rows to each warp: the warps' sums added in their
// order, for the lanes of the first warp. Every thread of the block comes here; `sums` is the block's, a row a warp.
__device__ __forceinline__ float sum_of_warps(float v, float (*sums)[WARP]) {
  __syncthreads();  // the last use of `sums` is over
  sums[threadIdx.x / WARP][lane_id()] = v;
  __syncthreads();
  float sum = 0;
  if (threadIdx.x < WARP) {
    for (unsigned w = 0; w < blockDim.x / WARP; w++) sum += sums[w][lane_id()];
  }
  return sum;
}
// Sum of column `c` of `x`, `[n, width]`, for the lanes of the first warp; as above.
__device__ __forceinline__ float column_sum(const float* x, uint32_t n, uint32_t width, uint32_t c,
                                            float (*sums)[WARP]) {
  float sum = 0;
  if (c < width) {
    for (uint32_t i = threadIdx.x / WARP; i < n; i += blockDim.x / WARP) sum += x[uint64_t(i) * width + c];
  }
  return sum_of_warps(sum, sums);
}

// ---- random numbers ----
// Philox4x32-10 (Salmon et al., SC 2011); the same numbers as `runtime::philox::Key` on the host.
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

// Which elements are dropped, and what the others are multiplied with. (`ops::epilogue::DropRate`.)
struct Drop {
  const uint32_t* now;  // epoch and batch; null where nothing is dropped
  Key key;
  uint32_t threshold;   // 16-bit numbers below it are dropped
  float scale;
  // The numbers of elements `8 group` to `8 group + 7`.
  __device__ __forceinline__ uint4 draw(uint64_t group) const { return key.draw(group, now[0], now[1]); }
  __device__ __forceinline__ float factor(uint64_t element) const {
    if (!now) return 1.f;
    uint32_t i = uint32_t(element % 8);
    uint4 of = draw(element / 8);
    uint32_t low = i & 2 ? of.y : of.x, high = i & 2 ? of.w : of.z;
    return factor_of(((i & 4 ? high : low) >> (16 * (i & 1)) & 0xffffu) >= threshold);
  }
  // Of a bit of `kept`.
  __device__ __forceinline__ float factor_of(bool kept) const { return kept ? scale : 0.f; }
  // Which of the elements `first` to `first + 3` are kept, a bit each, the first one lowest. Their numbers are of one draw,
  // or of two where they lie in two.
  __device__ __forceinline__ uint32_t kept(uint64_t first) const {
    if (!now) return 15;  // all
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

// What follows a product or a sum: y = drop(act(z)). (`ops::epilogue::Epilogue`.)
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
  // y of z, where bit `i` of `kept` is the element's.
  __device__ __forceinline__ float of(float z, uint32_t kept, uint32_t i) const {
    return activate(z) * drop.factor_of(kept >> i & 1);
  }
  // y of the element, or of the four from it on, each with its own z.
  __device__ __forceinline__ float at(uint64_t element, float z) const { return activate(z) * drop.factor(element); }
  __device__ __forceinline__ float4 at(uint64_t first, float4 z) const {
    uint32_t kept = drop.kept(first);
    return make_float4(of(z.x, kept, 0), of(z.y, kept, 1), of(z.z, kept, 2), of(z.w, kept, 3));
  }
  // dz of y and dy, where bit `i` of `kept` is the element's.
  __device__ __forceinline__ float grad(float y, float dy, uint32_t kept, uint32_t i) const {
    if (activation == 1) return y > 0.f ? dy * drop.scale : 0.f;  // y is 0 where it was dropped: no bit is wanted
    float v = y / drop.scale, derivative = 1.f;
    if (activation == 2) derivative = v > 0.f ? 1.f : slope;
    if (activation == 3) derivative = 1.f - v * v;
    if (activation == 4) derivative = v * (1.f - v);
    return dy * drop.factor_of(kept >> i & 1) * derivative;
  }
};

// ---- operands of temporal attention, for its kernels and its gradient's ----
struct Attention {
  const float *query, *h, *dt, *edge, *w, *b;
  const uint32_t *starts, *order, *row, *event, *count;
  Rows roots, queries;  // of `order`, of `query`
  uint32_t heads, k, d, f, t;
  float scale;
  Drop drop;
};

// ---- operands of a memory update, for its cells' kernels ----
struct MemoryUpdate {
  const uint32_t *unique, *mail_event;
  const float *memory, *mail, *edge, *w, *b, *w_x, *w_h, *b_x, *b_h;
  const uint32_t *mailed, *node, *feature;  // of every mail: its row, its row of memory and mail, its row of the features
  const float* dt;
  float *out, *messages, *gates;            // the last two may be null
  Rows rows, mails;
  uint32_t d, f, t, gathered, precision, nodes;  // whether memory and mail have a row a unique node, not a node
  __device__ __forceinline__ uint32_t width() const { return 2 * d + f + t; }
};

// ---- operands of spmm, for its kernels of f32 and of 16 bits ----
struct Spmm {
  const uint32_t *steps, *begin, *len, *col, *first, *slices;
  const float *weight, *scale, *bias;  // the first and the last may be null
  float *y, *parts;                    // a row for each slice of a step
  uint32_t* tickets;                   // one for each long row of a step
  uint32_t place, most_steps, x_rows, vertices, d, short_rows, most_slices, most_rows, pool, cut;  // `pool` neighbours, `cut` slices
  Epilogue then;
};

// temporal_attention: mix_h = sum_j drop(a_hj) z_j, a_h = softmax_j(q_h . z_j / sqrt(p)), z_j = {h_j | e_j | Phi(dt_j)}
//
// shapes    query [q, H c], h [m, d], edge [e, f], row, event, dt [n, k], mix [m, H c], sum [m, H], weight [m, H k]
// grid      one block per root; a thread has some columns of all k raw rows, and contributes to every score
// kernels   `small` ones for at most ten neighbours, 512 columns of {h | e}, 128 of the time encoding, two heads and
//           aligned rows: without loops over chunks, tiles and heads, and with cosines in registers; `grad_fixed` and
//           `grad_small` for fixed time encodings: without sines, and without sums that no thread of a warp stores
// memory    reads each raw row once and keeps it (beyond ten neighbours or 512 columns it reads the rows again, from
//           the L1 cache), a query and ids; writes H (c + k + 1) words per root; 16 bytes at a time if rows
//           are aligned
// work      of a root, 4 H k c operations and k t cosines of 22; each warp also sums 20 scores over its lanes, by 25
//           shuffles
// limiter   instructions, of which a fifth are multiply-adds, and latency: ids, then rows, then a barrier; hidden by
//           several blocks per SM
// backward  one more such pass, 8 H k c operations: dz and dquery of each root, {dw | db} of each block; then, in one
//           launch, sums in a fixed order: of dz by row of h (group_slots lists the slots of each row), of
//           {dw | db}, of dquery by query
// source    TGAT (Xu et al. 2020), absorbed as in docs/attention.md
#include "grouped_sums.cuh"
#include "time_encoding.cuh"

constexpr uint32_t THREADS = 128, WARPS = THREADS / WARP;
constexpr uint32_t CHUNK = 10;        // neighbours at a time; TGN samples ten
constexpr uint32_t HALF = WARP / 2;   // two heads at a time: lane `HALF head + j` holds the scores of neighbour j

// A thread's columns of a raw row, or of a row to multiply it with: V columns of {h | e} and one of the time encoding.
template <int V> struct Share { float known[V], time; };

// The indices of a thread's columns; a wide row takes several tiles.
template <int V> struct Columns {
  uint32_t known, time;
  __device__ __forceinline__ Columns(uint32_t tile, uint32_t thread)
      : known((tile * THREADS + thread) * V), time(tile * THREADS + thread) {}
  // The first of the warp's known columns.
  __device__ __forceinline__ uint32_t of_warp() const { return known - lane_id() * V; }
  static __device__ __forceinline__ uint32_t tiles(const Attention& a) {
    return max(1u, max((a.d + a.f + THREADS * V - 1) / (THREADS * V), (a.t + THREADS - 1) / THREADS));
  }
};

// The thread's columns of the rows of two heads; with an odd number of heads the last second one is zeros.
template <int V>
__device__ __forceinline__ void load_heads(const Attention& a, const float* rows, uint32_t head, Columns<V> at,
                                           Share<V> (&s)[2]) {
  uint32_t known = a.d + a.f, c = known + a.t;
#pragma unroll
  for (uint32_t h = 0; h < 2; h++) {
    s[h] = {};
    if (head + h < a.heads) {
      const float* row = rows + uint64_t(head + h) * c;
      if (at.known < known) load(row + at.known, s[h].known);
      if (at.time < a.t) s[h].time = row[known + at.time];
    }
  }
}
template <int V>
__device__ __forceinline__ void store_heads(const Attention& a, float* rows, uint32_t head, Columns<V> at,
                                            const Share<V> (&s)[2]) {
  uint32_t known = a.d + a.f, c = known + a.t;
#pragma unroll
  for (uint32_t h = 0; h < 2; h++) {
    if (head + h < a.heads) {
      float* row = rows + uint64_t(head + h) * c;
      if (at.known < known) store(row + at.known, s[h].known);
      if (at.time < a.t) row[known + at.time] = s[h].time;
    }
  }
}

// Operands are small if they need no loops: one chunk of neighbours, one tile of columns, aligned rows, two heads. The
// kernels named `small` are compiled for them alone.

// The thread's part of a row. The warps of a block have unequal work, and each has a scheduler of its own, by its
// number. The blocks that a multiprocessor of an H200 runs at the same time therefore give the parts to other warps.
template <bool SMALL> __device__ __forceinline__ uint32_t part_of_row() {
  return SMALL ? (threadIdx.x + blockIdx.x / 132 * WARP) % THREADS : threadIdx.x;
}

// Raw rows of a chunk: {h | e} in registers, the time encoding in the thread's own column of shared memory (so
// that there is a single copy of the code of a cosine, which is long). Of small operands it is in registers, too.
template <int V> using Known = float[CHUNK][V];
using Times = float[CHUNK][THREADS];
// Reads the thread's cosines.
template <bool SMALL> struct Cosine {
  const float (&own)[CHUNK];
  const Times& shared;
  bool time;  // whether the thread has a column of the time encoding
  __device__ __forceinline__ float operator()(uint32_t j) const {
    return SMALL ? own[j] : time ? shared[j][threadIdx.x] : 0.f;
  }
};

// A root, its query and its number of used slots.
struct Root { uint32_t i, query, n; };

// The number of roots, queries, rows of h and rows of features; an index out of range is a fault.
struct Bounds {
  uint32_t roots, queries, rows, events;
  Status s;
  // The root at index `at` of the order. Without a query, or if it is NONE, it has no used slots.
  __device__ __forceinline__ Root root(const Attention& a, uint32_t at) const {
    uint32_t of_order = a.order[at], query = a.own[at];
    uint32_t i = s.row_of(at, of_order, roots);
    bool is = query < queries;
    if (!is) s.fault(at, query);
    uint32_t n = i == NONE || !is ? 0 : a.count[i];
    if (n > a.k) s.above(i, n), n = a.k;
    return {i, is ? query : 0, n};
  }
};

// The time gap of neighbour `lane` of `n`, from slot `slot` on.
__device__ __forceinline__ float gap_of_lane(const Attention& a, uint32_t slot, uint32_t n) {
  return lane_id() < min(n, CHUNK) ? a.dt[slot + lane_id()] : 0.f;
}
// Loads {h | e} of `n` slots of root `i` from slot `slot` on; zeros beyond them.
template <int V>
__device__ __forceinline__ void load_known(const Attention& a, const Bounds& bounds, uint32_t i, uint32_t slot, uint32_t n,
                                           Columns<V> at, Known<V>& z) {
  bool memory = at.known < a.d, known = at.known < a.d + a.f;
  const uint32_t* ids = (memory ? a.row : a.event) + slot;
  const float* table = memory ? a.h + at.known : a.edge + (at.known - a.d);
  uint32_t width = memory ? a.d : a.f, rows = memory ? bounds.rows : bounds.events, id[CHUNK], wrong = NONE;
#pragma unroll
  for (uint32_t j = 0; j < CHUNK; j++) id[j] = known && j < n ? ids[j] : NONE;
#pragma unroll
  for (uint32_t j = 0; j < CHUNK; j++) {
#pragma unroll
    for (int l = 0; l < V; l++) z[j][l] = 0;
    if (id[j] < rows) load(table + uint64_t(id[j]) * width, z[j]);
    else if (id[j] != NONE) wrong = id[j];
  }
  if (wrong != NONE) bounds.s.fault(i, wrong);
}
// Loads `n` slots of root `i` from slot `first` on, with the sines if time encodings are learned; zeros beyond them.
template <bool SINES, int V>
__device__ __forceinline__ void load_raw(const Attention& a, const Bounds& bounds, uint32_t i, uint32_t first, uint32_t n,
                                         Columns<V> at, Known<V>& z, Times& cosines, Times* sines) {
  uint32_t slot = i * a.k + first;
  float gap = gap_of_lane(a, slot, n);
  load_known(a, bounds, i, slot, n, at, z);
  if (at.time - lane_id() >= a.t) return;  // the whole warp
  bool time = at.time < a.t;
  float w = time ? a.w[at.time] : 0.f, b = time ? a.b[at.time] : 0.f;
#pragma unroll 2
  for (uint32_t j = 0; j < CHUNK; j++) {
    float sine = 0, cosine = 0, dt = __shfl_sync(ALL, gap, int(j));
    if (time && j < n) {
      Turned angle(time_angle(dt, w, b));
      cosine = angle.cosine();
      if constexpr (SINES) sine = angle.sine();
    }
    cosines[j][threadIdx.x] = cosine;  // of idle threads, too
    if constexpr (SINES) (*sines)[j][threadIdx.x] = sine;
  }
}
// Loads the slots of root `i` of small operands, {h | e} if the warp has such columns (`known`). Cosines beyond the `n`
// slots and of idle threads are any numbers. Only angles that are not `near` take the detour through shared memory.
template <int V>
__device__ __forceinline__ void load_small(const Attention& a, const Bounds& bounds, uint32_t i, uint32_t n, Columns<V> at,
                                           bool known, Known<V>& z, float (&own)[CHUNK], Times& cosines) {
  float gap = gap_of_lane(a, i * a.k, n);
  if (known) load_known(a, bounds, i, i * a.k, n, at, z);
#pragma unroll
  for (uint32_t j = 0; j < CHUNK; j++) own[j] = 0;
  if (at.time - lane_id() >= a.t) return;  // the whole warp
  bool time = at.time < a.t, near = true;
  float w = time ? a.w[at.time] : 0.f, b = time ? a.b[at.time] : 0.f;
#pragma unroll
  for (uint32_t j = 0; j < CHUNK; j++) {
    own[j] = time_angle(__shfl_sync(ALL, gap, int(j)), w, b);
    near = near && Turned::near(own[j]);
  }
  if (near) {
#pragma unroll
    for (uint32_t j = 0; j < CHUNK; j++) own[j] = Turned(Turned::Near{own[j]}).cosine();
  } else {
#pragma unroll
    for (uint32_t j = 0; j < CHUNK; j++) cosines[j][threadIdx.x] = own[j];
#pragma unroll 1
    for (uint32_t j = 0; j < CHUNK; j++) cosines[j][threadIdx.x] = Turned(cosines[j][threadIdx.x]).cosine();
#pragma unroll
    for (uint32_t j = 0; j < CHUNK; j++) own[j] = cosines[j][threadIdx.x];
  }
}

template <int V>
__device__ __forceinline__ void add_times(Share<V>& sum, float x, const float (&known)[V], float time) {
#pragma unroll
  for (int l = 0; l < V; l++) sum.known[l] += x * known[l];
  sum.time += x * time;
}
// Adds the raw rows of a chunk to the sums of two heads, with the weights `{weight_0, weight_1}` of neighbour j. If the
// warp has no `known` columns, those of the time encoding alone.
template <int V, class Cosines, class Weights>
__device__ __forceinline__ void add_rows(Share<V> (&sum)[2], const Known<V>& z, bool known, Cosines cosine, Weights weights) {
  if (known) {
#pragma unroll
    for (uint32_t j = 0; j < CHUNK; j++) {
      float2 x = weights(j);
      float time = cosine(j);
      add_times(sum[0], x.x, z[j], time), add_times(sum[1], x.y, z[j], time);
    }
  } else {
#pragma unroll
    for (uint32_t j = 0; j < CHUNK; j++) {
      float2 x = weights(j);
      float time = cosine(j);
      sum[0].time += x.x * time, sum[1].time += x.y * time;
    }
  }
}

// Transposed sum over a warp: lane l receives the sum over all lanes of `v[l]`, in `v[0]`. Each step exchanges `O`
// numbers: a lane hands over the half that other lanes will sum, then half of the rest. Beyond the chunk `v` is
// zero in both heads.
template <uint32_t O> __device__ __forceinline__ void fold(float (&v)[WARP]) {
  bool upper = lane_id() & O;
#pragma unroll
  for (uint32_t i = 0; i < O; i++) {
    if (O == HALF && i >= CHUNK) continue;
    float give = upper ? v[i] : v[i + O], keep = upper ? v[i + O] : v[i];
    v[i] = keep + __shfl_xor_sync(ALL, give, int(O));
  }
  if constexpr (O > 1) fold<O / 2>(v);
}
using Sums = float[WARPS + 1][WARP];
// `rows_h . z_j` over this tile of columns, in lane `HALF h + j` of every warp. Also broadcasts each lane's `factor`
// from the last warp, which has the fewest columns. Consecutive calls must alternate `sums`, so that one barrier per
// call suffices. If the warp has no `known` columns, their products are left out: they are zeros.
template <int V, class Cosines>
__device__ __forceinline__ float dots(uint32_t warp, const Share<V> (&rows)[2], const Known<V>& z, bool known,
                                      Cosines cosine, Sums& sums, float& factor) {
  float v[WARP];
#pragma unroll
  for (uint32_t x = 0; x < WARP; x++) v[x] = 0;
  if (known) {
#pragma unroll
    for (uint32_t j = 0; j < CHUNK; j++) {
      float time = cosine(j);
#pragma unroll
      for (uint32_t h = 0; h < 2; h++) {
        float dot = __fmul_rn(rows[h].known[0], z[j][0]);  // so that all kernels fuse the same products with sums
        dot += rows[h].time * time;
#pragma unroll
        for (int l = 1; l < V; l++) dot += rows[h].known[l] * z[j][l];
        v[HALF * h + j] = dot;
      }
    }
  } else {
#pragma unroll
    for (uint32_t j = 0; j < CHUNK; j++) {
      float time = cosine(j);
      v[j] = rows[0].time * time, v[HALF + j] = rows[1].time * time;
    }
  }
  fold<WARP / 2>(v);
  sums[warp][lane_id()] = v[0];
  if (warp == WARPS - 1) sums[WARPS][lane_id()] = factor;
  __syncthreads();
  factor = sums[WARPS][lane_id()];
  float sum = 0;
#pragma unroll
  for (uint32_t w = 0; w < WARPS; w++) sum += sums[w][lane_id()];
  return sum;
}
// Sum and maximum over the lanes of a head.
__device__ __forceinline__ float half_sum(float v) {
  for (uint32_t o = HALF / 2; o; o /= 2) v += __shfl_xor_sync(ALL, v, int(o));
  return v;
}
__device__ __forceinline__ float half_max(float v) {
  for (uint32_t o = HALF / 2; o; o /= 2) v = fmaxf(v, __shfl_xor_sync(ALL, v, int(o)));
  return v;
}

// The role of a lane in a pass over a root's neighbours, two heads at a time.
struct Lane {
  uint32_t head, j;   // head, and neighbour within the chunk
  uint32_t row;       // row of [roots, heads]
  bool real;          // whether the head exists
  __device__ __forceinline__ Lane(const Attention& a, uint32_t at, uint32_t head)
      : head(head + lane_id() / HALF), j(lane_id() % HALF), row(at * a.heads + this->head),
        real(this->head < a.heads && j < CHUNK) {}
  // Whether the head exists and the neighbour is one of `n`.
  __device__ __forceinline__ bool used(uint32_t first, uint32_t n) const { return real && first + j < n; }
  // Index in [roots, heads, k].
  __device__ __forceinline__ uint64_t place(const Attention& a, uint32_t first) const {
    return uint64_t(row) * a.k + first + j;
  }
  __device__ __forceinline__ float kept(const Attention& a, uint32_t i, uint32_t first) const {
    return a.drop.factor((uint64_t(i) * a.heads + head) * a.k + first + j);
  }
};

// `SMALL`: for small operands. The loops over chunks, tiles and heads then have a single round.
template <int V, bool SMALL>
__device__ __forceinline__ void attend(const Attention& a, const Bounds& bounds, float* mix, float* sum, float* weight,
                                       Sums (&sums)[2], float2 (&counts)[WARPS][HALF], Times& cosines) {
  uint32_t m = a.roots.live(), tiles = SMALL ? 1 : Columns<V>::tiles(a), turn = 0;
  uint32_t rows = a.heads * (a.d + a.f + a.t);
  uint32_t thread = part_of_row<SMALL>(), warp = thread / WARP;
  for (uint32_t at = blockIdx.x; at < m; at += gridDim.x) {
    auto [i, q, n] = bounds.root(a, at);
    const float* query = a.query + uint64_t(q) * rows;
    uint32_t end = SMALL ? 1 : n;  // of the loops over chunks
    bool one = SMALL || n <= CHUNK, once = one && tiles == 1;
    Known<V> z;
    float own[CHUNK] = {};
    Share<V> row[2];
    for (uint32_t head = 0; head < a.heads; head += 2) {
      Lane lane(a, at, head);
      float score = 0, factor = 0, top = -INFINITY, total = 0, kept_sum = 0;
      for (uint32_t first = 0; first < end; first += CHUNK) {
        score = 0;
        if (warp == WARPS - 1 && lane.used(first, n)) factor = lane.kept(a, i, first);
        for (uint32_t tile = 0; tile < tiles; tile++) {
          Columns<V> columns(tile, thread);
          bool known = !SMALL || columns.of_warp() < a.d + a.f;  // whether the warp has any
          if (SMALL) load_small(a, bounds, i, n, columns, known, z, own, cosines);
          else if (!once || head == 0) load_raw<false>(a, bounds, i, first, n - first, columns, z, cosines, nullptr);
          load_heads(a, query, head, columns, row);
          Cosine<SMALL> cosine{own, cosines, columns.time < a.t};
          score += dots(warp, row, z, known, cosine, sums[turn++ % 2], factor) * a.scale;
        }
        if (lane.used(first, n)) {
          top = fmaxf(top, score);
          if (!one && warp == 0) weight[lane.place(a, first)] = score;
        }
      }
      if (!one) __syncthreads();  // the scores have been written
      top = half_max(top);
      auto raised = [&](uint32_t first) { return expf((one ? score : weight[lane.place(a, first)]) - top); };
      for (uint32_t first = 0; first < end; first += CHUNK) total += lane.used(first, n) ? raised(first) : 0.f;
      total = half_sum(total);
      for (uint32_t tile = 0; tile < tiles; tile++) {
        Columns<V> columns(tile, thread);
        Share<V> mixed[2] = {};
        for (uint32_t first = 0; first < end; first += CHUNK) {
          float share = 0;
          if (lane.used(first, n)) share = raised(first) / total * (one ? factor : lane.kept(a, i, first));
          if (tile == 0) kept_sum += share;
          __syncwarp();
          if (lane.j < CHUNK) reinterpret_cast<float*>(&counts[warp][lane.j])[lane.head - head] = share;
          __syncwarp();
          if (!once) load_raw<false>(a, bounds, i, first, n - first, columns, z, cosines, nullptr);
          bool known = !SMALL || columns.of_warp() < a.d + a.f;  // whether the warp has any
          Cosine<SMALL> cosine{own, cosines, columns.time < a.t};
          add_rows(mixed, z, known, cosine, [&](uint32_t j) { return counts[warp][j]; });
        }
        if (mix) store_heads(a, mix + uint64_t(at) * rows, head, columns, mixed);
      }
      kept_sum = half_sum(kept_sum);
      if (!one) __syncthreads();  // the scores have been read
      if (warp == 0 && lane.real) {
        if (sum && lane.j == 0) sum[lane.row] = kept_sum;
        for (uint32_t first = 0; first + lane.j < a.k; first += CHUNK) {
          weight[lane.place(a, first)] = lane.used(first, n) ? raised(first) / total : 0.f;
          if (SMALL) break;
        }
      }
    }
  }
}

// Whether the rows of all tables can be moved 16 bytes at a time.
__device__ __forceinline__ bool by_four(const Attention& a) {
  return by_four(a.h, a.d) && by_four(a.edge, a.f) && by_four(a.query, a.d + a.f + a.t);
}

extern "C" __global__ void __launch_bounds__(128, 5)
temporal_attention(Attention a, float* mix, float* sum, float* weight, Rows all, Rows rows, Rows events, Status s) {
  after_previous_kernel();
  Bounds bounds{all.live(), a.queries.live(), rows.live(), events.live(), s};
  __shared__ Sums sums[2];
  __shared__ float2 counts[WARPS][HALF];  // by neighbour: the weight of its raw row in both heads
  __shared__ Times cosines;
  if (by_four(a) && by_four(mix, 4)) attend<4, false>(a, bounds, mix, sum, weight, sums, counts, cosines);
  else attend<1, false>(a, bounds, mix, sum, weight, sums, counts, cosines);
}

extern "C" __global__ void __launch_bounds__(128, 5)
temporal_attention_small(Attention a, float* mix, float* sum, float* weight, Rows all, Rows rows, Rows events, Status s) {
  after_previous_kernel();
  Bounds bounds{all.live(), a.queries.live(), rows.live(), events.live(), s};
  __shared__ Sums sums[2];
  __shared__ float2 counts[WARPS][HALF];
  __shared__ Times cosines;
  a.heads = 2;  // known to the compiler
  attend<4, true>(a, bounds, mix, sum, weight, sums, counts, cosines);
}

// ---- gradient ----

// Gradients. `dz` receives one row of h's gradient per used slot; `dquery` the gradients of queries with one root,
// `by_root` those of the roots of other queries; `dwb` one row {dw | db} for each block that has roots. Unwanted
// outputs are null. `da` [roots, H k] is scratch for roots with more than one chunk.
struct Gradients {
  const float *weight, *dmix, *dsum;
  float *dquery, *by_root, *dz, *dwb, *da;
};

// `TIME`: whether `dwb` may be wanted. If not, no sine is computed, and warps without columns of h skip the loop over
// dz. `SMALL`: for small operands, of which `dwb` is not wanted.
template <int V, bool TIME, bool SMALL>
__device__ __forceinline__ void attend_back(const Attention& a, const Bounds& bounds, const Gradients& of, Sums (&sums)[2],
                                            float4 (&counts)[WARPS][HALF], Times& cosines, Times& sines) {
  static_assert(!(TIME && SMALL));
  const float *weight = of.weight, *dmix = of.dmix, *dsum = of.dsum;
  float *dquery = of.dquery, *by_root = of.by_root, *dz = of.dz, *dwb = of.dwb, *da = of.da;
  uint32_t m = a.roots.live(), tiles = SMALL ? 1 : Columns<V>::tiles(a), turn = 0;
  uint32_t rows = a.heads * (a.d + a.f + a.t);
  uint32_t thread = part_of_row<SMALL>(), warp = thread / WARP;
  for (uint32_t at = blockIdx.x; at < m; at += gridDim.x) {
    auto [i, q, n] = bounds.root(a, at);
    uint32_t end = SMALL ? 1 : n;  // of the loops over chunks
    bool one = SMALL || n <= CHUNK, once = one && tiles == 1;
    Known<V> z;
    float own[CHUNK] = {};
    Share<V> g[2], row[2];
    auto of_one = [&](uint32_t of) { return a.starts[of + 1] - a.starts[of] == 1; };  // a query
    // Of small operands everything is loaded before the barrier.
    bool small_alone = SMALL && of_one(q);
    for (uint32_t head = 0; head < a.heads; head += 2) {
      Lane lane(a, at, head);
      float mine = 0, mean = 0, factor = 0, small_weight = 0, small_dsum = 0;
      if (SMALL && lane.used(0, n)) small_weight = weight[lane.place(a, 0)], small_dsum = dsum[lane.row];
      auto weight_at = [&](uint32_t first) { return SMALL ? small_weight : weight[lane.place(a, first)]; };
      for (uint32_t first = 0; first < end; first += CHUNK) {
        mine = 0;
        if (warp == WARPS - 1 && lane.used(first, n)) factor = lane.kept(a, i, first);
        for (uint32_t tile = 0; tile < tiles; tile++) {
          Columns<V> columns(tile, thread);
          bool known = !SMALL || columns.of_warp() < a.d + a.f;  // whether the warp has any
          if (SMALL) load_small(a, bounds, i, n, columns, known, z, own, cosines);
          else if (!once || head == 0) load_raw<TIME>(a, bounds, i, first, n - first, columns, z, cosines, &sines);
          load_heads(a, dmix + uint64_t(at) * rows, head, columns, g);
          Cosine<SMALL> cosine{own, cosines, columns.time < a.t};
          mine += dots(warp, g, z, known, cosine, sums[turn++ % 2], factor);
        }
        if (lane.used(first, n)) {
          mine = (mine + (SMALL ? small_dsum : dsum[lane.row])) * factor;
          mean += weight_at(first) * mine;
          if (!one && warp == 0) da[lane.place(a, first)] = mine;
        }
      }
      if (!one) __syncthreads();  // `da` has been written
      mean = half_sum(mean);
      for (uint32_t tile = 0; tile < tiles; tile++) {
        Columns<V> columns(tile, thread);
        Share<V> sum[2] = {};
        float dw = 0, db = 0;
        load_heads(a, a.query + uint64_t(q) * rows, head, columns, row);
        if (tiles > 1) load_heads(a, dmix + uint64_t(at) * rows, head, columns, g);
        for (uint32_t first = 0; first < end; first += CHUNK) {
          float share = 0, ds = 0;
          if (lane.used(first, n)) {
            float before = weight_at(first);
            share = before * (one ? factor : lane.kept(a, i, first));
            ds = before * ((one ? mine : da[lane.place(a, first)]) - mean) * a.scale;
          }
          __syncwarp();
          if (lane.j < CHUNK) {
            float* count = reinterpret_cast<float*>(&counts[warp][lane.j]) + (lane.head - head);
            count[0] = share, count[2] = ds;
          }
          __syncwarp();
          if (!once) load_raw<TIME>(a, bounds, i, first, n - first, columns, z, cosines, &sines);
          bool known = !SMALL || columns.of_warp() < a.d + a.f;  // whether the warp has any
          Cosine<SMALL> cosine{own, cosines, columns.time < a.t};
          add_rows(sum, z, known, cosine,
                   [&](uint32_t j) { return *reinterpret_cast<const float2*>(&counts[warp][j].z); });
          // A separate loop: neither needs the other's registers.
          float gap = TIME && first + lane_id() < n ? a.dt[i * a.k + first + lane_id()] : 0.f;  // of neighbour `lane`
          uint64_t at_z = (uint64_t(at) * a.k + first) * a.d + columns.known;
          bool read = TIME || (dz && columns.of_warp() < a.d);  // whether the warp stores anything
#pragma unroll (SMALL ? 2 : 1)
          for (uint32_t j = 0; read && j < CHUNK && first + j < n; j++, at_z += a.d) {
            float4 count = counts[warp][j];
            float dt = TIME ? __shfl_sync(ALL, gap, int(j)) : 0.f;
            Share<V> back = {};
            add_times(back, count.x, g[0].known, g[0].time), add_times(back, count.y, g[1].known, g[1].time);
            add_times(back, count.z, row[0].known, row[0].time), add_times(back, count.w, row[1].known, row[1].time);
            if (dz && columns.known < a.d) {
              float* to = dz + at_z;
              if (head) {
                float others[V];
                load(to, others);
#pragma unroll
                for (int l = 0; l < V; l++) back.known[l] += others[l];
              }
              store(to, back.known);
            }
            if (TIME && dwb && columns.time < a.t) {
              float s = -sines[j][threadIdx.x] * back.time;
              dw += s * dt, db += s;
            }
          }
        }
        bool alone = SMALL ? small_alone : of_one(q);
        if (dquery) store_heads(a, alone ? dquery + uint64_t(q) * rows : by_root + uint64_t(at) * rows, head, columns, sum);
        if (TIME && dwb && columns.time < a.t) {
          float* to = dwb + uint64_t(blockIdx.x) * 2 * a.t + columns.time;
          if (at != blockIdx.x || head) dw += to[0], db += to[a.t];
          to[0] = dw, to[a.t] = db;
        }
      }
    }
  }
}

template <bool TIME>
__device__ __forceinline__ void attention_grad(const Attention& a, const Bounds& bounds, const Gradients& of) {
  bool aligned = by_four(a) && by_four(of.dmix, 4) && by_four(of.dquery, 4) && by_four(of.by_root, 4) && by_four(of.dz, 4);
  __shared__ Sums sums[2];
  __shared__ float4 counts[WARPS][HALF];  // by neighbour: {weights after dropout | gradients of scores}, both heads
  __shared__ Times cosines, sines;
  if (aligned) attend_back<4, TIME, false>(a, bounds, of, sums, counts, cosines, sines);
  else attend_back<1, TIME, false>(a, bounds, of, sums, counts, cosines, sines);
}

extern "C" __global__ void __launch_bounds__(128, 4)
temporal_attention_grad(Attention a, const float* weight, const float* dmix, const float* dsum, float* dquery,
                        float* by_root, float* dz, float* dwb, float* da, Rows all, Rows rows, Rows events, Status s) {
  after_previous_kernel();
  Bounds bounds{all.live(), a.queries.live(), rows.live(), events.live(), s};
  attention_grad<true>(a, bounds, {weight, dmix, dsum, dquery, by_root, dz, dwb, da});
}

// The same if time encodings are fixed.
extern "C" __global__ void __launch_bounds__(128, 4)
temporal_attention_grad_fixed(Attention a, const float* weight, const float* dmix, const float* dsum, float* dquery,
                              float* by_root, float* dz, float* da, Rows all, Rows rows, Rows events, Status s) {
  after_previous_kernel();
  Bounds bounds{all.live(), a.queries.live(), rows.live(), events.live(), s};
  attention_grad<false>(a, bounds, {weight, dmix, dsum, dquery, by_root, dz, nullptr, da});
}
extern "C" __global__ void __launch_bounds__(128, 4)
temporal_attention_grad_small(Attention a, const float* weight, const float* dmix, const float* dsum, float* dquery,
                              float* by_root, float* dz, Rows all, Rows rows, Rows events, Status s) {
  after_previous_kernel();
  Bounds bounds{all.live(), a.queries.live(), rows.live(), events.live(), s};
  __shared__ Sums sums[2];
  __shared__ float4 counts[WARPS][HALF];
  __shared__ Times cosines;
  Gradients of{weight, dmix, dsum, dquery, by_root, dz, nullptr, nullptr};
  a.heads = 2;  // known to the compiler
  attend_back<4, false, true>(a, bounds, of, sums, counts, cosines, cosines);
}

constexpr uint32_t SUM_WARPS = 12;

// A block sums some columns of every `stride`-th group: the neighbours of a batch's first roots are often the same few
// rows, and those should be in different blocks.
template <int V>
__device__ __forceinline__ void sum_rows(const RowGroups& of, float* out, uint32_t groups, bool single, uint32_t block,
                                         uint32_t blocks, float4 (&sums)[SUM_WARPS][WARP]) {
  uint32_t d = of.d, tiles = (d + WARP * V - 1) / (WARP * V), stride = max(1u, blocks / max(1u, tiles));
  for (uint32_t task = block; task < tiles * stride; task += blocks) {
    uint32_t c = (task % tiles * WARP + lane_id()) * V;
    sum_groups<V>(of, task / tiles, stride, groups, c, single, sums, [&](uint32_t g, const float (&sum)[V]) {
      if (c < d) store(out + uint64_t(g) * d + c, sum);
    });
  }
}

// Three tasks, each on its own range of blocks: `row_blocks` blocks sum the rows of `dz` by row of h; `time_blocks`
// blocks sum the `parts` rows {dw | db} of the previous kernel's blocks; the others sum the gradients of queries with
// several roots, or none, from those of their roots.
extern "C" __global__ void __launch_bounds__(384, 2)
temporal_attention_grad_sums(Attention a, const float* dz, const uint32_t* starts, const uint32_t* slots, float* dh,
                             Rows rows, Rows listed, uint32_t row_blocks, const float* dwb, float* dw, float* db,
                             uint32_t time_blocks, uint32_t parts, const float* by_root, float* dquery, Status s) {
  after_previous_kernel();
  __shared__ float4 sums[SUM_WARPS][WARP];
  uint32_t roots = a.roots.live();
  if (blockIdx.x < row_blocks) {
    RowGroups of{dz, starts, slots, listed.live(), roots * a.k, a.d, s};
    if (by_four(dz, a.d) && by_four(dh, a.d)) sum_rows<4>(of, dh, rows.live(), true, blockIdx.x, row_blocks, sums);
    else sum_rows<1>(of, dh, rows.live(), true, blockIdx.x, row_blocks, sums);
  } else if (blockIdx.x < row_blocks + time_blocks) {
    uint32_t c = (blockIdx.x - row_blocks) * WARP + lane_id();
    float sum = column_sum(dwb, min(parts, roots), 2 * a.t, c, reinterpret_cast<float(*)[WARP]>(sums));
    float* out = c < a.t ? dw : db;
    if (threadIdx.x < WARP && c < 2 * a.t && out) out[c < a.t ? c : c - a.t] = sum;
  } else if (dquery) {
    uint32_t before = row_blocks + time_blocks, block = blockIdx.x - before, blocks = gridDim.x - before;
    RowGroups of{by_root, a.starts, nullptr, roots, roots, a.heads * (a.d + a.f + a.t), s};
    if (by_four(by_root, of.d) && by_four(dquery, of.d)) sum_rows<4>(of, dquery, a.queries.live(), false, block, blocks, sums);
    else sum_rows<1>(of, dquery, a.queries.live(), false, block, blocks, sums);
  }
}

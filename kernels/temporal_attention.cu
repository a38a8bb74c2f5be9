// temporal_attention: mix_h = sum_j drop(a_hj) z_j, a_h = softmax_j(q_h . z_j / sqrt(p)), z_j = {h_j | e_j | Phi(dt_j)}
//
// shapes    query [q, H c], h [m, d], edge [e, f], row, event, dt [n, k], mix [m, H c], sum [m, H], weight [m, H k]
// grid      one block per root; a thread has some columns of all k raw rows, and contributes to every score
// memory    reads each raw row once and keeps it (beyond ten neighbours or 512 columns it reads the rows again, from
//           the L1 cache), a query and ids; writes H (c + k + 1) words per root; 16 bytes at a time if rows
//           are aligned
// limiter   latency: ids, then rows, then two barriers; hidden by several blocks per SM
// backward  one more such pass: dz and dquery of each root, {dw | db} of each block; then, in one launch, sums in a
//           fixed order: of dz by row of h (group_slots lists the slots of each row), of {dw | db}, of dquery by query
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
  __device__ __forceinline__ explicit Columns(uint32_t tile)
      : known((tile * THREADS + threadIdx.x) * V), time(tile * THREADS + threadIdx.x) {}
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

// Raw rows of a chunk: {h | e} in registers, the time encoding in the thread's own column of shared memory (so
// that there is a single copy of the code of a cosine, which is long).
template <int V> using Known = float[CHUNK][V];
using Times = float[CHUNK][THREADS];

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

// Loads `n` slots of root `i` from slot `first` on, with the sines for the backward pass; zeros beyond them.
template <bool SINES, int V>
__device__ __forceinline__ void load_raw(const Attention& a, const Bounds& bounds, uint32_t i, uint32_t first, uint32_t n,
                                         Columns<V> at, Known<V>& z, Times& cosines, Times* sines) {
  uint32_t slot = i * a.k + first;
  bool memory = at.known < a.d, known = at.known < a.d + a.f;
  const uint32_t* ids = (memory ? a.row : a.event) + slot;
  const float* table = memory ? a.h + at.known : a.edge + (at.known - a.d);
  uint32_t width = memory ? a.d : a.f, rows = memory ? bounds.rows : bounds.events, id[CHUNK], wrong = NONE;
  float of_lane = lane_id() < min(n, CHUNK) ? a.dt[slot + lane_id()] : 0.f;  // the time gap of neighbour `lane`
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
  if (at.time - lane_id() >= a.t) return;  // the whole warp
  bool time = at.time < a.t;
  float w = time ? a.w[at.time] : 0.f, b = time ? a.b[at.time] : 0.f;
#pragma unroll 2
  for (uint32_t j = 0; j < CHUNK; j++) {
    float sine = 0, cosine = 0, dt = __shfl_sync(ALL, of_lane, int(j));
    if (time && j < n) {
      Turned angle(time_angle(dt, w, b));
      cosine = angle.cosine();
      if constexpr (SINES) sine = angle.sine();
    }
    cosines[j][threadIdx.x] = cosine;  // of idle threads, too
    if constexpr (SINES) (*sines)[j][threadIdx.x] = sine;
  }
}

template <int V>
__device__ __forceinline__ void add_times(Share<V>& sum, float x, const float (&known)[V], float time) {
#pragma unroll
  for (int l = 0; l < V; l++) sum.known[l] += x * known[l];
  sum.time += x * time;
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
// call suffices.
template <int V>
__device__ __forceinline__ float dots(const Share<V> (&rows)[2], const Known<V>& z, const Times& cosines, bool time,
                                      Sums& sums, float& factor) {
  float v[WARP];
#pragma unroll
  for (uint32_t x = 0; x < WARP; x++) v[x] = 0;
#pragma unroll
  for (uint32_t j = 0; j < CHUNK; j++) {
    float cosine = time ? cosines[j][threadIdx.x] : 0.f;
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
      float dot = rows[h].time * cosine;
#pragma unroll
      for (int l = 0; l < V; l++) dot += rows[h].known[l] * z[j][l];
      v[HALF * h + j] = dot;
    }
  }
  fold<WARP / 2>(v);
  uint32_t warp = threadIdx.x / WARP;
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

template <int V>
__device__ __forceinline__ void attend(const Attention& a, const Bounds& bounds, float* mix, float* sum, float* weight,
                                       Sums (&sums)[2], float2 (&counts)[WARPS][HALF], Times& cosines) {
  uint32_t m = a.roots.live(), tiles = Columns<V>::tiles(a), turn = 0;
  uint32_t rows = a.heads * (a.d + a.f + a.t);
  uint32_t warp = threadIdx.x / WARP;
  for (uint32_t at = blockIdx.x; at < m; at += gridDim.x) {
    auto [i, q, n] = bounds.root(a, at);
    const float* query = a.query + uint64_t(q) * rows;
    bool one = n <= CHUNK, once = one && tiles == 1;
    Known<V> z;
    Share<V> row[2];
    for (uint32_t head = 0; head < a.heads; head += 2) {
      Lane lane(a, at, head);
      float score = 0, factor = 0, top = -INFINITY, total = 0, kept_sum = 0;
      for (uint32_t first = 0; first < n; first += CHUNK) {
        score = 0;
        if (warp == WARPS - 1 && lane.used(first, n)) factor = lane.kept(a, i, first);
        for (uint32_t tile = 0; tile < tiles; tile++) {
          Columns<V> columns(tile);
          if (!once || head == 0) load_raw<false>(a, bounds, i, first, n - first, columns, z, cosines, nullptr);
          load_heads(a, query, head, columns, row);
          score += dots(row, z, cosines, columns.time < a.t, sums[turn++ % 2], factor) * a.scale;
        }
        if (lane.used(first, n)) {
          top = fmaxf(top, score);
          if (!one && warp == 0) weight[lane.place(a, first)] = score;
        }
      }
      if (!one) __syncthreads();  // the scores have been written
      top = half_max(top);
      auto raised = [&](uint32_t first) { return expf((one ? score : weight[lane.place(a, first)]) - top); };
      for (uint32_t first = 0; first < n; first += CHUNK) total += lane.used(first, n) ? raised(first) : 0.f;
      total = half_sum(total);
      for (uint32_t tile = 0; tile < tiles; tile++) {
        Columns<V> columns(tile);
        Share<V> mixed[2] = {};
        for (uint32_t first = 0; first < n; first += CHUNK) {
          float share = 0;
          if (lane.used(first, n)) share = raised(first) / total * (one ? factor : lane.kept(a, i, first));
          if (tile == 0) kept_sum += share;
          __syncwarp();
          if (lane.j < CHUNK) reinterpret_cast<float*>(&counts[warp][lane.j])[lane.head - head] = share;
          __syncwarp();
          if (!once) load_raw<false>(a, bounds, i, first, n - first, columns, z, cosines, nullptr);
#pragma unroll
          for (uint32_t j = 0; j < CHUNK; j++) {
            float2 count = counts[warp][j];
            float cosine = columns.time < a.t ? cosines[j][threadIdx.x] : 0.f;
            add_times(mixed[0], count.x, z[j], cosine), add_times(mixed[1], count.y, z[j], cosine);
          }
        }
        if (mix) store_heads(a, mix + uint64_t(at) * rows, head, columns, mixed);
      }
      kept_sum = half_sum(kept_sum);
      if (!one) __syncthreads();  // the scores have been read
      if (warp == 0 && lane.real) {
        if (sum && lane.j == 0) sum[lane.row] = kept_sum;
        for (uint32_t first = 0; first + lane.j < a.k; first += CHUNK) {
          weight[lane.place(a, first)] = lane.used(first, n) ? raised(first) / total : 0.f;
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
  if (by_four(a) && by_four(mix, 4)) attend<4>(a, bounds, mix, sum, weight, sums, counts, cosines);
  else attend<1>(a, bounds, mix, sum, weight, sums, counts, cosines);
}

// ---- gradient ----

// `dz` receives one row of h's gradient per used slot; `dquery` the gradients of queries with one root, `by_root` those
// of the roots of other queries; `dwb` one row {dw | db} for each block that has roots. Unwanted outputs are null. `da`
// [roots, H k] is scratch for roots with more than one chunk.
template <int V>
__device__ __forceinline__ void attend_back(const Attention& a, const Bounds& bounds, const float* weight, const float* dmix,
                                            const float* dsum, float* dquery, float* by_root, float* dz, float* dwb,
                                            float* da, Sums (&sums)[2],
                                            float4 (&counts)[WARPS][HALF], Times& cosines, Times& sines) {
  uint32_t m = a.roots.live(), tiles = Columns<V>::tiles(a), turn = 0;
  uint32_t rows = a.heads * (a.d + a.f + a.t);
  uint32_t warp = threadIdx.x / WARP;
  for (uint32_t at = blockIdx.x; at < m; at += gridDim.x) {
    auto [i, q, n] = bounds.root(a, at);
    bool one = n <= CHUNK, once = one && tiles == 1;
    Known<V> z;
    Share<V> g[2], row[2];
    for (uint32_t head = 0; head < a.heads; head += 2) {
      Lane lane(a, at, head);
      float mine = 0, mean = 0, factor = 0;
      for (uint32_t first = 0; first < n; first += CHUNK) {
        mine = 0;
        if (warp == WARPS - 1 && lane.used(first, n)) factor = lane.kept(a, i, first);
        for (uint32_t tile = 0; tile < tiles; tile++) {
          Columns<V> columns(tile);
          if (!once || head == 0) load_raw<true>(a, bounds, i, first, n - first, columns, z, cosines, &sines);
          load_heads(a, dmix + uint64_t(at) * rows, head, columns, g);
          mine += dots(g, z, cosines, columns.time < a.t, sums[turn++ % 2], factor);
        }
        if (lane.used(first, n)) {
          mine = (mine + dsum[lane.row]) * factor;
          mean += weight[lane.place(a, first)] * mine;
          if (!one && warp == 0) da[lane.place(a, first)] = mine;
        }
      }
      if (!one) __syncthreads();  // `da` has been written
      mean = half_sum(mean);
      for (uint32_t tile = 0; tile < tiles; tile++) {
        Columns<V> columns(tile);
        Share<V> sum[2] = {};
        float dw = 0, db = 0;
        load_heads(a, a.query + uint64_t(q) * rows, head, columns, row);
        if (tiles > 1) load_heads(a, dmix + uint64_t(at) * rows, head, columns, g);
        for (uint32_t first = 0; first < n; first += CHUNK) {
          float share = 0, ds = 0;
          if (lane.used(first, n)) {
            float before = weight[lane.place(a, first)];
            share = before * (one ? factor : lane.kept(a, i, first));
            ds = before * ((one ? mine : da[lane.place(a, first)]) - mean) * a.scale;
          }
          __syncwarp();
          if (lane.j < CHUNK) {
            float* count = reinterpret_cast<float*>(&counts[warp][lane.j]) + (lane.head - head);
            count[0] = share, count[2] = ds;
          }
          __syncwarp();
          if (!once) load_raw<true>(a, bounds, i, first, n - first, columns, z, cosines, &sines);
#pragma unroll
          for (uint32_t j = 0; j < CHUNK; j++) {
            float2 ds_of = *reinterpret_cast<const float2*>(&counts[warp][j].z);
            float cosine = columns.time < a.t ? cosines[j][threadIdx.x] : 0.f;
            add_times(sum[0], ds_of.x, z[j], cosine), add_times(sum[1], ds_of.y, z[j], cosine);
          }
          // A separate loop: neither needs the other's registers.
          float gap = first + lane_id() < n ? a.dt[i * a.k + first + lane_id()] : 0.f;  // of neighbour `lane`
          uint64_t at_z = (uint64_t(at) * a.k + first) * a.d + columns.known;
#pragma unroll 1
          for (uint32_t j = 0; j < CHUNK && first + j < n; j++, at_z += a.d) {
            float4 count = counts[warp][j];
            float dt = __shfl_sync(ALL, gap, int(j));
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
            if (dwb && columns.time < a.t) {
              float s = -sines[j][threadIdx.x] * back.time;
              dw += s * dt, db += s;
            }
          }
        }
        bool alone = a.starts[q + 1] - a.starts[q] == 1;
        if (dquery) store_heads(a, alone ? dquery + uint64_t(q) * rows : by_root + uint64_t(at) * rows, head, columns, sum);
        if (dwb && columns.time < a.t) {
          float* to = dwb + uint64_t(blockIdx.x) * 2 * a.t + columns.time;
          if (at != blockIdx.x || head) dw += to[0], db += to[a.t];
          to[0] = dw, to[a.t] = db;
        }
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(128, 4)
temporal_attention_grad(Attention a, const float* weight, const float* dmix, const float* dsum, float* dquery,
                        float* by_root, float* dz, float* dwb, float* da, Rows all, Rows rows, Rows events, Status s) {
  after_previous_kernel();
  Bounds bounds{all.live(), a.queries.live(), rows.live(), events.live(), s};
  bool aligned = by_four(a) && by_four(dmix, 4) && by_four(dquery, 4) && by_four(by_root, 4) && by_four(dz, 4);
  __shared__ Sums sums[2];
  __shared__ float4 counts[WARPS][HALF];  // by neighbour: {weights after drop-out | gradients of scores}, both heads
  __shared__ Times cosines, sines;
  if (aligned) {
    attend_back<4>(a, bounds, weight, dmix, dsum, dquery, by_root, dz, dwb, da, sums, counts, cosines, sines);
  } else {
    attend_back<1>(a, bounds, weight, dmix, dsum, dquery, by_root, dz, dwb, da, sums, counts, cosines, sines);
  }
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

// pair_logits: logit[i, j] = w . relu(P[src[i]] + b + Q[x[i, j]]) + b_out, and its gradients
//
// shapes    P [v, d], Q [v', d], b, w [1, d] f32, b_out [1, 1], src [n], x [n, m] u32, logits [n, m] f32; the pairs of
//           each vertex: starts [v + 1] or [v' + 1], rows [<= n], slots [<= n m] u32
// grid      logits: one warp per 32 pairs; gradients: one block of 256 per vertex and 64 columns, columns along y; the
//           warps of a block divide its pairs, 32 at a time
// memory    reads two rows per pair, of P and of Q, mostly from L2, in each of three passes; writes logits, dP and dQ
//           once; coalesced; nothing of size n m d is stored
// limiter   memory (L2)
// backward  dP[u] = w sum of dlogit [sum before relu > 0] over the pairs of source u; dQ the same over the pairs of a
//           candidate; db, dw from partial sums per block
// source    TGN's merge layer (Rossi et al. 2020)
#include "common.cuh"

// The logits of 32 pairs, one in each lane; V columns of a row of each in a lane at a time. Invalid pairs read the rows of
// a valid one, so that no branch stands between the loads.
template <int V>
__device__ __forceinline__ void make_logits(const float* p, const float* q, const float* b, const float* w, const float* b_out,
                                            const uint32_t* src, const uint32_t* x, float* logits, uint32_t sources,
                                            uint32_t others, uint64_t pairs, uint32_t m, uint32_t d, Status s) {
  constexpr uint32_t AT_ONCE = 8;
  for (uint64_t base = uint64_t(warp_row()) * WARP; base < pairs; base += uint64_t(warp_rows()) * WARP) {
    uint64_t at = base + lane_id();
    uint32_t i = at < pairs ? uint32_t(at / m) : 0, u = at < pairs ? src[i] : NONE, v = at < pairs ? x[at] : NONE;
    u = s.row_of(i, u, sources), v = s.row_of(i, v, others);
    bool pair = u != NONE && v != NONE;
    unsigned valid = __ballot_sync(ALL, pair);
    int some = valid ? __ffs(int(valid)) - 1 : 0;
    uint32_t u_of = __shfl_sync(ALL, u, some), v_of = __shfl_sync(ALL, v, some);
    if (!pair) u = u_of, v = v_of;
    float sums[WARP] = {};
    for (uint32_t left = 0; valid && left < d; left += WARP * V) {
      uint32_t c = left + lane_id() * V;
      float bias[V], weight[V];
      bool inside = c < d;
      if (!inside) c = 0;
      load(b + c, bias), load(w + c, weight);
#pragma unroll
      for (uint32_t first = 0; first < WARP; first += AT_ONCE) {
        float of_p[AT_ONCE][V], of_q[AT_ONCE][V];
#pragma unroll
        for (uint32_t j = 0; j < AT_ONCE; j++) {
          load(p + uint64_t(__shfl_sync(ALL, u, int(first + j))) * d + c, of_p[j]);
          load(q + uint64_t(__shfl_sync(ALL, v, int(first + j))) * d + c, of_q[j]);
        }
#pragma unroll
        for (uint32_t j = 0; j < AT_ONCE; j++) {
          float sum = 0;
#pragma unroll
          for (int l = 0; l < V; l++) sum = fmaf(relu(of_p[j][l] + bias[l] + of_q[j][l]), weight[l], sum);
          sums[first + j] += inside ? sum : 0.f;
        }
      }
    }
    transposed_sums(sums);
    if (at < pairs) logits[at] = pair ? sums[0] + b_out[0] : 0.f;
  }
}

extern "C" __global__ void __launch_bounds__(256, 2)
pair_logits(const float* p, const float* q, const float* b, const float* w, const float* b_out, const uint32_t* src,
            const uint32_t* x, float* logits, Rows sources, Rows others, Rows rows, uint32_t m, uint32_t d, Status s) {
  after_previous_kernel();
  uint64_t pairs = uint64_t(rows.live()) * m;
  uint32_t known = sources.live(), candidates = others.live();
  if (by_four(p, d) && by_four(q, d) && by_four(b, d) && by_four(w, d)) {
    make_logits<2>(p, q, b, w, b_out, src, x, logits, known, candidates, pairs, m, d, s);
  } else {
    make_logits<1>(p, q, b, w, b_out, src, x, logits, known, candidates, pairs, m, d, s);
  }
}

// The two columns of a lane; at either index, neighbouring lanes have neighbouring columns.
struct Columns {
  uint32_t at[2];
  uint32_t d;
  __device__ __forceinline__ explicit Columns(uint32_t d) : d(d) {
    at[0] = blockIdx.y * 2 * WARP + lane_id(), at[1] = at[0] + WARP;
  }
  __device__ __forceinline__ float of(const float* row, int i) const { return at[i] < d ? row[at[i]] : 0.f; }
};

// Up to 32 pairs of a vertex, one in each lane: the other vertex, whose row is read, and the gradient of the logit.
struct Pairs {
  uint32_t other;
  float dlogit;
  unsigned valid;  // lanes with a pair
  // Without a pair a lane has the other vertex of a valid one, so that no branch stands between the loads.
  __device__ __forceinline__ Pairs(uint32_t id, uint32_t vertices, float dlogit) : dlogit(dlogit) {
    valid = __ballot_sync(ALL, id < vertices);
    uint32_t some = __shfl_sync(ALL, id, valid ? __ffs(int(valid)) - 1 : 0);
    other = id < vertices ? id : some;
  }
  // Calls `use(row, dlogit)` with the columns of each pair's row of `table`, in order.
  template <class Use> __device__ __forceinline__ void each(const float* table, Columns columns, Use use) const {
    constexpr uint32_t AT_ONCE = 8;
    for (uint32_t first = 0; first < WARP && valid >> first; first += AT_ONCE) {
      float row[AT_ONCE][2];
#pragma unroll
      for (uint32_t j = 0; j < AT_ONCE; j++) {
        const float* from = table + uint64_t(__shfl_sync(ALL, other, int(first + j))) * columns.d;
        row[j][0] = columns.of(from, 0), row[j][1] = columns.of(from, 1);
      }
#pragma unroll
      for (uint32_t j = 0; j < AT_ONCE; j++) {
        float up = __shfl_sync(ALL, dlogit, int(first + j));
        if (valid >> (first + j) & 1) use(row[j], up);
      }
    }
  }
};

// The range of vertex `v` in the list of pairs, as {first, past the last}; empty, and a fault, if it exceeds the list.
__device__ __forceinline__ uint2 span_of(const uint32_t* starts, uint32_t v, uint32_t listed, Status s) {
  uint32_t first = starts[v], last = starts[v + 1];
  if (first <= last && last <= listed) return make_uint2(first, last);
  s.fault(v, last);
  return make_uint2(0, 0);
}

// dP, db, dw and db_out; each may be null. `made` holds the sums {db | dw | db_out} of every block.
extern "C" __global__ void __launch_bounds__(256, 5)
pair_logits_source_grad(const float* p, const float* q, const float* b, const float* w, const uint32_t* x, const float* dlogits,
                        const uint32_t* starts, const uint32_t* rows, float* made, uint32_t* tickets, float* dp, float* db,
                        float* dw, float* db_out, Rows sources, Rows others, Rows from, Rows list, uint32_t m, uint32_t d, Status s) {
  after_previous_kernel();
  constexpr uint32_t WARPS = 256 / WARP;
  __shared__ float sums[WARPS][WARP];
  uint32_t warp = threadIdx.x / WARP, vertices = sources.live(), candidates = others.live();
  uint32_t n = from.live(), listed = list.live();
  Columns columns(d);
  float of_b[2] = {}, of_w[2] = {}, of_out = 0.f;
  for (uint32_t u = blockIdx.x; u < vertices; u += gridDim.x) {
    uint2 span = span_of(starts, u, listed, s);
    uint64_t pairs = uint64_t(span.y - span.x) * m;
    float base[2], open[2] = {};
    for (int i = 0; i < 2; i++) base[i] = columns.of(p + uint64_t(u) * d, i) + columns.of(b, i);
    uint64_t share = (pairs + WARPS - 1) / WARPS, until = min((warp + 1) * share, pairs);
    for (uint64_t t = warp * share; t < until; t += WARP) {
      uint64_t of_lane = t + lane_id();
      uint32_t i = of_lane < until ? rows[span.x + uint32_t(of_lane / m)] : NONE;
      i = s.row_of(u, i, n);
      uint64_t at = uint64_t(i) * m + of_lane % m;
      Pairs lanes(i != NONE ? x[at] : NONE, candidates, i != NONE ? dlogits[at] : 0.f);
      lanes.each(q, columns, [&](const float (&row)[2], float dlogit) {
        for (int i = 0; i < 2; i++) {
          float z = base[i] + row[i];
          if (z > 0.f) open[i] += dlogit, of_w[i] = fmaf(dlogit, z, of_w[i]);
        }
        of_out += dlogit;
      });
    }
    for (int i = 0; i < 2; i++) {
      float sum = pairs ? columns.of(w, i) * sum_of_warps(open[i], sums) : 0.f;
      if (warp > 0 || columns.at[i] >= d) continue;
      of_b[i] += sum;
      if (dp) dp[uint64_t(u) * d + columns.at[i]] = sum;
    }
  }
  uint64_t size = 2 * uint64_t(d) + 1;
  float* mine = made + blockIdx.x * size;
  for (int i = 0; i < 2; i++) {
    float sum = sum_of_warps(of_w[i], sums);
    if (warp == 0 && columns.at[i] < d) mine[columns.at[i]] = of_b[i], mine[d + columns.at[i]] = sum;
  }
  of_out = sum_of_warps(of_out, sums);
  if (threadIdx.x == 0 && blockIdx.y == 0) mine[2 * d] = of_out;
  if (!comes_last(tickets + blockIdx.y, gridDim.x)) return;
  uint32_t which = threadIdx.x / (2 * WARP), column = blockIdx.y * 2 * WARP + threadIdx.x % (2 * WARP);
  float* to = which == 0 ? db : dw;
  if (which < 2 && column < d && to) to[column] = sum_of_parts(made, gridDim.x, size, which * d + column);
  if (threadIdx.x == 4 * WARP && blockIdx.y == 0 && db_out) *db_out = sum_of_parts(made, gridDim.x, size, 2 * d);
}

extern "C" __global__ void __launch_bounds__(256, 5)
pair_logits_candidate_grad(const float* p, const float* q, const float* b, const float* w, const uint32_t* src,
                           const float* dlogits, const uint32_t* starts, const uint32_t* slots, float* dq, Rows sources,
                           Rows others, Rows from, Rows list, uint32_t m, uint32_t d, Status s) {
  after_previous_kernel();
  constexpr uint32_t WARPS = 256 / WARP;
  __shared__ float sums[WARPS][WARP];
  uint32_t warp = threadIdx.x / WARP, vertices = others.live(), known = sources.live();
  uint32_t all = from.live() * m, listed = list.live();
  Columns columns(d);
  float bias[2];
  for (int i = 0; i < 2; i++) bias[i] = columns.of(b, i);
  for (uint32_t v = blockIdx.x; v < vertices; v += gridDim.x) {
    uint2 span = span_of(starts, v, listed, s);
    float open[2] = {}, own[2];
    for (int i = 0; i < 2; i++) own[i] = columns.of(q + uint64_t(v) * d, i);
    uint32_t share = (span.y - span.x + WARPS - 1) / WARPS, until = min(span.x + (warp + 1) * share, span.y);
    for (uint32_t t = span.x + warp * share; t < until; t += WARP) {
      uint32_t slot = s.row_of(v, t + lane_id() < until ? slots[t + lane_id()] : NONE, all);
      Pairs lanes(slot != NONE ? src[slot / m] : NONE, known, slot != NONE ? dlogits[slot] : 0.f);
      lanes.each(p, columns, [&](const float (&row)[2], float dlogit) {
        for (int i = 0; i < 2; i++) {
          if (row[i] + bias[i] + own[i] > 0.f) open[i] += dlogit;
        }
      });
    }
    for (int i = 0; i < 2; i++) {
      float sum = span.y > span.x ? columns.of(w, i) * sum_of_warps(open[i], sums) : 0.f;
      if (warp == 0 && columns.at[i] < d) dq[uint64_t(v) * d + columns.at[i]] = sum;
    }
  }
}

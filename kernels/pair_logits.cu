// pair_logits: logit[i, j] = w . relu(P[src[i]] + b + Q[x[i, j]]) + b_out, and its gradients
//
// shapes    P [v, d], Q [v', d], b, w [1, d] f32, b_out [1, 1], src [n], x [n, m] u32, logits [n, m] f32; the pairs of
//           each vertex: starts [v + 1] or [v' + 1], rows [<= n], slots [<= n m] u32
// grid      logits: one warp per pair; gradients: one block of 256 per vertex and 64 columns, columns along y; the
//           warps of a block take its pairs in turn
// memory    reads two rows per pair, of P and of Q, mostly from L2, in each of three passes; writes logits, dP and dQ
//           once; coalesced; nothing of size n m d is stored
// limiter   memory (L2)
// backward  dP[u] = w sum of dlogit [sum before relu > 0] over the pairs of source u; dQ the same over the pairs of a
//           candidate; db, dw from partial sums per block
// source    TGN's merge layer (Rossi et al. 2020)
#include "common.cuh"

__device__ __forceinline__ float term(float p, float b, float q, float w, float sum) { return fmaf(relu(p + b + q), w, sum); }
__device__ __forceinline__ float term(float4 p, float4 b, float4 q, float4 w, float sum) {
  sum = term(p.x, b.x, q.x, w.x, sum), sum = term(p.y, b.y, q.y, w.y, sum);
  return term(p.w, b.w, q.w, w.w, term(p.z, b.z, q.z, w.z, sum));
}

template <class T>
__device__ __forceinline__ void make_logits(const T* p, const T* q, const T* b, const T* w, const float* b_out,
                                            const uint32_t* src, const uint32_t* x, float* logits, uint32_t sources,
                                            uint32_t others, uint64_t pairs, uint32_t m, uint32_t d, Status s) {
  for (uint64_t at = warp_row(); at < pairs; at += warp_rows()) {
    uint32_t i = uint32_t(at / m), u = s.row_of(i, src[i], sources), v = s.row_of(i, x[at], others);
    bool pair = u != NONE && v != NONE;
    float sum = 0.f;
    for (uint32_t c = pair ? lane_id() : d; c < d; c += WARP) {
      sum = term(p[uint64_t(u) * d + c], b[c], q[uint64_t(v) * d + c], w[c], sum);
    }
    sum = warp_sum(sum);
    if (lane_id() == 0) logits[at] = pair ? sum + b_out[0] : 0.f;
  }
}

extern "C" __global__ void __launch_bounds__(256, FULL / 2)
pair_logits(const float* p, const float* q, const float* b, const float* w, const float* b_out, const uint32_t* src,
            const uint32_t* x, float* logits, Rows sources, Rows others, Rows rows, uint32_t m, uint32_t d, Status s) {
  after_previous_kernel();
  uint64_t pairs = uint64_t(rows.live()) * m;
  if (by_four(p, d) && by_four(q, d) && by_four(b, d) && by_four(w, d)) {
    auto fours = [](const float* of) { return reinterpret_cast<const float4*>(of); };
    make_logits(fours(p), fours(q), fours(b), fours(w), b_out, src, x, logits, sources.live(), others.live(), pairs, m, d / 4, s);
  } else {
    make_logits(p, q, b, w, b_out, src, x, logits, sources.live(), others.live(), pairs, m, d, s);
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
    for (uint64_t t = warp; t < pairs; t += WARPS) {
      uint32_t i = s.row_of(u, rows[span.x + uint32_t(t / m)], n);
      if (i == NONE) continue;
      uint64_t at = uint64_t(i) * m + t % m;
      uint32_t v = x[at];
      if (v >= candidates) continue;
      float dlogit = dlogits[at];
      for (int i = 0; i < 2; i++) {
        float z = base[i] + columns.of(q + uint64_t(v) * d, i);
        if (z > 0.f) open[i] += dlogit, of_w[i] = fmaf(dlogit, z, of_w[i]);
      }
      of_out += dlogit;
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

extern "C" __global__ void __launch_bounds__(256, 6)
pair_logits_candidate_grad(const float* p, const float* q, const float* b, const float* w, const uint32_t* src,
                           const float* dlogits, const uint32_t* starts, const uint32_t* slots, float* dq, Rows sources,
                           Rows others, Rows from, Rows list, uint32_t m, uint32_t d, Status s) {
  after_previous_kernel();
  constexpr uint32_t WARPS = 256 / WARP;
  __shared__ float sums[WARPS][WARP];
  uint32_t warp = threadIdx.x / WARP, vertices = others.live(), known = sources.live();
  uint32_t all = from.live() * m, listed = list.live();
  Columns columns(d);
  for (uint32_t v = blockIdx.x; v < vertices; v += gridDim.x) {
    uint2 span = span_of(starts, v, listed, s);
    float open[2] = {};
    for (uint32_t t = span.x + warp; t < span.y; t += WARPS) {
      uint32_t slot = s.row_of(v, slots[t], all), u = slot == NONE ? NONE : src[slot / m];
      if (u >= known) continue;
      float dlogit = dlogits[slot];
      for (int i = 0; i < 2; i++) {
        float base = columns.of(p + uint64_t(u) * d, i) + columns.of(b, i);
        if (base + columns.of(q + uint64_t(v) * d, i) > 0.f) open[i] += dlogit;
      }
    }
    for (int i = 0; i < 2; i++) {
      float sum = span.y > span.x ? columns.of(w, i) * sum_of_warps(open[i], sums) : 0.f;
      if (warp == 0 && columns.at[i] < d) dq[uint64_t(v) * d + columns.at[i]] = sum;
    }
  }
}

// memory_update: what memory updates have in common, whatever their cell: the list of mails and the gradients of the weights
//
// shapes    those of memory_update.cuh; W_x [joint + apart, c] and W_h [joint + apart, d]: the first `joint` rows are of gates
//           that see the sum of both terms, W_x m + W_h s, the others of gates that see the two apart; dpre
//           [m, joint + 2 apart]: gradients of the sums, then of the terms of the message, then of those of the state
// grid      list: one block; weight_grad: a block of 256 a tile of 64 x 64, parts of the mails along z; time_grad: a block
//           of 1024 32 columns
// memory    list: reads 24 n bytes from all over the tables; weight_grad: reads dpre c / 64 times and messages
//           (joint + 2 apart) / 64 times, mostly through L2
// limiter   list: latency; weight_grad: f32 arithmetic, 2 m ((joint + apart) (c + 2 t) + apart d) operations
// backward  is one: the cell makes dpre, then one product is for the weights, the biases and the time encoding
// source    TGN, equations 1 to 4
#include "product.cuh"

constexpr uint32_t LIST_THREADS = 1024;
constexpr uint32_t LIST_EACH = 4;  // rows of a thread of the list: their loads are under way together

// Times of all nodes and, in order, the rows with a mail: row, row of memory and mail, row of its features, gap.
extern "C" __global__ void __launch_bounds__(1024, 1)
memory_update_list(const uint32_t* unique, const int64_t* memory_time, const uint32_t* mail_event,
                   const int64_t* mail_time, int64_t* time, uint32_t* count, uint32_t* mailed, uint32_t* node,
                   uint32_t* feature, float* dt, Rows rows, Rows edges, Gaps gaps, uint32_t features, uint32_t gathered,
                   uint32_t nodes, Status s) {
  constexpr uint32_t WARPS = LIST_THREADS / WARP;
  static_assert(WARPS == WARP, "a lane for each warp's number of mails");
  __shared__ uint32_t mails[2][WARPS];  // of each warp; in turns, so that one barrier a round is enough
  uint32_t n = rows.live(), kept = edges.live(), warp = threadIdx.x / WARP, lane = lane_id(), made = 0;
  for (uint32_t first = 0, turn = 0; first < n; first += LIST_THREADS * LIST_EACH, turn ^= 1) {
    uint32_t row0 = first + warp * WARP * LIST_EACH + lane;
    uint32_t v[LIST_EACH], event[LIST_EACH], of[LIST_EACH], with[LIST_EACH], own = 0;
    int64_t updated[LIST_EACH], sent[LIST_EACH];
#pragma unroll
    for (uint32_t q = 0; q < LIST_EACH; q++) v[q] = row0 + q * WARP < n ? unique[row0 + q * WARP] : NONE;
#pragma unroll
    for (uint32_t q = 0; q < LIST_EACH; q++) {
      event[q] = NONE, updated[q] = 0, v[q] = s.row_of(row0 + q * WARP, v[q], nodes);
      if (v[q] != NONE) event[q] = mail_event[v[q]], updated[q] = memory_time[v[q]], sent[q] = mail_time[v[q]];
    }
    // A mail whose features are not there is none.
#pragma unroll
    for (uint32_t q = 0; q < LIST_EACH; q++) {
      uint32_t row = row0 + q * WARP;
      of[q] = features == 0 ? event[q] : features == 1 ? v[q] : row;  // `FeatureRow`
      if (event[q] != NONE && s.row_of(row, of[q], kept) == NONE) event[q] = NONE;
    }
#pragma unroll
    for (uint32_t q = 0; q < LIST_EACH; q++) {
      with[q] = __ballot_sync(ALL, event[q] != NONE);
      own += uint32_t(__popc(with[q]));
    }
    if (lane == 0) mails[turn][warp] = own;
    __syncthreads();  // the numbers of all warps are there
    uint32_t before = mails[turn][lane];
    for (uint32_t o = 1; o < WARP; o *= 2) {
      uint32_t other = __shfl_up_sync(ALL, before, o);
      if (lane >= o) before += other;
    }
    uint32_t at = made + __shfl_sync(ALL, before, int(warp)) - own;
    made += __shfl_sync(ALL, before, WARP - 1);
#pragma unroll
    for (uint32_t q = 0; q < LIST_EACH; q++) {
      if (row0 + q * WARP < n) time[row0 + q * WARP] = event[q] == NONE ? updated[q] : sent[q];
      if (event[q] != NONE) {
        uint32_t k = at + uint32_t(__popc(with[q] & ((1u << lane) - 1)));
        mailed[k] = row0 + q * WARP, node[k] = gathered ? mailed[k] : v[q];
        feature[k] = of[q];
        dt[k] = gaps.seconds(updated[q], sent[q]);
      }
      at += uint32_t(__popc(with[q]));
    }
  }
  if (threadIdx.x == 0) *count = made;
}

// dpre^T {message | -sin(angle) | -sin(angle) dt | 1}. The time encoding's gradients are sums over all of dpre and of W_x;
// summed over the rows first they are more columns of this product, and need no dPhi: `of_time` [gates, 2 t]. The other
// gradients may be null.
extern "C" __global__ void __launch_bounds__(256, 2)
memory_update_weight_grad(const float* dpre, const float* messages, const float* dt, const float* w, const float* b,
                          float* made, uint32_t* tickets, float* of_time, float* dw_x, float* dw_h, float* db_x,
                          float* db_h, Rows mails, uint32_t joint, uint32_t apart, uint32_t d, uint32_t c, uint32_t t,
                          uint32_t precision) {
  uint32_t k = c + 2 * t, gates = joint + apart, sums = gates + apart, column0 = blockIdx.y * TILE;
  // The state's terms have no weights but those of the node's own memory.
  if (blockIdx.x * TILE >= gates && column0 >= d && column0 + TILE <= k) return;  // the whole block
  weight_grad(
      precision, mails.live(), sums, k, gridDim.z, {made, tickets},
      Matrix{dpre, sums},
      WithColumns{Matrix{messages, c}, c,
                  [=](uint32_t i, uint32_t l) {
                    if (l == k) return 1.f;
                    uint32_t p = l - c < t ? l - c : l - c - t;
                    float slope = -sinf(time_angle(dt[i], w[p], b[p]));
                    return l - c < t ? slope : slope * dt[i];
                  }},
      [=](uint32_t row, uint32_t l, float sum) {
        bool of_x = row < gates, of_h = row < joint || !of_x;
        uint32_t row_h = of_x ? row : row - apart;
        if (l == k) {
          if (of_x && db_x) db_x[row] = sum;
          if (of_h && db_h) db_h[row_h] = sum;
        } else if (l >= c) {
          if (of_x) of_time[uint64_t(row) * 2 * t + (l - c)] = sum;
        } else {
          if (of_x && dw_x) dw_x[uint64_t(row) * c + l] = sum;
          if (of_h && l < d && dw_h) dw_h[uint64_t(row_h) * d + l] = sum;
        }
      });
}

// dw and db of the time encoding from `of_time`: 32 columns a block, its warps share their rows.
extern "C" __global__ void __launch_bounds__(1024, 2)
memory_update_time_grad(const float* of_time, const float* w_x, float* dw, float* db, uint32_t gates, uint32_t c,
                        uint32_t t) {
  __shared__ float partial[1024 / WARP][WARP];
  uint32_t lane = lane_id(), warp = threadIdx.x / WARP, warps = blockDim.x / WARP, column = blockIdx.x * WARP + lane;
  bool of_b = column < t;
  uint32_t p = of_b ? column : column - t;
  float sum = 0.f;
  for (uint32_t row = warp; row < gates && column < 2 * t; row += warps) {
    sum = fmaf(w_x[uint64_t(row) * c + (c - t) + p], of_time[uint64_t(row) * 2 * t + column], sum);
  }
  partial[warp][lane] = sum;
  __syncthreads();  // the sums of all warps are there
  float* to = of_b ? db : dw;
  if (warp != 0 || column >= 2 * t || !to) return;
  for (uint32_t other = 1; other < warps; other++) sum += partial[other][lane];
  to[p] = sum;
}

// memory_update: the part that all memory update cells share: the list of mails, their messages, the gradients of the
// weights
//
// shapes    see memory_update.cuh; W_x [joint + apart, c] and W_h [joint + apart, d]: the first `joint` rows belong to
//           gates that see the sum W_x m + W_h s, the others to gates that see the two terms separately; dpre
//           [m, joint + 2 apart]: gradients of the sums, then of the message terms, then of the state terms
// grid      list: one block; messages: one warp per message, per row of the weights and per row of the unique nodes;
//           weight_grad: one block of 256 per tile of 64 x 64, ranges of mails along z; time_grad: one block of 1024 per
//           32 columns
// memory    list: reads 24 n bytes, scattered over the tables; messages: reads m (2 d + f) words, scattered, and the
//           weights, writes m c words and (joint + 2 apart) d c, and copies rows without a mail; weight_grad: reads dpre
//           c / 64 times and messages (joint + 2 apart) / 64 times, mostly from L2
// limiter   list, messages: latency; weight_grad: f32 arithmetic, 2 m ((joint + apart) (c + 2 t) + apart d) operations;
//           t is 0 if the time encoding is fixed, and the slab's loop then computes no columns
// backward  weight_grad and time_grad are the backward pass: the cell computes dpre, then one product yields the
//           gradients of the weights, the biases and the time encoding
// source    TGN, equations 1 to 4
#include "product.cuh"
#include "time_encoding.cuh"

constexpr uint32_t LIST_THREADS = 1024;
constexpr uint32_t LIST_EACH = 4;  // rows per thread of the list, loaded at once

// The times of all nodes and, in order, the mails: row, row in the state, row of the edge features, time gap.
extern "C" __global__ void __launch_bounds__(1024, 1)
memory_update_list(const uint32_t* unique, const int64_t* memory_time, const uint32_t* mail_event,
                   const int64_t* mail_time, int64_t* time, uint32_t* count, uint32_t* mailed, uint32_t* node,
                   uint32_t* feature, float* dt, Rows rows, Rows edges, Gaps gaps, uint32_t features, uint32_t gathered,
                   uint32_t nodes, Status s) {
  after_previous_kernel();
  constexpr uint32_t WARPS = LIST_THREADS / WARP;
  static_assert(WARPS == WARP, "a lane for each warp's number of mails");
  __shared__ uint32_t mails[2][WARPS];  // mails of each warp; double buffered, so that one barrier per round suffices
  uint32_t n = rows.live(), kept = edges.live(), warp = threadIdx.x / WARP, lane = lane_id(), made = 0;
  for (uint32_t first = 0, turn = 0; first < n; first += LIST_THREADS * LIST_EACH, turn ^= 1) {
    uint32_t row0 = first + warp * WARP * LIST_EACH + lane;
    uint32_t v[LIST_EACH], event[LIST_EACH], of[LIST_EACH], with[LIST_EACH], own = 0;
    int64_t updated[LIST_EACH], sent[LIST_EACH];
#pragma unroll
    for (uint32_t q = 0; q < LIST_EACH; q++) {
      uint32_t row = row0 + q * WARP;
      v[q] = row >= n ? NONE : gathered ? row : unique[row];
    }
#pragma unroll
    for (uint32_t q = 0; q < LIST_EACH; q++) v[q] = s.row_of(row0 + q * WARP, v[q], nodes);
    // A separate loop: between two loads, the report of a fault would make the second wait for the first.
#pragma unroll
    for (uint32_t q = 0; q < LIST_EACH; q++) {
      event[q] = NONE, updated[q] = 0;
      if (v[q] != NONE) event[q] = mail_event[v[q]], updated[q] = memory_time[v[q]], sent[q] = mail_time[v[q]];
    }
    // A mail whose features do not exist is ignored (and reported).
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
    __syncthreads();  // the counts of all warps have been written
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
        mailed[k] = row0 + q * WARP, node[k] = v[q];
        feature[k] = of[q];
        dt[k] = gaps.seconds(updated[q], sent[q]);
      }
      at += uint32_t(__popc(with[q]));
    }
  }
  if (threadIdx.x == 0) *count = made;
}

// Element l of the message {s | s_partner | e | Phi(dt)} of the mail at row `node` of memory and mail and row `feature`
// of the edge features: in a table, or computed.
struct Message {
  const float *s, *partner, *edge;
  float dt;
  __device__ __forceinline__ Message(const MemoryUpdate& u, uint32_t k)
      : s(u.memory + uint64_t(u.node[k]) * u.d), partner(u.mail + uint64_t(u.node[k]) * u.d),
        edge(u.edge + uint64_t(u.feature[k]) * u.f), dt(u.dt[k]) {}
  // Where element l is stored; null in the time encoding.
  __device__ __forceinline__ const float* where(const MemoryUpdate& u, uint32_t l) const {
    uint32_t d = u.d, f = u.f;
    return l < d ? s + l : l < 2 * d ? partner + (l - d) : l < 2 * d + f ? edge + (l - 2 * d) : nullptr;
  }
  // Loads the weight and the bias of an element of the time encoding.
  __device__ __forceinline__ void encoding(const MemoryUpdate& u, uint32_t l, float (&x)[2]) const {
    uint32_t p = l - 2 * u.d - u.f;
    x[0] = u.w[p], x[1] = u.b[p];
  }
};

// Takes every STEP-th element from `first` on: `load(l, x)` for four of them, so that they are on their way at the same
// time, then `store(l, x)`.
template <uint32_t STEP, int V, class Load, class Store>
__device__ __forceinline__ void four_at_once(uint32_t first, uint32_t end, Load load, Store store) {
#pragma unroll 1
  for (uint32_t l = first; l < end; l += 4 * STEP) {
    float x[4][V];
#pragma unroll
    for (uint32_t q = 0; q < 4; q++) if (l + q * STEP < end) load(l + q * STEP, x[q]);
#pragma unroll
    for (uint32_t q = 0; q < 4; q++) if (l + q * STEP < end) store(l + q * STEP, x[q]);
  }
}

// What a warp writes to row `k` of the messages.
template <int V> __device__ __forceinline__ void write_message(const MemoryUpdate& u, uint32_t k) {
  uint32_t c = u.width(), stored = c - u.t;
  Message from(u, k);
  float* to = u.messages + uint64_t(k) * c;
  four_at_once<WARP * V, V>(lane_id() * V, stored, [&](uint32_t l, float (&x)[V]) { load(from.where(u, l), x); },
                         [&](uint32_t l, const float (&x)[V]) { store(to + l, x); });
  four_at_once<WARP, 2>(stored + lane_id(), c, [&](uint32_t l, float (&x)[2]) { from.encoding(u, l, x); },
                     [&](uint32_t l, const float (&x)[2]) { to[l] = Turned(time_angle(from.dt, x[0], x[1])).cosine(); });
}

// Writes row `column` of the weights: those of sum `column % sums` of memory column `column / sums`. A message begins
// with the node's own memory, which is also the state: in the joint gates it is multiplied by the sum of both weights.
__device__ __forceinline__ void write_weights(const MemoryUpdate& u, uint32_t column) {
  uint32_t c = u.width(), d = u.d, gates = u.joint + u.apart, sums = gates + u.apart, j = column / sums, sum = column % sums;
  const float* x = sum < gates ? u.w_x + uint64_t(sum * d + j) * c : nullptr;
  uint32_t gate = sum < gates ? sum : sum - u.apart;
  const float* h = sum < u.joint || sum >= gates ? u.w_h + uint64_t(gate * d + j) * d : nullptr;
  float* to = u.weights + uint64_t(column) * c;
  four_at_once<WARP, 2>(
      lane_id(), c, [&](uint32_t l, float (&of)[2]) { of[0] = x ? x[l] : 0.f, of[1] = h && l < d ? h[l] : 0.f; },
      [&](uint32_t l, const float (&of)[2]) { to[l] = of[0] + of[1]; });
}

// With PREPARE_MESSAGES the messages of all mails; with PREPARE_WEIGHTS the memory of rows without a mail, which stays,
// and the weights of messages.
constexpr uint32_t PREPARE_MESSAGES = 1, PREPARE_WEIGHTS = 2;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
constexpr unsigned MESSAGE_BLOCKS = 3;  // of a multiprocessor: with the registers of four, one would be spilled
#else
constexpr unsigned MESSAGE_BLOCKS = 4;
#endif
extern "C" __global__ void __launch_bounds__(256, MESSAGE_BLOCKS)
memory_update_messages(MemoryUpdate u, uint32_t what) {
  after_previous_kernel();
  uint32_t d = u.d, columns = d * (u.joint + 2 * u.apart), m = what & PREPARE_MESSAGES ? u.mails.live() : 0;
  uint32_t end = what & PREPARE_WEIGHTS ? m + columns + u.rows.live() : m;
  bool four = by_four(u.memory, d) && by_four(u.mail, d) && by_four(u.edge, u.f) && by_four(u.messages, u.width());
  for (uint32_t i = warp_row(); i < end; i += warp_rows()) {
    if (i < m) {
      if (four) write_message<4>(u, i);
      else write_message<1>(u, i);
    } else if (i < m + columns) {
      write_weights(u, i - m);
    } else {
      uint32_t row = i - m - columns, v = u.gathered ? row : u.unique[row];
      bool is = v < u.nodes;  // if not, `memory_update_list` has reported a fault
      if (is && u.mail_event[v] != NONE) continue;
      for (uint32_t j = lane_id(); j < d; j += WARP) {
        u.out[uint64_t(row) * d + j] = is ? u.memory[uint64_t(v) * d + j] : 0.f;
      }
    }
  }
}

// dpre^T {message | columns | 1}, of which `columns` has the last 2 t + 1 columns. The gradients of the weights may be
// null.
template <class Columns>
__device__ __forceinline__ void weight_gradients(const float* dpre, const float* messages, Columns columns, float* made,
                                                 uint32_t* tickets, float* of_time, float* dw_x, float* dw_h, float* db_x,
                                                 float* db_h, Rows mails, uint32_t joint, uint32_t apart, uint32_t d,
                                                 uint32_t c, uint32_t t, uint32_t precision) {
  uint32_t k = c + 2 * t, gates = joint + apart, sums = gates + apart, column0 = blockIdx.y * TILE;
  // State terms have weights for the node's own memory only.
  if (blockIdx.x * TILE >= gates && column0 >= d && column0 + TILE <= k) return;  // the whole block
  weight_grad(
      precision, mails.live(), sums, k, gridDim.z, {made, tickets},
      Matrix{dpre, sums}, WithColumns{Matrix{messages, c}, c, columns},
      [=](const Sums& sums, Tile tile) {
        tile.each(sums, [=](uint32_t row, uint32_t l, float sum) {
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
      });
}

// With the columns {-sin(angle) | -sin(angle) dt}. The gradients of the time encoding are sums over dpre and over W_x.
// Summed over the rows first, they are extra columns of this product, `of_time` [gates, 2 t], and dPhi is never computed.
extern "C" __global__ void __launch_bounds__(256, 2)
memory_update_weight_grad(const float* dpre, const float* messages, const float* dt, const float* w, const float* b,
                          float* made, uint32_t* tickets, float* of_time, float* dw_x, float* dw_h, float* db_x,
                          float* db_h, Rows mails, uint32_t joint, uint32_t apart, uint32_t d, uint32_t c, uint32_t t,
                          uint32_t precision) {
  after_previous_kernel();
  auto columns = [=](uint32_t i, uint32_t l) {
    uint32_t p = l - c;
    if (p == 2 * t) return 1.f;
    float gap = dt[i], slope = -Turned(time_angle(gap, w[p % t], b[p % t])).sine();
    return p < t ? slope : slope * gap;
  };
  weight_gradients(dpre, messages, columns, made, tickets, of_time, dw_x, dw_h, db_x, db_h, mails, joint, apart, d, c, t,
                   precision);
}
// If the time encoding is fixed: without those columns.
extern "C" __global__ void __launch_bounds__(256, 2)
memory_update_weight_grad_fixed(const float* dpre, const float* messages, float* made, uint32_t* tickets, float* dw_x,
                                float* dw_h, float* db_x, float* db_h, Rows mails, uint32_t joint, uint32_t apart,
                                uint32_t d, uint32_t c, uint32_t precision) {
  after_previous_kernel();
  weight_gradients(dpre, messages, Ones{}, made, tickets, nullptr, dw_x, dw_h, db_x, db_h, mails, joint, apart, d, c, 0,
                   precision);
}

// dw and db of the time encoding from `of_time`: 32 columns per block, whose warps divide the rows.
extern "C" __global__ void __launch_bounds__(1024, 1)
memory_update_time_grad(const float* of_time, const float* w_x, float* dw, float* db, uint32_t gates, uint32_t c,
                        uint32_t t) {
  after_previous_kernel();
  __shared__ float partial[1024 / WARP][WARP];
  uint32_t lane = lane_id(), warp = threadIdx.x / WARP, warps = blockDim.x / WARP, column = blockIdx.x * WARP + lane;
  bool of_b = column < t;
  uint32_t p = of_b ? column : column - t;
  float sum = 0.f;
  for (uint32_t row = warp; row < gates && column < 2 * t; row += warps) {
    sum = fmaf(w_x[uint64_t(row) * c + (c - t) + p], of_time[uint64_t(row) * 2 * t + column], sum);
  }
  partial[warp][lane] = sum;
  __syncthreads();  // the sums of all warps have been written
  float* to = of_b ? db : dw;
  if (warp != 0 || column >= 2 * t || !to) return;
  for (uint32_t other = 1; other < warps; other++) sum += partial[other][lane];
  to[p] = sum;
}

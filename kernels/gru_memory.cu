// gru_memory: Memory of the distinct nodes after their mails: `s' = GRU({s | s_partner | e | Phi(t_mail - t_s)}, s)`
//
// shapes    n nodes, m of them with a mail; memory, mail [v, d], edge [e, f], w, b [1, t]; messages [m, c], c = 2 d + f + t
// grid      one block lists the mails; then a block of 256 a tile of 64 mails x 16 memory columns, all gates of them
// memory    reads m (2 d + f) words from all over the tables d / 16 times, mostly through L2; writes n d, messages and gates
// limiter   f32 arithmetic, 2 m d (3 c + d) operations
// backward  gates_grad, then one product for the weights, the biases and the time encoding
// source    TGN, equations 1 to 4; GRU: Cho et al. 2014 in PyTorch's form
#include "product.cuh"

constexpr uint32_t GATES = 4;        // r, z, n_x, n_h: the columns of a thread, so that it has all gates of its elements
constexpr uint32_t LIST_THREADS = 1024;
constexpr uint32_t LIST_EACH = 4;    // rows of a thread of the list: their loads are under way together
static_assert(GATES == EACH, "a thread sums the gates of one memory column");

__device__ __forceinline__ float sigmoid(float x) { return 1.f / (1.f + expf(-x)); }

// Times of all nodes and, in order, the rows with a mail: row, node, row of its features, gap.
extern "C" __global__ void __launch_bounds__(1024)
gru_memory_list(const uint32_t* distinct, const int64_t* memory_time, const uint32_t* mail_event, const int64_t* mail_time,
                int64_t* time, uint32_t* count, uint32_t* mailed, uint32_t* node, uint32_t* feature, float* dt, Rows rows,
                Gaps gaps, uint32_t by_node) {
  constexpr uint32_t WARPS = LIST_THREADS / WARP;
  static_assert(WARPS == WARP, "a lane for each warp's number of mails");
  __shared__ uint32_t mails[2][WARPS];  // of each warp; in turns, so that one barrier a round is enough
  uint32_t n = rows.live(), warp = threadIdx.x / WARP, lane = lane_id(), made = 0;
  for (uint32_t first = 0, turn = 0; first < n; first += LIST_THREADS * LIST_EACH, turn ^= 1) {
    uint32_t row0 = first + warp * WARP * LIST_EACH + lane;
    uint32_t v[LIST_EACH], event[LIST_EACH], with[LIST_EACH], own = 0;
    int64_t updated[LIST_EACH], sent[LIST_EACH];
#pragma unroll
    for (uint32_t q = 0; q < LIST_EACH; q++) v[q] = row0 + q * WARP < n ? distinct[row0 + q * WARP] : NONE;
#pragma unroll
    for (uint32_t q = 0; q < LIST_EACH; q++) {
      event[q] = NONE;
      if (v[q] != NONE) event[q] = mail_event[v[q]], updated[q] = memory_time[v[q]], sent[q] = mail_time[v[q]];
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
      if (v[q] != NONE) time[row0 + q * WARP] = event[q] == NONE ? updated[q] : sent[q];
      if (event[q] != NONE) {
        uint32_t k = at + uint32_t(__popc(with[q] & ((1u << lane) - 1)));
        mailed[k] = row0 + q * WARP, node[k] = v[q], feature[k] = by_node ? v[q] : event[q];
        dt[k] = gaps.seconds(updated[q], sent[q]);
      }
      at += uint32_t(__popc(with[q]));
    }
  }
  if (threadIdx.x == 0) *count = made;
}

// What messages are made of: {s | s_partner | e | Phi(dt)}.
struct Messages {
  const float *memory, *mail, *edge, *w, *b;
  uint32_t d, f, t;
  __device__ __forceinline__ uint32_t width() const { return 2 * d + f + t; }
  __device__ __forceinline__ float at(uint32_t node, uint32_t feature, float dt, uint32_t l) const {
    if (l < d) return memory[uint64_t(node) * d + l];
    if (l < 2 * d) return mail[uint64_t(node) * d + (l - d)];
    if (l < 2 * d + f) return edge[uint64_t(feature) * f + (l - 2 * d)];
    uint32_t p = l - 2 * d - f;
    return cosf(time_angle(dt, w[p], b[p]));
  }
};

// Tiles are numbered row by row of tiles. Column 4 j + g of the product is gate g of memory column j. `messages` and
// `gates` may be null.
extern "C" __global__ void __launch_bounds__(256, 2)
gru_memory(const uint32_t* distinct, const float* memory, const float* mail, const uint32_t* mail_event, const float* edge,
           const float* w, const float* b, const float* w_x, const float* w_h, const float* b_x, const float* b_h,
           const uint32_t* mailed, const uint32_t* node, const uint32_t* feature, const float* dt, float* out,
           float* messages, float* gates, Rows rows, Rows mails, uint32_t d, uint32_t f, uint32_t t) {
  __shared__ uint32_t tile_node[TILE], tile_feature[TILE];
  __shared__ float tile_dt[TILE];
  const Messages made = {memory, mail, edge, w, b, d, f, t};
  uint32_t n = rows.live(), m = mails.live(), c = made.width(), columns = GATES * d;
  uint32_t across = max(1u, (columns + TILE - 1) / TILE), tiles = (m + TILE - 1) / TILE * across;

  // What needs no product: rows without a mail keep their memory, and the backward gets its messages. Blocks without a
  // tile begin; there are many where few of the rows that there is room for are live.
  uint32_t warps = PRODUCT_THREADS / WARP, all = gridDim.x * warps;
  uint32_t first = (blockIdx.x + gridDim.x - tiles) % gridDim.x * warps + threadIdx.x / WARP;
  for (uint32_t i = first; i < n; i += all) {
    uint32_t v = distinct[i];
    if (mail_event[v] != NONE) continue;
    for (uint32_t j = lane_id(); j < d; j += WARP) out[uint64_t(i) * d + j] = memory[uint64_t(v) * d + j];
  }
  for (uint32_t k = first; messages && k < m; k += all) {
    uint32_t v = node[k], row = feature[k];
    float gap = dt[k];
    for (uint32_t l = lane_id(); l < c; l += WARP) messages[uint64_t(k) * c + l] = made.at(v, row, gap, l);
  }

  uint32_t row0 = blockIdx.x / across * TILE, column0 = blockIdx.x % across * TILE;
  if (row0 >= m || column0 >= columns) return;  // the whole block
  if (threadIdx.x < TILE && row0 + threadIdx.x < m) {
    uint32_t k = row0 + threadIdx.x;
    tile_node[threadIdx.x] = node[k], tile_feature[threadIdx.x] = feature[k], tile_dt[threadIdx.x] = dt[k];
  }
  __syncthreads();  // the rows of the tile are known

  auto input_weight = [=](uint32_t l, uint32_t column) {
    uint32_t j = column / GATES, gate = column % GATES;
    return gate < 3 ? w_x[uint64_t(gate * d + j) * c + l] : 0.f;
  };
  // The node's own memory is both message and state: r and z multiply it once.
  Sums sums = {};
  add_products<Along::Sum, Along::Sum>(
      sums, row0, m, column0, columns, 0, d,
      [=](uint32_t k, uint32_t l) { return memory[uint64_t(tile_node[k - row0]) * d + l]; },
      [=](uint32_t l, uint32_t column) {
        uint32_t j = column / GATES, gate = column % GATES;
        float h = gate == 2 ? 0.f : w_h[uint64_t(min(gate, 2u) * d + j) * d + l];
        return input_weight(l, column) + h;
      });
  add_products<Along::Sum, Along::Sum>(
      sums, row0, m, column0, columns, d, c,
      [=](uint32_t k, uint32_t l) {
        uint32_t r = k - row0;
        return made.at(tile_node[r], tile_feature[r], tile_dt[r], l);
      },
      input_weight);

  uint32_t j = (column0 + own_column()) / GATES;
  if (j >= d) return;
  float r_bias = b_x[j] + b_h[j], z_bias = b_x[d + j] + b_h[d + j], n_bias = b_x[2 * d + j], h_bias = b_h[2 * d + j];
#pragma unroll
  for (uint32_t i = 0; i < EACH; i++) {
    uint32_t own = own_row() + i, k = row0 + own;
    if (k >= m) break;
    float s = memory[uint64_t(tile_node[own]) * d + j];
    float r = sigmoid(sums.at[i][0] + r_bias);
    float z = sigmoid(sums.at[i][1] + z_bias);
    float h = sums.at[i][3] + h_bias;
    float candidate = tanhf(fmaf(r, h, sums.at[i][2] + n_bias));
    out[uint64_t(mailed[k]) * d + j] = fmaf(1.f - z, candidate, z * s);
    if (gates) {
      float* to = gates + uint64_t(k) * GATES * d + j;
      to[0] = r, to[d] = z, to[2 * d] = candidate, to[3 * d] = h;
    }
  }
}

// Gradients before the gates, dpre [m, 4 d]: r, z, n_x, n_h.
extern "C" __global__ void __launch_bounds__(256, 2)
gru_memory_gates_grad(const uint32_t* mailed, const float* messages, const float* gates, const float* dout, float* dpre,
                      Rows mails, uint32_t d, uint32_t c) {
  uint32_t m = mails.live();
  for (uint32_t k = warp_row(); k < m; k += warp_rows()) {
    const float *gate = gates + uint64_t(k) * GATES * d, *dy = dout + uint64_t(mailed[k]) * d;
    const float* own = messages + uint64_t(k) * c;  // a message begins with the node's own memory
    float* to = dpre + uint64_t(k) * GATES * d;
    for (uint32_t j = lane_id(); j < d; j += WARP) {
      float r = gate[j], z = gate[d + j], n = gate[2 * d + j], h = gate[3 * d + j];
      float dn = dy[j] * (1.f - z) * (1.f - n * n);
      to[j] = dn * h * r * (1.f - r);
      to[d + j] = dy[j] * (own[j] - n) * z * (1.f - z);
      to[2 * d + j] = dn;
      to[3 * d + j] = dn * r;
    }
  }
}

// dpre^T {message | -sin(angle) | -sin(angle) dt | 1}, as parts. The time encoding's gradients are sums over all of dpre
// and of W_x; summed over the rows first they are more columns of this product, and need no dPhi.
extern "C" __global__ void __launch_bounds__(256, 2)
gru_memory_weight_grad(const float* dpre, const float* messages, const float* dt, const float* w, const float* b,
                       float* parts, Rows mails, uint32_t d, uint32_t c, uint32_t t) {
  uint32_t k = c + 2 * t, column0 = blockIdx.y * TILE;
  // n_h has no weights but those of the node's own memory.
  if (blockIdx.x * TILE >= 3 * d && column0 >= d && column0 + TILE <= k) return;  // the whole block
  weight_grad_parts(
      mails.live(), GATES * d, k, [=](uint32_t i, uint32_t j) { return dpre[uint64_t(i) * GATES * d + j]; },
      [=](uint32_t i, uint32_t l) {
        if (l < c) return messages[uint64_t(i) * c + l];
        uint32_t p = l - c < t ? l - c : l - c - t;
        float slope = -sinf(time_angle(dt[i], w[p], b[p]));
        return l - c < t ? slope : slope * dt[i];
      },
      parts);
}

// Adds the parts; the sums of the time columns stay, in the first part.
extern "C" __global__ void __launch_bounds__(256, 2)
gru_memory_weight_grad_sum(float* made, uint32_t parts, float* dw_x, float* dw_h, float* db_x, float* db_h, uint32_t d,
                           uint32_t c, uint32_t t) {
  uint32_t k = c + 2 * t;
  uint64_t size = uint64_t(GATES * d) * (k + 1);
  for (uint64_t i = thread_item(); i < size; i += thread_items()) {
    uint32_t row = uint32_t(i / (k + 1)), l = uint32_t(i % (k + 1));
    bool of_x = row < 3 * d, of_h = row < 2 * d || row >= 3 * d;
    if (!of_x && l >= d && l < k) continue;  // nobody made them
    float sum = sum_of_parts(made, parts, size, i);
    uint32_t row_h = of_x ? row : row - d;
    if (l == k) {
      if (of_x && db_x) db_x[row] = sum;
      if (of_h && db_h) db_h[row_h] = sum;
    } else if (l >= c) {
      made[i] = sum;
    } else {
      if (of_x && dw_x) dw_x[uint64_t(row) * c + l] = sum;
      if (of_h && l < d && dw_h) dw_h[uint64_t(row_h) * d + l] = sum;
    }
  }
}

// dw and db of the time encoding from its columns of the product: 32 columns a block, its warps share their rows.
extern "C" __global__ void __launch_bounds__(1024)
gru_memory_time_grad(const float* made, const float* w_x, float* dw, float* db, uint32_t d, uint32_t c, uint32_t t) {
  __shared__ float partial[1024 / WARP][WARP];
  uint32_t lane = lane_id(), warp = threadIdx.x / WARP, warps = blockDim.x / WARP, column = blockIdx.x * WARP + lane;
  bool of_b = column < t;
  uint32_t p = of_b ? column : column - t;
  float sum = 0.f;
  for (uint32_t row = warp; row < 3 * d && column < 2 * t; row += warps) {
    sum = fmaf(w_x[uint64_t(row) * c + (c - t) + p], made[uint64_t(row) * (c + 2 * t + 1) + c + column], sum);
  }
  partial[warp][lane] = sum;
  __syncthreads();  // the sums of all warps are there
  float* to = of_b ? db : dw;
  if (warp != 0 || column >= 2 * t || !to) return;
  for (uint32_t other = 1; other < warps; other++) sum += partial[other][lane];
  to[p] = sum;
}

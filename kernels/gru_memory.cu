// gru_memory: memory of the unique nodes after their mails, `s' = GRU({s | s_partner | e | Phi(t_mail - t_s)}, s)`
//
// shapes    see memory_update.cuh; gates [m, 4 d]: r, z, n, n_h
// grid      one block of 256 per tile of 64 mails x 16 memory columns, with all gates of each column; at most about
//           264 blocks, each of which goes on to further rows of tiles
// memory    reads m c words of messages d / 16 times and 4 d c of weights m / 64 times, mostly from L2; writes n d words
//           and the gates
// limiter   f32 arithmetic, 8 m d c operations, of which 2 m d (c - d) multiply zeros
// backward  gru_memory_gates_grad, then memory_update.cu
// source    TGN, equations 1 to 4; GRU: Cho et al. 2014 in PyTorch's form
#include "memory_update.cuh"

constexpr uint32_t SUMS = 4;  // r, z, n_x, n_h: the columns of a thread, which thus has all gates of its elements
static_assert(SUMS == EACH, "a thread sums the gates of one memory column");

// Column 4 j + g of the product is sum g of memory column j.
extern "C" __global__ void __launch_bounds__(256, 2)
gru_memory(MemoryUpdate u) {
  after_previous_kernel();
  uint32_t d = u.d, c = u.width();
  update_memory(u, SUMS * d, [=](const Sums& sums, Tile tile) {
    uint32_t j = (tile.column0 + own_column()) / SUMS;
    if (j >= d) return;
    const float *b_x = u.b_x, *b_h = u.b_h;
    float r_bias = b_x[j] + b_h[j], z_bias = b_x[d + j] + b_h[d + j], n_bias = b_x[2 * d + j], h_bias = b_h[2 * d + j];
    // All loads come before all stores, so that they wait for memory once.
    float state[EACH];
    uint32_t to_row[EACH];
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++) {
      uint32_t k = tile.row0 + own_row() + i;  // a message begins with the node's own memory
      if (k < tile.rows) state[i] = u.messages[uint64_t(k) * c + j], to_row[i] = u.mailed[k];
    }
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++) {
      uint32_t k = tile.row0 + own_row() + i;
      if (k >= tile.rows) break;
      float r = sigmoid(sums.at[i][0] + r_bias);
      float z = sigmoid(sums.at[i][1] + z_bias);
      float h = sums.at[i][3] + h_bias;
      float candidate = tanhf(fmaf(r, h, sums.at[i][2] + n_bias));
      u.out[uint64_t(to_row[i]) * d + j] = fmaf(1.f - z, candidate, z * state[i]);
      if (u.gates) {
        float* to = u.gates + uint64_t(k) * SUMS * d + j;
        to[0] = r, to[d] = z, to[2 * d] = candidate, to[3 * d] = h;
      }
    }
  });
}

// The gradients of V columns of a row, from column j on; `dy` may be null, for zeros.
template <int V>
__device__ __forceinline__ void gates_grad(const float* gate, const float* own, const float* dy, float* to, uint32_t d,
                                           uint32_t j) {
  float r[V], z[V], n[V], h[V], s[V], up[V] = {};
  load(gate + j, r), load(gate + d + j, z), load(gate + 2 * d + j, n), load(gate + 3 * d + j, h), load(own + j, s);
  if (dy) load(dy + j, up);
  float dr[V], dz[V], dn[V], dh[V];
#pragma unroll
  for (int i = 0; i < V; i++) {
    dn[i] = up[i] * (1.f - z[i]) * (1.f - n[i] * n[i]);
    dr[i] = dn[i] * h[i] * r[i] * (1.f - r[i]);
    dz[i] = up[i] * (s[i] - n[i]) * z[i] * (1.f - z[i]);
    dh[i] = dn[i] * r[i];
  }
  store(to + j, dr), store(to + d + j, dz), store(to + 2 * d + j, dn), store(to + 3 * d + j, dh);
}

// Gradients of the pre-activations, dpre [m, 4 d]: r, z, n_x, n_h.
extern "C" __global__ void __launch_bounds__(256, 2)
gru_memory_gates_grad(const uint32_t* mailed, const float* messages, const float* gates, const float* dout, float* dpre,
                      Rows mails, Rows rows, uint32_t d, uint32_t c, Status s) {
  after_previous_kernel();
  uint32_t m = mails.live(), n = rows.live();
  bool four = by_four(gates, d) && by_four(messages, c) && by_four(dout, d) && by_four(dpre, d);
  for (uint32_t k = warp_row(); k < m; k += warp_rows()) {
    uint32_t row = s.row_of(k, mailed[k], n);
    const float *gate = gates + uint64_t(k) * SUMS * d, *dy = row == NONE ? nullptr : dout + uint64_t(row) * d;
    const float* own = messages + uint64_t(k) * c;  // a message begins with the node's own memory
    float* to = dpre + uint64_t(k) * SUMS * d;
    if (four) {
      for (uint32_t j = 4 * lane_id(); j < d; j += 4 * WARP) gates_grad<4>(gate, own, dy, to, d, j);
    } else {
      for (uint32_t j = lane_id(); j < d; j += WARP) gates_grad<1>(gate, own, dy, to, d, j);
    }
  }
}

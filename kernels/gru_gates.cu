// gru_gates: z = sig(pre_z), y = sig(pre_r) h: the update gate of a GRU and its state after the reset; and the gradient
//
// shapes    pre, dpre [n, 2 d] (r, z), h, z, y and their gradients [n, d] f32; h and y may be null
// grid      one thread per column of a row, or per four columns if aligned; grid-stride loop
// memory    reads 3 n d words, writes 2 n d; gradient: reads 5 n d, writes 3 n d; coalesced
// limiter   memory
// backward  recomputes r from pre
// source    Cho et al. 2014
#include "common.cuh"

template <int V>
__device__ __forceinline__ void gates(const float* pre, const float* h, float* z, float* y, uint32_t n, uint32_t d) {
  uint32_t each = d / V;
  for (uint64_t item = thread_item(); item < uint64_t(n) * each; item += thread_items()) {
    uint64_t row = item / each, column = item % each * V, at = row * d + column;
    float of[V], state[V];
    if (z) {
      load(pre + 2 * row * d + d + column, of);
#pragma unroll
      for (int l = 0; l < V; l++) of[l] = sigmoid(of[l]);
      store(z + at, of);
    }
    if (y) {
      load(pre + 2 * row * d + column, of), load(h + at, state);
#pragma unroll
      for (int l = 0; l < V; l++) of[l] = sigmoid(of[l]) * state[l];
      store(y + at, of);
    }
  }
}

extern "C" __global__ void __launch_bounds__(256, FULL)
gru_gates(const float* pre, const float* h, float* z, float* y, Rows rows, uint32_t d) {
  after_previous_kernel();
  bool aligned = by_four(pre, d) && by_four(h, d) && by_four(z, d) && by_four(y, d);
  if (aligned) gates<4>(pre, h, z, y, rows.live(), d);
  else gates<1>(pre, h, z, y, rows.live(), d);
}

template <int V>
__device__ __forceinline__ void gradients(const float* pre, const float* h, const float* z, const float* dz, const float* dy,
                                          float* dpre, float* dh, uint32_t n, uint32_t d) {
  uint32_t each = d / V;
  for (uint64_t item = thread_item(); item < uint64_t(n) * each; item += thread_items()) {
    uint64_t row = item / each, column = item % each * V, at = row * d + column;
    float r[V], state[V], up[V], of[V];
    load(pre + 2 * row * d + column, r), load_if(h, at, state), load_if(dy, at, up);
#pragma unroll
    for (int l = 0; l < V; l++) {
      r[l] = sigmoid(r[l]);
      of[l] = up[l] * state[l] * r[l] * (1.f - r[l]);
      up[l] *= r[l];
    }
    if (dpre) store(dpre + 2 * row * d + column, of);
    if (dh) store(dh + at, up);
    if (!dpre) continue;
    load(z + at, of), load_if(dz, at, up);
#pragma unroll
    for (int l = 0; l < V; l++) of[l] = up[l] * of[l] * (1.f - of[l]);
    store(dpre + 2 * row * d + d + column, of);
  }
}

// dz and dy may be null, meaning zeros; dpre and dh may be null.
extern "C" __global__ void __launch_bounds__(256, 6)
gru_gates_grad(const float* pre, const float* h, const float* z, const float* dz, const float* dy, float* dpre, float* dh,
               Rows rows, uint32_t d) {
  after_previous_kernel();
  bool aligned = by_four(pre, d) && by_four(h, d) && by_four(z, d) && by_four(dz, d) && by_four(dy, d) && by_four(dpre, d) &&
                 by_four(dh, d);
  if (aligned) gradients<4>(pre, h, z, dz, dy, dpre, dh, rows.live(), d);
  else gradients<1>(pre, h, z, dz, dy, dpre, dh, rows.live(), d);
}

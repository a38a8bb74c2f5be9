// gru_state: h' = z h + (1 - z) tanh(pre), the new state of a GRU; and its gradient
//
// shapes    z, pre, h, h' and their gradients [n, d] f32, present [n] u32; h and present may be null
// grid      one thread per column of a row, or per four columns if aligned; grid-stride loop
// memory    reads 3 n d words, writes n d; gradient: reads 4 n d, writes 3 n d; coalesced
// limiter   memory
// backward  recomputes tanh(pre)
// source    Cho et al. 2014
#include "common.cuh"

template <int V>
__device__ __forceinline__ void states(const float* z, const float* pre, const float* h, const uint32_t* present, float* out,
                                       uint32_t n, uint32_t d) {
  uint32_t each = d / V;
  for (uint64_t item = thread_item(); item < uint64_t(n) * each; item += thread_items()) {
    uint64_t row = item / each, at = row * d + item % each * V;
    float stays[V], of[V], state[V];
    load_if(h, at, state);
    if (!present || present[row] != NONE) {
      load(z + at, stays), load(pre + at, of);
#pragma unroll
      for (int l = 0; l < V; l++) state[l] = fmaf(1.f - stays[l], tanhf(of[l]), stays[l] * state[l]);
    }
    store(out + at, state);
  }
}

extern "C" __global__ void __launch_bounds__(256, FULL)
gru_state(const float* z, const float* pre, const float* h, const uint32_t* present, float* out, Rows rows, uint32_t d) {
  after_previous_kernel();
  if (!out) return;
  bool aligned = by_four(z, d) && by_four(pre, d) && by_four(h, d) && by_four(out, d);
  if (aligned) states<4>(z, pre, h, present, out, rows.live(), d);
  else states<1>(z, pre, h, present, out, rows.live(), d);
}

template <int V>
__device__ __forceinline__ void gradients(const float* z, const float* pre, const float* h, const uint32_t* present,
                                          const float* dout, float* dz, float* dpre, float* dh, uint32_t n, uint32_t d) {
  uint32_t each = d / V;
  for (uint64_t item = thread_item(); item < uint64_t(n) * each; item += thread_items()) {
    uint64_t row = item / each, at = row * d + item % each * V;
    float up[V], stays[V] = {}, of[V] = {}, state[V];
    load(dout + at, up);
    if (!present || present[row] != NONE) {
      load(z + at, stays), load(pre + at, of), load_if(h, at, state);
#pragma unroll
      for (int l = 0; l < V; l++) {
        float z_l = stays[l], c = tanhf(of[l]);
        stays[l] = up[l] * (state[l] - c);
        of[l] = up[l] * (1.f - z_l) * (1.f - c * c);
        up[l] *= z_l;
      }
    }
    if (dz) store(dz + at, stays);
    if (dpre) store(dpre + at, of);
    if (dh) store(dh + at, up);
  }
}

// dz, dpre and dh may be null.
extern "C" __global__ void __launch_bounds__(256, 6)
gru_state_grad(const float* z, const float* pre, const float* h, const uint32_t* present, const float* dout, float* dz,
               float* dpre, float* dh, Rows rows, uint32_t d) {
  after_previous_kernel();
  bool aligned = by_four(z, d) && by_four(pre, d) && by_four(h, d) && by_four(dout, d) && by_four(dz, d) && by_four(dpre, d) &&
                 by_four(dh, d);
  if (aligned) gradients<4>(z, pre, h, present, dout, dz, dpre, dh, rows.live(), d);
  else gradients<1>(z, pre, h, present, dout, dz, dpre, dh, rows.live(), d);
}

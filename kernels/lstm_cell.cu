// lstm_cell: c' = sig(f) c + sig(i) tanh(g), h' = sig(o) tanh(c'); and its gradient
//
// shapes    pre, dpre [n, 4 d] (i, f, g, o), h, c, h', c' and their gradients [n, d] f32, present [n] u32; h, c and
//           present may be null
// grid      one thread per column of a row, or per four columns if aligned; grid-stride loop
// memory    reads 5 n d words, writes 2 n d; gradient: reads 7 n d, writes 5 n d; coalesced
// limiter   memory
// backward  recomputes the gates from pre, and c' from the gates
// source    Hochreiter and Schmidhuber 1997, Gers et al. 2000; PyTorch's order of gates
#include "common.cuh"

// i, f, g, o of V columns; `pre` points to the first column of i.
template <int V> struct Gates {
  float i[V], f[V], g[V], o[V];
  __device__ __forceinline__ Gates(const float* pre, uint32_t d) {
    load(pre, i), load(pre + d, f), load(pre + 2 * d, g), load(pre + 3 * d, o);
#pragma unroll
    for (int l = 0; l < V; l++) i[l] = sigmoid(i[l]), f[l] = sigmoid(f[l]), g[l] = tanhf(g[l]), o[l] = sigmoid(o[l]);
  }
};

template <int V>
__device__ __forceinline__ void cells(const float* pre, const float* h, const float* c, const uint32_t* present, float* h_out,
                                      float* c_out, uint32_t n, uint32_t d) {
  uint32_t each = d / V;
  for (uint64_t item = thread_item(); item < uint64_t(n) * each; item += thread_items()) {
    uint64_t row = item / each, column = item % each * V, at = row * d + column;
    float hidden[V], cell[V];
    load_if(c, at, cell);
    if (present && present[row] == NONE) {
      load_if(h, at, hidden);
    } else {
      Gates<V> of(pre + 4 * row * d + column, d);
#pragma unroll
      for (int l = 0; l < V; l++) {
        cell[l] = fmaf(of.f[l], cell[l], of.i[l] * of.g[l]);
        hidden[l] = of.o[l] * tanhf(cell[l]);
      }
    }
    if (h_out) store(h_out + at, hidden);
    if (c_out) store(c_out + at, cell);
  }
}

extern "C" __global__ void __launch_bounds__(256, 5)
lstm_cell(const float* pre, const float* h, const float* c, const uint32_t* present, float* h_out, float* c_out, Rows rows,
          uint32_t d) {
  after_previous_kernel();
  bool aligned = by_four(pre, d) && by_four(h, d) && by_four(c, d) && by_four(h_out, d) && by_four(c_out, d);
  if (aligned) cells<4>(pre, h, c, present, h_out, c_out, rows.live(), d);
  else cells<1>(pre, h, c, present, h_out, c_out, rows.live(), d);
}

struct CellGrad {
  const float *pre, *c, *dh_out, *dc_out;
  const uint32_t* present;
  float *dpre, *dc, *dh;
  uint32_t n, d;
};

template <int V> __device__ __forceinline__ void gradients(const CellGrad& u) {
  uint32_t d = u.d, each = d / V;
  for (uint64_t item = thread_item(); item < uint64_t(u.n) * each; item += thread_items()) {
    uint64_t row = item / each, column = item % each * V, at = row * d + column;
    float dhidden[V], dcell[V], own[V], zeros[V] = {};
    load_if(u.dh_out, at, dhidden), load_if(u.dc_out, at, dcell);
    float* to = u.dpre ? u.dpre + 4 * row * d + column : nullptr;
    if (u.present && u.present[row] == NONE) {
      for (int k = 0; to && k < 4; k++) store(to + k * d, zeros);
      if (u.dc) store(u.dc + at, dcell);
      if (u.dh) store(u.dh + at, dhidden);
      continue;
    }
    Gates<V> of(u.pre + 4 * row * d + column, d);
    load_if(u.c, at, own);
#pragma unroll
    for (int l = 0; l < V; l++) {
      float i = of.i[l], f = of.f[l], g = of.g[l], o = of.o[l], t = tanhf(fmaf(f, own[l], i * g));
      float ds = fmaf(dhidden[l] * o, 1.f - t * t, dcell[l]);
      of.i[l] = ds * g * i * (1.f - i);
      of.f[l] = ds * own[l] * f * (1.f - f);
      of.g[l] = ds * i * (1.f - g * g);
      of.o[l] = dhidden[l] * t * o * (1.f - o);
      dcell[l] = ds * f;
    }
    if (to) store(to, of.i), store(to + d, of.f), store(to + 2 * d, of.g), store(to + 3 * d, of.o);
    if (u.dc) store(u.dc + at, dcell);
    if (u.dh) store(u.dh + at, zeros);
  }
}

// dh_out and dc_out may be null, meaning zeros; dpre, dc and dh may be null.
extern "C" __global__ void __launch_bounds__(256, 4)
lstm_cell_grad(const float* pre, const float* c, const uint32_t* present, const float* dh_out, const float* dc_out, float* dpre,
               float* dc, float* dh, Rows rows, uint32_t d) {
  after_previous_kernel();
  CellGrad u{pre, c, dh_out, dc_out, present, dpre, dc, dh, rows.live(), d};
  bool aligned = by_four(pre, d) && by_four(c, d) && by_four(dh_out, d) && by_four(dc_out, d) && by_four(dpre, d) &&
                 by_four(dc, d) && by_four(dh, d);
  if (aligned) gradients<4>(u);
  else gradients<1>(u);
}

// ungroup_norm: y[i] = norm(z[i]), z[i] = drop(act(own[root[i]] + x[position[i]])), where the second term is present
// only if root i has a position; norm is that of layer_norm.cu
//
// shapes    x [m, d] f32, position, root [n] u32, own [q, d] f32, gain, bias [1, d], y, z [n, d], stats [n, 2]
// grid      one warp per row, lanes over its columns (16 bytes per lane if aligned); gradient: one block per range of
//           rows
// memory    reads 2 n (d + 1) words, writes 2 n d; gradient: reads 2 n d, writes (n + m) d; coalesced; the first columns
//           stay in registers, further passes over others hit L1
// limiter   memory
// backward  dz row by row, and dx[position[i]] = dz[i]; down = scatter_add_rows(dz, root); dgain, dbias as in
//           layer_norm
// source    -
#include "layer_norm.cuh"

template <int V>
__device__ __forceinline__ void sum_rows(const float* x, const uint32_t* position, const float* own, const uint32_t* root,
                                         const float* gain, const float* bias, float* y, float* z, float* stats, uint32_t n,
                                         uint32_t m, uint32_t q, uint32_t d, float eps, const Epilogue& epilogue, Status s) {
  for (uint32_t i = warp_row(); i < n; i += warp_rows()) {
    uint32_t o = root[i], p = position[i];
    o = s.row_of(i, o, q), p = s.row_of(i, p, m);
    uint64_t at = uint64_t(i) * d;
    float first[V] = {};
    for (uint32_t c = lane_id() * V; c < d; c += WARP * V) {
      float sum[V], more[V];
      load_if(o == NONE ? nullptr : own, uint64_t(o) * d + c, sum), load_if(p == NONE ? nullptr : x, uint64_t(p) * d + c, more);
      uint32_t kept = epilogue.drop.kept(at + c);
#pragma unroll
      for (int l = 0; l < V; l++) sum[l] = epilogue.of(sum[l] + more[l], kept, uint32_t(l));
      store(z + at + c, sum);
#pragma unroll
      for (int l = 0; l < V; l++) first[l] = c < WARP * V ? sum[l] : first[l];
    }
    normalise_row<RowLanes<V>>(z + at, first, gain, bias, y + at, stats + 2 * uint64_t(i), d, eps);
  }
}

extern "C" __global__ void __launch_bounds__(256, 3)
ungroup_norm(const float* x, const uint32_t* position, const float* own, const uint32_t* root, const float* gain,
             const float* bias, float* y, float* z, float* stats, Rows rows, Rows grouped, Rows roots, uint32_t d, float eps,
             Epilogue epilogue, Status s) {
  after_previous_kernel();
  uint32_t n = rows.live(), m = grouped.live(), q = roots.live();
  bool aligned = by_four(x, d) && by_four(own, d) && by_four(y, d) && by_four(z, d) && by_four(gain, d) && by_four(bias, d);
  if (aligned) sum_rows<4>(x, position, own, root, gain, bias, y, z, stats, n, m, q, d, eps, epilogue, s);
  else sum_rows<1>(x, position, own, root, gain, bias, y, z, stats, n, m, q, d, eps, epilogue, s);
}

template <int V>
__device__ __forceinline__ void gradient(const float* z, const float* gain, const float* stats, const float* dy,
                                         const uint32_t* position, float* dz, float* dx, BlockRows rows, uint32_t m,
                                         uint32_t d, const Epilogue& epilogue) {
  for (uint32_t i = rows.first + threadIdx.x / WARP; i < rows.until; i += blockDim.x / WARP) {
    uint64_t at = uint64_t(i) * d;
    uint32_t p = position[i];
    float* to = dx && p < m ? dx + uint64_t(p) * d : nullptr;
    norm_gradient_row<RowLanes<V>>(z + at, gain, dy + at, stats[2 * uint64_t(i)], stats[2 * uint64_t(i) + 1], d,
                         [=](uint32_t c, const float(&value)[V], float(&grad)[V]) {
                           uint32_t kept = epilogue.activation == 1 ? 0 : epilogue.drop.kept(at + c);
#pragma unroll
                           for (int l = 0; l < V; l++) grad[l] = epilogue.grad(value[l], grad[l], kept, uint32_t(l));
                           store(dz + at + c, grad);
                           if (to) store(to + c, grad);
                         });
  }
}

// `sums` holds one row {dgain | dbias} for each block with live rows; dx, dgain and dbias may be null.
extern "C" __global__ void __launch_bounds__(256, 4)
ungroup_norm_grad(const float* z, const float* gain, const float* stats, const float* dy, const uint32_t* position, float* dz,
                  float* dx, float* sums, uint32_t* ticket, float* dgain, float* dbias, Rows all, Rows grouped, uint32_t d,
                  uint32_t block_rows, Epilogue epilogue) {
  after_previous_kernel();
  BlockRows rows(all.live(), block_rows);
  if (blockIdx.x >= rows.blocks) return;  // the whole block
  uint32_t m = grouped.live();
  bool aligned = by_four(z, d) && by_four(dz, d) && by_four(dx, d) && by_four(gain, d) && by_four(dy, d);
  if (aligned) gradient<4>(z, gain, stats, dy, position, dz, dx, rows, m, d, epilogue);
  else gradient<1>(z, gain, stats, dy, position, dz, dx, rows, m, d, epilogue);
  norm_weight_grads(z, stats, dy, rows, sums, ticket, dgain, dbias, d);
}

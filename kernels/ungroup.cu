// ungroup: y[i] = drop(act(own[root[i]] + x[position[i]])), the second term only where root i has a position
//
// shapes    x [m, d] f32, position, root [n] u32, own [q, d] f32, y [n, d]
// grid      a warp a row, lanes over the row's words (16 bytes a lane where rows are aligned)
// memory    reads 2 n (d + 1) words, writes n d; coalesced
// limiter   memory
// backward  dx = dz[order], down = scatter_add_rows(dz, root), with dz by activation_grad (linear.cu)
// source    -
#include "common.cuh"

template <class T>
__device__ __forceinline__ void sum_rows(const T* x, const uint32_t* position, const T* own, const uint32_t* root, T* y, uint32_t n, uint32_t m,
                         uint32_t q, uint32_t d, const Epilogue& epilogue, Status s) {
  for (uint32_t i = warp_row(); i < n; i += warp_rows()) {
    uint32_t o = s.row_of(i, root[i], q), p = s.row_of(i, position[i], m);
    for (uint32_t c = lane_id(); c < d; c += WARP) {
      T z = o == NONE ? T{} : own[uint64_t(o) * d + c];
      if (p != NONE) add_to(z, x[uint64_t(p) * d + c]);
      uint64_t at = uint64_t(i) * d + c;
      y[at] = epilogue.at(at * (sizeof(T) / sizeof(float)), z);
    }
  }
}

extern "C" __global__ void __launch_bounds__(256, 5)
ungroup(const float* x, const uint32_t* position, const float* own, const uint32_t* root, float* y, Rows rows, Rows grouped,
        Rows roots, uint32_t d, Epilogue epilogue, Status s) {
  if (by_four(x, d) && by_four(own, d) && by_four(y, d)) {
    sum_rows(reinterpret_cast<const float4*>(x), position, reinterpret_cast<const float4*>(own), root,
             reinterpret_cast<float4*>(y), rows.live(), grouped.live(), roots.live(), d / 4, epilogue, s);
  } else {
    sum_rows(x, position, own, root, y, rows.live(), grouped.live(), roots.live(), d, epilogue, s);
  }
}

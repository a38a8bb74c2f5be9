// dropout: y[i] = x[i] keep[i] / (1 - p)
//
// shapes    x, y [n, d] f32, now [1, 2] u32
// grid      a thread for the eight elements of a draw, grid-stride
// memory    reads n d words, writes n d; coalesced, 16 bytes at a time
// limiter   memory
// backward  the same on dy
// source    Srivastava et al. 2014
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(256, 5) dropout(const float* x, float* y, Rows rows, uint32_t d, Drop drop) {
  uint64_t n = uint64_t(rows.live()) * d;
  bool aligned = by_four(x, 4) && by_four(y, 4);
  for (uint64_t g = thread_item(); g < (n + 7) / 8; g += thread_items()) {
    uint4 draw = drop.draw(g);
    if (aligned && 8 * g + 8 <= n) {
      float v[2][4];
#pragma unroll
      for (uint32_t i = 0; i < 2; i++) load(x + 8 * g + 4 * i, v[i]);
#pragma unroll
      for (uint32_t i = 0; i < 8; i++) v[i / 4][i % 4] *= drop.factor(draw, i);
#pragma unroll
      for (uint32_t i = 0; i < 2; i++) store(y + 8 * g + 4 * i, v[i]);
    } else {
      for (uint64_t i = 8 * g; i < n && i < 8 * g + 8; i++) y[i] = x[i] * drop.factor(draw, uint32_t(i % 8));
    }
  }
}

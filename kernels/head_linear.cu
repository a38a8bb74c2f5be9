// head_linear: y_h = x_h W_h (up), y_h = x_h W_h^T + scale_h b_h (down), and the gradients of W, b and scale
//
// shapes    short [n, h p] f32, long [n, h c], W [h p, c], b [1, h p], scale [n, h]
// grid      a block of 256 a tile of 64 x 64 (product.cuh), heads along z; weight gradients: heads times parts along z;
//           head_bias_grad: a block of 256 a part, a warp a row and head, then a thread a column
// memory    reads n h p c / 64 words of each operand through L2, writes n h c or n h p; dy of head_bias_grad once
// limiter   f32 arithmetic, 2 n h p c operations; head_bias_grad: latency
// backward  up and down are each other's; dW_h = short_h^T long_h, dscale_h = b_h . dy_h, db_h = sum_n scale_h dy_h
// source    docs/attention.md
#include "product.cuh"

extern "C" __global__ void __launch_bounds__(256, 2)
head_linear_up(const float* x, const float* w, float* y, Rows rows, uint32_t heads, uint32_t p, uint32_t c,
               uint32_t precision) {
  uint32_t h = blockIdx.z;
  product<Along::Sum, Along::Edge>(
      precision, rows.live(), c, 0, p, [=](uint32_t i, uint32_t l) { return x[(uint64_t(i) * heads + h) * p + l]; },
      [=](uint32_t l, uint32_t j) { return w[(uint64_t(h) * p + l) * c + j]; },
      [=](uint32_t i, uint32_t j, float sum) { y[(uint64_t(i) * heads + h) * c + j] = sum; });
}

extern "C" __global__ void __launch_bounds__(256, 2)
head_linear_down(const float* x, const float* w, const float* b, const float* scale, float* y, Rows rows, uint32_t heads,
                 uint32_t p, uint32_t c, uint32_t precision) {
  uint32_t h = blockIdx.z;
  product<Along::Sum, Along::Sum>(
      precision, rows.live(), p, 0, c, [=](uint32_t i, uint32_t l) { return x[(uint64_t(i) * heads + h) * c + l]; },
      [=](uint32_t l, uint32_t j) { return w[(uint64_t(h) * p + j) * c + l]; },
      [=](uint32_t i, uint32_t j, float sum) {
        uint64_t row = uint64_t(i) * heads + h;
        y[row * p + j] = b ? sum + b[uint64_t(h) * p + j] * scale[row] : sum;
      });
}

extern "C" __global__ void __launch_bounds__(256, 2)
head_weight_grad(const float* dshort, const float* dlong, float* made, uint32_t* tickets, float* dw, Rows rows,
                 uint32_t heads, uint32_t p, uint32_t c, uint32_t parts, uint32_t precision) {
  uint32_t h = blockIdx.z / parts;
  product_over_rows(
      precision, p, c, rows.live(), parts, {made, tickets},
      [=](uint32_t l, uint32_t i) { return dshort[(uint64_t(i) * heads + h) * p + l]; },
      [=](uint32_t i, uint32_t j) { return dlong[(uint64_t(i) * heads + h) * c + j]; },
      [=](uint32_t l, uint32_t j, float sum) { dw[(uint64_t(h) * p + l) * c + j] = sum; });
}

// Either gradient may be null.
extern "C" __global__ void __launch_bounds__(256, 2)
head_bias_grad(const float* b, const float* scale, const float* dy, float* made, uint32_t* ticket, float* db, float* dscale,
               Rows rows, uint32_t heads, uint32_t p) {
  Part part(gridDim.z);
  uint32_t n = rows.live(), first = part.first(n), last = part.last(n), m = heads * p;
  uint64_t end = dscale ? uint64_t(last) * heads : 0;
  for (uint64_t row = uint64_t(first) * heads + threadIdx.x / WARP; row < end; row += blockDim.x / WARP) {
    const float* bias = b + row % heads * p;
    float sum = 0.f;
    for (uint32_t j = lane_id(); j < p; j += WARP) sum = fmaf(bias[j], dy[row * p + j], sum);
    sum = warp_sum(sum);
    if (lane_id() == 0) dscale[row] = sum;
  }
  if (!db) return;  // the whole grid
  for (uint32_t j = threadIdx.x; j < m; j += blockDim.x) {
    uint32_t h = j / p;
    float sum = 0.f;
    for (uint32_t i = first; i < last; i++) sum = fmaf(scale[uint64_t(i) * heads + h], dy[uint64_t(i) * m + j], sum);
    made[uint64_t(part.at) * m + j] = sum;
  }
  if (!comes_last(ticket, part.of)) return;
  for (uint32_t j = threadIdx.x; j < m; j += blockDim.x) db[j] = sum_of_parts(made, part.of, m, j);
}

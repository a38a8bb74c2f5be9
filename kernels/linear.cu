// linear: y = act(x w^T + b + residual), and its gradients
//
// shapes    x [n, k] f32, w [m, k], b [1, m], residual and y [n, m]
// grid      a block of 256 a tile of 64 x 64 (product.cuh), rows along x; weight gradients: parts of the rows along z
// memory    reads n k m / 64 words of each operand through L2, writes n m
// limiter   f32 arithmetic, 2 n k m operations
// backward  activation_grad, then dx = dz w, dw = dz^T x, db = column sums of dz
// source    -
#include "product.cuh"

extern "C" __global__ void __launch_bounds__(256, 2)
linear(const float* x, const float* w, const float* b, const float* residual, float* y, Rows rows, uint32_t k, uint32_t m,
       uint32_t activation, float slope, uint32_t precision) {
  product<Along::Sum, Along::Sum>(
      precision, rows.live(), m, 0, k, [=](uint32_t i, uint32_t l) { return x[uint64_t(i) * k + l]; },
      [=](uint32_t l, uint32_t j) { return w[uint64_t(j) * k + l]; },
      [=](uint32_t i, uint32_t j, float z) {
        uint64_t at = uint64_t(i) * m + j;
        if (b) z += b[j];
        if (residual) z += residual[at];
        y[at] = activate(activation, slope, z);
      });
}

extern "C" __global__ void __launch_bounds__(256, 2)
activation_grad(const float* y, const float* dy, float* dz, Rows rows, uint32_t m, uint32_t activation, float slope) {
  uint64_t n = uint64_t(rows.live()) * m;
  for (uint64_t i = thread_item(); i < n; i += thread_items()) {
    float v = y[i], factor = 1.f;
    if (activation == 1) factor = v > 0.f ? 1.f : 0.f;
    if (activation == 2) factor = v > 0.f ? 1.f : slope;
    if (activation == 3) factor = 1.f - v * v;
    if (activation == 4) factor = v * (1.f - v);
    dz[i] = dy[i] * factor;
  }
}

extern "C" __global__ void __launch_bounds__(256, 2)
linear_input_grad(const float* dz, const float* w, float* dx, Rows rows, uint32_t m, uint32_t k, uint32_t precision) {
  product<Along::Sum, Along::Edge>(
      precision, rows.live(), k, 0, m, [=](uint32_t i, uint32_t j) { return dz[uint64_t(i) * m + j]; },
      [=](uint32_t j, uint32_t l) { return w[uint64_t(j) * k + l]; },
      [=](uint32_t i, uint32_t l, float sum) { dx[uint64_t(i) * k + l] = sum; });
}

extern "C" __global__ void __launch_bounds__(256, 2)
linear_weight_grad(const float* dz, const float* x, float* made, uint32_t* tickets, float* dw, float* db, Rows rows,
                   uint32_t m, uint32_t k, uint32_t precision) {
  weight_grad(
      precision, rows.live(), m, k, gridDim.z, {made, tickets},
      [=](uint32_t i, uint32_t j) { return dz[uint64_t(i) * m + j]; },
      [=](uint32_t i, uint32_t l) { return x[uint64_t(i) * k + l]; }, WeightAndBias{dw, db, k});
}

// linear: y = drop(act(x w^T + b + residual)), and its gradients
//
// shapes    x [n, k] f32, w [m, k], b [1, m], residual and y [n, m]
// grid      one block of 256 per tile of 64 x 64 (product.cuh), rows along x; weight gradients: row ranges along z
// memory    reads n k m / 64 words of each operand through L2, writes n m
// limiter   f32 arithmetic, 2 n k m operations
// backward  activation_grad (four elements per thread, 16 bytes at a time; limited by memory), then dx = dz w,
//           dw = dz^T x, db = column sums of dz
// source    -
#include "product.cuh"

extern "C" __global__ void __launch_bounds__(256, 2)
linear(const float* x, const float* w, const float* b, const float* residual, float* y, Rows rows, uint32_t k, uint32_t m,
       Epilogue epilogue, uint32_t precision) {
  after_previous_kernel();
  // Mask of this thread's elements that the drop-out keeps; computed here because one draw serves several elements.
  uint32_t kept = 0;
#pragma unroll 1
  for (uint32_t i = 0; i < EACH; i++) {
    uint64_t row = blockIdx.x * TILE + own_row() + i;
    kept |= epilogue.drop.kept(row * m + blockIdx.y * TILE + own_column()) << (EACH * i);
  }
  product<Along::Sum, Along::Sum>(
      precision, Tile::of_block(rows.live(), m), 0, k, Matrix{x, k}, Matrix{w, k},
      [=](Sums sums, Tile tile) {
        if (b) tile.map(sums, [=](uint32_t, uint32_t j, float z) { return z + b[j]; });
        if (residual) tile.map(sums, [=](uint32_t i, uint32_t j, float z) { return z + residual[uint64_t(i) * m + j]; });
        tile.map(sums, [=](uint32_t i, uint32_t j, float z) { return epilogue.of(z, kept, i % EACH * EACH + j % EACH); });
        tile.store(sums, Output{y, m, m});
      });
}

// The gradient of the V elements from `first` on.
template <int V>
__device__ __forceinline__ void grad_of(const float* y, const float* dy, float* dz, uint64_t first, const Epilogue& epilogue) {
  float value[V], grad[V];
  load(y + first, value), load(dy + first, grad);
  uint32_t kept = epilogue.activation == 1 ? 0 : epilogue.drop.kept(first);
#pragma unroll
  for (int i = 0; i < V; i++) grad[i] = epilogue.grad(value[i], grad[i], kept, i);
  store(dz + first, grad);
}

extern "C" __global__ void __launch_bounds__(256, 4)
activation_grad(const float* y, const float* dy, float* dz, Rows rows, uint32_t m, Epilogue epilogue) {
  after_previous_kernel();
  uint64_t n = uint64_t(rows.live()) * m;
  bool aligned = by_four(y, 4) && by_four(dy, 4) && by_four(dz, 4);
  for (uint64_t first = 4 * thread_item(); first < n; first += 4 * thread_items()) {
    if (aligned && first + 4 <= n) {
      grad_of<4>(y, dy, dz, first, epilogue);
    } else {
      for (uint64_t i = first; i < n && i < first + 4; i++) grad_of<1>(y, dy, dz, i, epilogue);
    }
  }
}

extern "C" __global__ void __launch_bounds__(256, 2)
linear_input_grad(const float* dz, const float* w, float* dx, Rows rows, uint32_t m, uint32_t k, uint32_t precision) {
  after_previous_kernel();
  product<Along::Sum, Along::Edge>(
      precision, Tile::of_block(rows.live(), k), 0, m, Matrix{dz, m}, Matrix{w, k},
      [=](const Sums& sums, Tile tile) { tile.store(sums, Output{dx, k, k}); });
}

extern "C" __global__ void __launch_bounds__(256, 2)
linear_weight_grad(const float* dz, const float* x, float* made, uint32_t* tickets, float* dw, float* db, Rows rows,
                   uint32_t m, uint32_t k, uint32_t precision) {
  after_previous_kernel();
  weight_grad(
      precision, rows.live(), m, k, gridDim.z, {made, tickets}, Matrix{dz, m}, Matrix{x, k},
      [=](const Sums& sums, Tile tile) {
        tile.store(sums, Output{dw, k, k}, [=](uint32_t j, float sum) { if (db) db[j] = sum; });
      });
}

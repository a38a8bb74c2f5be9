// label_loss: binary cross entropy of logits against sets of classes, mean over all elements; and the gradient of the
// logits
//
// shapes    logits, dlogits [n, C] f32, labels [n, m] u32, loss, dloss [1, 1]
// grid      one warp per row, lanes over its classes; at most 128 blocks of 256 for the loss
// memory    reads n (C + m) words; the gradient writes n C; coalesced
// limiter   instructions: one exponential, one logarithm and m comparisons per element
// backward  dlogit = (sigmoid(logit) - 1) w / (n C) dloss for a class in the set, else sigmoid(logit) / (n C) dloss
// source    PyTorch's BCEWithLogitsLoss
#include "common.cuh"

__device__ __forceinline__ bool is_in(const uint32_t* set, uint32_t m, uint32_t c) {
  for (uint32_t j = 0; j < m; j++) {
    if (set[j] == c) return true;
  }
  return false;
}

// 1 / (number of elements).
__device__ __forceinline__ float share(uint32_t n, uint32_t classes) { return float(1.0 / (double(n) * classes)); }

// `sums` holds one number per block.
extern "C" __global__ void __launch_bounds__(256, FULL)
label_loss(const float* logits, const uint32_t* labels, float* sums, uint32_t* ticket, float* loss, Rows rows, uint32_t classes,
           uint32_t m, float weight, Status status) {
  after_previous_kernel();
  uint32_t n = rows.live();
  float sum = 0.f;
  for (uint32_t i = warp_row(); i < n; i += warp_rows()) {
    const float* x = logits + uint64_t(i) * classes;
    const uint32_t* set = labels + uint64_t(i) * m;
    for (uint32_t c = lane_id(); c < classes; c += WARP) sum += is_in(set, m, c) ? weight * softplus(-x[c]) : softplus(x[c]);
    for (uint32_t j = lane_id(); j < m; j += WARP) status.row_of(i, set[j], classes);
  }
  if (!sum_of_grid(sum, sums, ticket)) return;
  write_loss(loss, n ? sum * share(n, classes) : 0.f, logits, n, classes, status);
}

extern "C" __global__ void __launch_bounds__(256, FULL)
label_loss_grad(const float* logits, const uint32_t* labels, const float* dloss, float* dlogits, Rows rows, uint32_t classes,
                uint32_t m, float weight) {
  after_previous_kernel();
  uint32_t n = rows.live();
  float scale = share(n, classes) * *dloss;
  for (uint32_t i = warp_row(); i < n; i += warp_rows()) {
    const uint32_t* set = labels + uint64_t(i) * m;
    for (uint32_t c = lane_id(); c < classes; c += WARP) {
      uint64_t at = uint64_t(i) * classes + c;
      bool positive = is_in(set, m, c);
      float sigmoid = 1.f / (1.f + expf(positive ? logits[at] : -logits[at]));
      dlogits[at] = (positive ? -weight * sigmoid : sigmoid) * scale;
    }
  }
}

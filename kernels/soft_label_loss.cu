// soft_label_loss: cross entropy of logits against rows of weighted classes, mean over the rows; and the gradient of the
// logits
//
// shapes    logits, dlogits [n, C] f32, row [n], offsets [R + 1], classes [E] u32, weights [E] f32, loss, dloss [1, 1]
// grid      one warp per row, lanes over its classes, then over its entries; at most 128 blocks of 256 for the loss
// memory    reads n C words, twice from the caches, and the entries of the rows; the gradient writes n C; coalesced
// limiter   memory
// backward  dlogit[i, c] = (W_i softmax(logit[i])[c] - w_ic) dloss / n
// source    PyTorch's CrossEntropyLoss with class probabilities as targets
#include "common.cuh"

// The entries of the label row `row`: none if an index is outside of its table.
struct Entries {
  uint32_t first = 0, past = 0;

  __device__ Entries(uint32_t i, uint32_t row, const uint32_t* offsets, uint32_t labelled, uint32_t entries, Status status) {
    uint32_t r = status.row_of(i, row, labelled);
    if (r == NONE) return;
    uint32_t end = status.row_of(i, offsets[r + 1], entries + 1);
    if (end == NONE) return;
    first = min(offsets[r], end), past = end;
  }
};

// The largest of a row's logits, and the sum of exp(x - largest); in every lane of the warp.
__device__ __forceinline__ void exponentials(const float* x, uint32_t classes, float& largest, float& sum) {
  largest = -INFINITY, sum = 0.f;
  for (uint32_t c = lane_id(); c < classes; c += WARP) largest = x[c] > largest ? x[c] : largest;
  largest = warp_max(largest);
  for (uint32_t c = lane_id(); c < classes; c += WARP) sum += expf(x[c] - largest);
  sum = warp_sum(sum);
}

// `sums` holds one number per block.
extern "C" __global__ void __launch_bounds__(256, FULL)
soft_label_loss(const float* logits, const uint32_t* row, const uint32_t* offsets, const uint32_t* classes,
                const float* weights, float* sums, uint32_t* ticket, float* loss, Rows rows, uint32_t width,
                uint32_t labelled, uint32_t entries, Status status) {
  after_previous_kernel();
  uint32_t n = rows.live();
  float sum = 0.f;
  for (uint32_t i = warp_row(); i < n; i += warp_rows()) {
    const float* x = logits + uint64_t(i) * width;
    float largest, powers;
    exponentials(x, width, largest, powers);
    float log_sum = largest + logf(powers);
    Entries of(i, row[i], offsets, labelled, entries, status);
    for (uint32_t e = of.first + lane_id(); e < of.past; e += WARP) {
      uint32_t c = status.row_of(i, classes[e], width);
      if (c != NONE) sum += weights[e] * (log_sum - x[c]);
    }
  }
  if (!sum_of_grid(sum, sums, ticket)) return;
  write_loss(loss, n ? sum * float(1.0 / double(n)) : 0.f, logits, n, width, status);
}

extern "C" __global__ void __launch_bounds__(256, FULL)
soft_label_loss_grad(const float* logits, const uint32_t* row, const uint32_t* offsets, const uint32_t* classes,
                     const float* weights, const float* dloss, float* dlogits, Rows rows, uint32_t width,
                     uint32_t labelled, uint32_t entries, Status status) {
  after_previous_kernel();
  uint32_t n = rows.live();
  float factor = float(1.0 / double(max(n, 1u))) * *dloss;
  for (uint32_t i = warp_row(); i < n; i += warp_rows()) {
    const float* x = logits + uint64_t(i) * width;
    float* dx = dlogits + uint64_t(i) * width;
    float largest, powers, whole = 0.f;
    exponentials(x, width, largest, powers);
    Entries of(i, row[i], offsets, labelled, entries, status);
    for (uint32_t e = of.first + lane_id(); e < of.past; e += WARP) {
      if (status.row_of(i, classes[e], width) != NONE) whole += weights[e];
    }
    float scale = warp_sum(whole) / powers * factor;
    for (uint32_t c = lane_id(); c < width; c += WARP) dx[c] = expf(x[c] - largest) * scale;
    // Each lane subtracts the weights of the classes that it has written, so that entries of the same class do not race.
    for (uint32_t e = of.first; e < of.past; e++) {
      uint32_t c = classes[e];
      if (c < width && c % WARP == lane_id()) dx[c] -= weights[e] * factor;
    }
  }
}

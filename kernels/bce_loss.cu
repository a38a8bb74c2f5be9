// bce_loss: mean_i softplus(-logit[i, 0]) + mean_{i, j > 0} softplus(logit[i, j]), and the gradient of the logits
//
// shapes    logits, dlogits [n, m] f32, loss, dloss [1, 1]
// grid      one block of 1024; gradient: one thread per element, grid-stride loop
// memory    reads n m words; the gradient also writes n m; coalesced
// limiter   latency
// backward  dlogit = (sigmoid(logit) - label) / count dloss
// source    -
#include "bce_loss.cuh"

extern "C" __global__ void __launch_bounds__(1024, 1)
bce_loss(const float* logits, float* loss, Rows rows, uint32_t m, Status status) {
  after_previous_kernel();
  __shared__ float of_positives[WARP], of_negatives[WARP];
  __shared__ uint32_t faults[WARP];
  uint32_t n = rows.live(), column = threadIdx.x % m, step = blockDim.x % m, fault = NONE;
  float positives = 0.f, negatives = 0.f;
  for (uint64_t i = threadIdx.x; i < uint64_t(n) * m; i += blockDim.x) {
    float x = logits[i], term = softplus(column ? x : -x);
    if (column) negatives += term; else positives += term;
    if (!(fabsf(x) < INFINITY)) fault = min(fault, uint32_t(i / m));
    column += step;
    if (column >= m) column -= m;
  }
  uint32_t warp = threadIdx.x / WARP;
  positives = warp_sum(positives), negatives = warp_sum(negatives), fault = __reduce_min_sync(ALL, fault);
  if (lane_id() == 0) of_positives[warp] = positives, of_negatives[warp] = negatives, faults[warp] = fault;
  __syncthreads();
  if (warp > 0) return;
  positives = warp_sum(of_positives[lane_id()]), negatives = warp_sum(of_negatives[lane_id()]);
  fault = __reduce_min_sync(ALL, faults[lane_id()]);
  if (lane_id() > 0) return;
  float sum = n ? positives * bce_weight(0, n, m) + negatives * bce_weight(1, n, m) : 0.f;
  if (!(fabsf(sum) < INFINITY)) status.fault(fault == NONE ? 0 : fault, sum);
  if (loss) *loss = sum;
}

extern "C" __global__ void __launch_bounds__(256, FULL)
bce_loss_grad(const float* logits, const float* dloss, float* dlogits, Rows rows, uint32_t m) {
  after_previous_kernel();
  uint32_t n = rows.live();
  uint64_t size = uint64_t(n) * m;
  for (uint64_t i = thread_item(); i < size; i += thread_items()) {
    uint64_t column = i % m;
    dlogits[i] = bce_gradient(logits[i], column, bce_weight(column, n, m)) * *dloss;
  }
}

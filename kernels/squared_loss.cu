// squared_loss: mean of (pred - want)^2 over the elements whose want is known (not NaN); and the gradient of pred
//
// shapes    pred, want, dpred [n, h] f32, loss, dloss [1, 1], known [1] u32
// grid      one thread per element, grid-stride loop; at most 128 blocks of 256 for the loss
// memory    reads 2 n h words; the gradient writes n h; coalesced
// limiter   memory; latency for small inputs
// backward  dpred = 2 (pred - want) / known dloss
// source    PyTorch's MSELoss
#include "common.cuh"

__device__ __forceinline__ bool is_known(float want) { return want == want; }

// `made` holds a sum and a count per block.
extern "C" __global__ void __launch_bounds__(256, 6)
squared_loss(const float* pred, const float* want, float* made, uint32_t* ticket, float* loss, uint32_t* known, Rows rows,
             uint32_t h, Status status) {
  after_previous_kernel();
  __shared__ float of_warps[WARP];
  __shared__ uint32_t counts[WARP];
  uint64_t size = uint64_t(rows.live()) * h;
  float sum = 0.f;
  uint32_t count = 0, warp = threadIdx.x / WARP;
  for (uint64_t i = thread_item(); i < size; i += thread_items()) {
    if (!is_known(want[i])) continue;
    float off = pred[i] - want[i];
    sum = fmaf(off, off, sum), count++;
  }
  sum = warp_sum(sum), count = __reduce_add_sync(ALL, count);
  if (lane_id() == 0) of_warps[warp] = sum, counts[warp] = count;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (uint32_t w = 1; w < blockDim.x / WARP; w++) sum += of_warps[w], count += counts[w];
    made[2 * blockIdx.x] = sum, made[2 * blockIdx.x + 1] = __uint_as_float(count);
  }
  if (!comes_last(ticket, gridDim.x) || threadIdx.x > 0) return;
  sum = 0.f, count = 0;
  for (uint32_t block = 0; block < gridDim.x; block++) {
    sum += __ldcg(made + 2 * block), count += __float_as_uint(__ldcg(made + 2 * block + 1));
  }
  float mean = count ? sum * float(1.0 / double(count)) : 0.f;
  if (!(fabsf(mean) < INFINITY)) {
    uint64_t first = 0;
    while (first < size && (!is_known(want[first]) || fabsf(pred[first] - want[first]) < INFINITY)) first++;
    status.fault(first < size ? uint32_t(first / h) : 0, mean);
  }
  if (loss) *loss = mean;
  *known = count;
}

extern "C" __global__ void __launch_bounds__(256, FULL)
squared_loss_grad(const float* pred, const float* want, const uint32_t* known, const float* dloss, float* dpred, Rows rows,
                  uint32_t h) {
  after_previous_kernel();
  uint64_t size = uint64_t(rows.live()) * h;
  float scale = float(2.0 / double(max(*known, 1u))) * *dloss;
  for (uint64_t i = thread_item(); i < size; i += thread_items()) {
    dpred[i] = is_known(want[i]) ? (pred[i] - want[i]) * scale : 0.f;
  }
}

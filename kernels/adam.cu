// adam: m = b1 m + (1 - b1) g, v = b2 v + (1 - b2) g^2, w -= lr / (1 - b1^t) m / (sqrt(v / (1 - b2^t)) + eps), sum += w
//
// shapes    lr [rates, 1] f32, step [1, 1] u32, scale [1, 1] f32 or null; w, g, m, v, sum of every parameter, f32; sum is
//           null if values are not averaged
// grid      one launch for all parameters: one block per 1024 elements, four elements per thread
// memory    reads 16 bytes per element, writes 12, with sum 20 and 16; coalesced, 16 bytes per thread if aligned
// limiter   memory; two threads per block compute the corrections 1 - b^t while the block's elements are being loaded
// backward  -
// source    Kingma and Ba 2015; Loshchilov and Hutter 2019; as PyTorch's Adam and AdamW with their defaults
#include "common.cuh"

constexpr double BETA1 = 0.9, BETA2 = 0.999;
constexpr float EPS = 1e-8f;
constexpr unsigned EACH = 4;

// b^t by squaring: the loop needs few registers, where `pow` would spill.
__device__ double power(double b, uint32_t t) {
  double product = 1;
  for (; t; t >>= 1, b *= b) product = t & 1 ? product * b : product;
  return product;
}

// The factors of a step: of the update, of the root of the second moment, of the parameter before its update, of the
// parameter in the gradient, and of the gradient.
struct Factors {
  float lr, root, keep, coupled, scale;
};

// Factors without an effect are not used, so that they change no bit.
__device__ void update(float& w, float g, float& m, float& v, const Factors& f) {
  if (f.scale != 1.f) g *= f.scale;
  if (f.coupled != 0.f) g = fmaf(f.coupled, w, g);
  if (f.keep != 1.f) w *= f.keep;
  m = fmaf(float(BETA1), m, float(1 - BETA1) * g);
  v = fmaf(float(BETA2), v, float(1 - BETA2) * g * g);
  w -= f.lr * m / fmaf(sqrtf(v), f.root, EPS);
}

// `ticket` is null except in the last launch of a step, whose last block increments the step. `first` is the number of
// the first parameter of the launch.
extern "C" __global__ void __launch_bounds__(256, 4)
adam(Parameters parameters, const float* rate, uint32_t rates, uint32_t* step, const float* scale, double decay,
     uint32_t decoupled, uint32_t* ticket, uint32_t first, Status status) {
  after_previous_kernel();
  __shared__ Factors of_step;
  uint32_t at = parameters.index(blockIdx.x);
  const Parameter& p = parameters.of[at];
  uint32_t piece = blockIdx.x - (at ? parameters.of[at - 1].end : 0);
  uint32_t i = (piece * blockDim.x + threadIdx.x) * EACH, now = *step + (*step < NONE);
  bool four = i + EACH <= p.n && by_four(p.w, EACH) && by_four(p.g, EACH) && by_four(p.m, EACH) && by_four(p.v, EACH) &&
              by_four(p.sum, EACH);
  float4 *w4 = reinterpret_cast<float4*>(p.w + i), *m4 = reinterpret_cast<float4*>(p.m + i), *v4 = reinterpret_cast<float4*>(p.v + i);
  float4* sum4 = reinterpret_cast<float4*>(p.sum + i);
  float4 w{}, g{}, m{}, v{}, sum{};
  if (four) w = *w4, g = *reinterpret_cast<const float4*>(p.g + i), m = *m4, v = *v4;
  if (four && p.sum) sum = *sum4;
  if (threadIdx.x == WARP) of_step.root = float(1 / sqrt(1 - power(BETA2, now)));
  if (threadIdx.x == 0) {
    double lr = rate[min(now, rates) - 1];
    of_step.lr = float(lr / (1 - power(BETA1, now)));
    of_step.keep = decoupled ? float(1 - lr * decay) : 1.f;
    of_step.coupled = decoupled ? 0.f : float(decay);
    of_step.scale = scale ? *scale : 1.f;
  }
  __syncthreads();
  Factors f = of_step;
  // The ticket is taken once the block has read the step: its time passes during the update.
  bool last = ticket && threadIdx.x == 0 && atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
  if (four) {
    update(w.x, g.x, m.x, v.x, f), update(w.y, g.y, m.y, v.y, f);
    update(w.z, g.z, m.z, v.z, f), update(w.w, g.w, m.w, v.w, f);
    *w4 = w, *m4 = m, *v4 = v;
    add_to(sum, w);
    if (p.sum) *sum4 = sum;
    check_parameter(status, first + at, w.x, v.x), check_parameter(status, first + at, w.y, v.y);
    check_parameter(status, first + at, w.z, v.z), check_parameter(status, first + at, w.w, v.w);
  } else {
    for (uint32_t end = min(i + EACH, p.n); i < end; i++) {
      update(p.w[i], p.g[i], p.m[i], p.v[i], f);
      if (p.sum) p.sum[i] += p.w[i];
      check_parameter(status, first + at, p.w[i], p.v[i]);
    }
  }
  if (last) *step = now;
}

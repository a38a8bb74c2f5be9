// sgd: v = momentum v + g + decay w, w -= lr v
//
// shapes    lr [rates, 1] f32, step [1, 1] u32, scale [1, 1] f32 or null; w, g, v of every parameter, f32; v is null
//           without momentum
// grid      one launch for all parameters: one block per 1024 elements, four elements per thread
// memory    reads 12 bytes per element, writes 8; without momentum reads 8 and writes 4; coalesced, 16 bytes per
//           thread if aligned
// limiter   memory
// backward  -
// source    PyTorch's SGD, without its dampening
#include "common.cuh"

constexpr unsigned EACH = 4;

struct Factors {
  float lr, momentum, decay, scale;
};

// Returns the velocity for that of the step before.
__device__ float update(float& w, float g, float v, const Factors& f) {
  v = fmaf(f.momentum, v, fmaf(f.decay, w, f.scale * g));
  w -= f.lr * v;
  return v;
}

// `ticket` is null except in the last launch of a step, whose last block increments the step. `first` is the number of
// the first parameter of the launch.
extern "C" __global__ void __launch_bounds__(256, FULL)
sgd(Parameters parameters, const float* rate, uint32_t rates, uint32_t* step, const float* scale, float momentum, float decay,
    uint32_t* ticket, uint32_t first, Status status) {
  after_previous_kernel();
  uint32_t at = parameters.index(blockIdx.x);
  const Parameter& p = parameters.of[at];
  uint32_t piece = blockIdx.x - (at ? parameters.of[at - 1].end : 0);
  uint32_t i = (piece * blockDim.x + threadIdx.x) * EACH, now = *step + (*step < NONE);
  Factors f{rate[min(now, rates) - 1], momentum, decay, scale ? *scale : 1.f};
  if (i + EACH <= p.n && by_four(p.w, EACH) && by_four(p.g, EACH) && (!p.v || by_four(p.v, EACH))) {
    float4 w = *reinterpret_cast<float4*>(p.w + i), g = *reinterpret_cast<const float4*>(p.g + i), v{};
    if (p.v) v = *reinterpret_cast<float4*>(p.v + i);
    v.x = update(w.x, g.x, v.x, f), v.y = update(w.y, g.y, v.y, f);
    v.z = update(w.z, g.z, v.z, f), v.w = update(w.w, g.w, v.w, f);
    *reinterpret_cast<float4*>(p.w + i) = w;
    if (p.v) *reinterpret_cast<float4*>(p.v + i) = v;
    check_parameter(status, first + at, w.x, fabsf(v.x)), check_parameter(status, first + at, w.y, fabsf(v.y));
    check_parameter(status, first + at, w.z, fabsf(v.z)), check_parameter(status, first + at, w.w, fabsf(v.w));
  } else {
    for (uint32_t end = min(i + EACH, p.n); i < end; i++) {
      float v = update(p.w[i], p.g[i], p.v ? p.v[i] : 0.f, f);
      if (p.v) p.v[i] = v;
      check_parameter(status, first + at, p.w[i], fabsf(v));
    }
  }
  if (ticket && comes_last(ticket, gridDim.x) && threadIdx.x == 0) *step = now;
}

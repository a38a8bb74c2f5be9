// silu: y = x s with s = 1 / (1 + e^-x); given dy, the gradient dy (s + y (1 - s))

extern "C" __global__ void silu(const float* x, const float* dy, float* out, Rows rows, uint32_t d) {
  uint64_t n = uint64_t(rows.live()) * d;
  for (uint64_t i = thread_item(); i < n; i += thread_items()) {
    float s = 1.f / (1.f + expf(-x[i]));
    out[i] = dy ? dy[i] * (s + x[i] * s * (1.f - s)) : x[i] * s;
  }
}

// slot_features: out[i k + j, :] = {edge[event[i, j]] | cos(w dt[i, j] + b)}; zeros if the event is NONE
//
// shapes    event [n, k] u32, dt [n, k] f32, edge [e, f], w, b [1, t], out [n k, f + t]
// grid      one warp per slot, lanes over the columns
// memory    reads n k (2 + f) words, writes n k (f + t); coalesced
// limiter   memory, closely followed by the arithmetic of the cosine
// backward  -
// source    GraphMixer's link encoder
#include "time_encoding.cuh"

extern "C" __global__ void __launch_bounds__(256, 4)
slot_features(const uint32_t* event, const float* dt, const float* edge, const float* w, const float* b, float* out,
              Rows slots, Rows events, uint32_t f, uint32_t t, Status s) {
  after_previous_kernel();
  uint32_t n = slots.live(), e = events.live();
  for (uint32_t i = warp_row(); i < n; i += warp_rows()) {
    uint32_t row = f ? s.row_of(i, event[i], e) : event[i];
    float gap = dt[i];
    float* to = out + uint64_t(i) * (f + t);
    if (row == NONE) {
      for (uint32_t c = lane_id(); c < f + t; c += WARP) to[c] = 0.f;
      continue;
    }
    const float* from = edge + uint64_t(row) * f;
    for (uint32_t c = lane_id(); c < f; c += WARP) to[c] = from[c];
    for (uint32_t c = lane_id(); c < t; c += WARP) to[f + c] = Turned(time_angle(gap, w[c], b[c])).cosine();
  }
}

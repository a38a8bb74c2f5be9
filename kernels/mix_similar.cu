// mix_similar: mixes some of the rows of a gather with the mean of similar rows, in place
//
// shapes    row [m], picks [m, s] u32, similar [m s, d] f32, out [n, d] f32: the gathered rows
// grid      one warp per mixed row, lanes over its columns
// memory    reads m (4 + 4 s) bytes and m (s + 1) d numbers, writes m d; coalesced
// limiter   memory
// backward  -
// source    MSPipe, section 3.3
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(256, 4)
mix_similar(const uint32_t* row, const uint32_t* picks, const float* similar, float* out, Rows mixed, Rows rows, uint32_t s,
            uint32_t d, float lambda, Status status) {
  after_previous_kernel();
  uint32_t n = rows.live();
  for (uint32_t k = warp_row(); k < mixed.live(); k += warp_rows()) {
    uint32_t at = status.row_of(k, row[k], n), count = 0;
    for (uint32_t j = 0; j < s; j++) count += picks[uint64_t(k) * s + j] != NONE;
    if (at == NONE || count == 0) continue;
    for (uint32_t c = lane_id(); c < d; c += WARP) {
      float sum = 0.f;
      for (uint32_t j = 0; j < s; j++) {
        if (picks[uint64_t(k) * s + j] != NONE) sum += similar[(uint64_t(k) * s + j) * d + c];
      }
      float& x = out[uint64_t(at) * d + c];
      x = lambda * x + (1.f - lambda) * (sum / float(count));
    }
  }
}

// step_rows: the rows of one step in a table of steps x vertices; NONE if the vertex is absent in the step
//
// shapes    steps [l] u32, scale [s n] f32 or null, out [n] u32
// grid      one thread per row, grid-stride loop
// memory    reads 4 n bytes of scale, writes 4 n; coalesced
// limiter   memory
// backward  -
// source    -
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(256, FULL)
step_rows(const uint32_t* steps, const float* scale, uint32_t* out, uint32_t most, uint32_t place, uint32_t n, Status s) {
  after_previous_kernel();
  if (!out) return;
  uint32_t step = s.row_of(place, steps[place], most);
  for (uint32_t i = uint32_t(thread_item()); i < n; i += uint32_t(thread_items())) {
    uint32_t row = step * n + i;
    out[i] = step == NONE || (scale && !(scale[row] > 0.f)) ? NONE : row;
  }
}

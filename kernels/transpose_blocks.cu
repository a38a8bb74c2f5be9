// transpose_blocks: out[i b + c, r] = x[i a + r, c]: each of n blocks [a, b] transposed
//
// shapes    x [n a, b] f32, out [n b, a]
// grid      one block of 256 per tile of 32 x 32 of a block of x; grid-stride loop over the tiles
// memory    reads n a b words, writes n a b; coalesced, through shared memory (4.2 KB, no bank conflicts)
// limiter   memory
// backward  transpose_blocks, with a and b exchanged
// source    -
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(256, FULL)
transpose_blocks(const float* x, float* out, Rows rows, uint32_t a, uint32_t b) {
  after_previous_kernel();
  __shared__ float tile[WARP][WARP + 1];
  uint64_t down = (uint64_t(a) + WARP - 1) / WARP, across = (uint64_t(b) + WARP - 1) / WARP;
  uint64_t tiles = rows.live() / a * down * across;
  unsigned lane = lane_id(), warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
  for (uint64_t i = blockIdx.x; i < tiles; i += gridDim.x) {
    uint64_t of_block = i % (down * across), first = i / (down * across) * a * b;
    uint64_t row = of_block / across * WARP, column = of_block % across * WARP;
    __syncthreads();  // the previous tile has been read
    for (unsigned r = warp; r < WARP; r += warps) {
      if (row + r < a && column + lane < b) tile[r][lane] = x[first + (row + r) * b + column + lane];
    }
    __syncthreads();  // the tile has been written
    for (unsigned c = warp; c < WARP; c += warps) {
      if (column + c < b && row + lane < a) out[first + (column + c) * a + row + lane] = tile[lane][c];
    }
  }
}

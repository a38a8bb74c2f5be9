// transpose_blocks: out[i b + c, r] = x[i a + r, c]: each of n blocks [a, b] transposed
//
// shapes    x [n a, b] f32, out [n b, a]
// grid      one block of 256 per block of x, if that has at most MOST elements with its rows an odd number apart; else
//           one per tile of 32 x 32 of a block of x; grid-stride loop
// memory    reads n a b words, writes n a b; coalesced, through shared memory (16 KB, no bank conflicts)
// limiter   memory
// backward  transpose_blocks, with a and b exchanged
// source    -
#include "common.cuh"

constexpr uint32_t MOST = 4096;  // `MOST` in src/ops/dense/transpose_blocks.rs

// Transposes whole blocks.
__device__ __forceinline__ void transpose_whole(const float* x, float* out, uint64_t blocks, uint32_t a, uint32_t b,
                                                float (&block)[MOST]) {
  uint32_t stride = b | 1, rows = blockDim.x / b, columns = blockDim.x % b, down = blockDim.x % a, across = blockDim.x / a;
  for (uint64_t i = blockIdx.x; i < blocks; i += gridDim.x) {
    const float* from = x + i * a * b;
    float* to = out + i * a * b;
    __syncthreads();  // the previous block has been read
    uint32_t r = threadIdx.x / b, c = threadIdx.x % b;
    for (uint32_t e = threadIdx.x; e < a * b; e += blockDim.x) {
      block[r * stride + c] = from[e];
      r += rows, c += columns;
      if (c >= b) c -= b, r++;
    }
    __syncthreads();  // the block has been written
    r = threadIdx.x % a, c = threadIdx.x / a;
    for (uint32_t e = threadIdx.x; e < a * b; e += blockDim.x) {
      to[e] = block[r * stride + c];
      r += down, c += across;
      if (r >= a) r -= a, c++;
    }
  }
}

// Transposes blocks by tiles.
__device__ __forceinline__ void transpose_tiles(const float* x, float* out, uint64_t blocks, uint32_t a, uint32_t b,
                                                float (&tile)[MOST]) {
  uint64_t down = (uint64_t(a) + WARP - 1) / WARP, across = (uint64_t(b) + WARP - 1) / WARP;
  unsigned lane = lane_id(), warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
  for (uint64_t i = blockIdx.x; i < blocks * down * across; i += gridDim.x) {
    uint64_t of_block = i % (down * across), first = i / (down * across) * a * b;
    uint64_t row = of_block / across * WARP, column = of_block % across * WARP;
    __syncthreads();  // the previous tile has been read
    for (unsigned r = warp; r < WARP; r += warps) {
      if (row + r < a && column + lane < b) tile[r * (WARP + 1) + lane] = x[first + (row + r) * b + column + lane];
    }
    __syncthreads();  // the tile has been written
    for (unsigned c = warp; c < WARP; c += warps) {
      if (column + c < b && row + lane < a) out[first + (column + c) * a + row + lane] = tile[lane * (WARP + 1) + c];
    }
  }
}

extern "C" __global__ void __launch_bounds__(256, FULL)
transpose_blocks(const float* x, float* out, Rows rows, uint32_t a, uint32_t b) {
  after_previous_kernel();
  __shared__ float memory[MOST];
  uint64_t blocks = rows.live() / a;
  if (uint64_t(a) * (b | 1) <= MOST) transpose_whole(x, out, blocks, a, b, memory);
  else transpose_tiles(x, out, blocks, a, b, memory);
}

// copy_words, read_words: how fast memory is at most, for `runtime::cuda::rates`; no op uses them
//
// shapes    from, to [words] u32: a multiple of 8,192 words; read_words only names `to`
// grid      a block for every 8,192 words
// memory    copy_words reads and writes all words, read_words reads them
// limiter   memory, or L2 if it holds both sides
// backward  -
// source    -
#include "common.cuh"

constexpr unsigned AHEAD = 8;  // loads of 16 bytes that a thread has on the way

// Loads the words of a block and calls `use` with the position of every four of them, and the four.
template <typename Use>
__device__ __forceinline__ void each_four(const uint32_t* from, uint64_t words, Use use) {
  const uint4* fours = reinterpret_cast<const uint4*>(from);
  uint64_t n = words / 4, of_block = uint64_t(blockDim.x) * AHEAD;
  for (uint64_t first = blockIdx.x * of_block; first < n; first += gridDim.x * of_block) {
    uint4 loaded[AHEAD];
#pragma unroll
    for (unsigned k = 0; k < AHEAD; k++) loaded[k] = fours[first + k * blockDim.x + threadIdx.x];
#pragma unroll
    for (unsigned k = 0; k < AHEAD; k++) use(first + k * blockDim.x + threadIdx.x, loaded[k]);
  }
}

extern "C" __global__ void __launch_bounds__(256, 4)
copy_words(const uint32_t* from, uint32_t* to, uint64_t words) {
  after_previous_kernel();
  uint4* fours = reinterpret_cast<uint4*>(to);
  each_four(from, words, [&](uint64_t i, uint4 four) { fours[i] = four; });
}

extern "C" __global__ void __launch_bounds__(256, 4)
read_words(const uint32_t* from, uint32_t* to, uint64_t words) {
  after_previous_kernel();
  uint32_t all = 0;
  each_four(from, words, [&](uint64_t, uint4 four) { all |= four.x | four.y | four.z | four.w; });
  // Never so, for words of equal bytes; the compiler cannot know that, and leaves no load out.
  if (all == 0x01020304u) *to = all;
}

// all_reduce: sums over ranks, through windows (runtime/cuda/windows.rs)
//
// shapes    w of every value and g, f32; m is the value's place in this rank's window
// grid      one launch for up to 64 values: one block per 1024 elements, four elements per thread
// memory    write: reads and writes 4 bytes per element; sum: reads 4 bytes per element and rank, of which those of
//           other ranks cross the link between the devices, and writes 4; coalesced, 16 bytes per thread if aligned
// limiter   the link between the devices; latency for small values
// backward  -
// source    one-shot all-reduce: every rank adds all terms, in the order of the ranks, so all get the same bits
#include "common.cuh"

constexpr unsigned EACH = 4;

// Calls `use` with the parameter of this block and this thread's element, four at a time if all is aligned.
template <class Use>
__device__ __forceinline__ void for_elements(const Parameters& parameters, Use use) {
  uint32_t at = parameters.index(blockIdx.x);
  const Parameter& p = parameters.of[at];
  uint32_t piece = blockIdx.x - (at ? parameters.of[at - 1].end : 0), i = (piece * blockDim.x + threadIdx.x) * EACH;
  if (i + EACH <= p.n && by_four(p.w, EACH) && by_four(p.g, EACH) && by_four(p.m, EACH)) {
    use(p, i, float4{});
  } else {
    for (uint32_t end = min(i + EACH, p.n); i < end; i++) use(p, i, 0.f);
  }
}
template <class T> __device__ __forceinline__ T& as(float* p) { return *reinterpret_cast<T*>(p); }
template <class T> __device__ __forceinline__ const T& as(const float* p) { return *reinterpret_cast<const T*>(p); }

// Adds what leaves this rank, `values` values of `bytes` bytes, to `sent`, which is null except in the last launch.
extern "C" __global__ void __launch_bounds__(256, FULL)
write_values_to_window(Parameters parameters, uint64_t* sent, uint32_t values, uint64_t bytes) {
  after_previous_kernel();
  for_elements(parameters, [](const Parameter& p, uint32_t i, auto zero) {
    using T = decltype(zero);
    as<T>(p.m + i) = as<T>(p.g + i);
  });
  if (sent && thread_item() == 0) sent[0] += values, sent[1] += bytes;
}

// `progress` is null except in the last launch.
extern "C" __global__ void __launch_bounds__(256, FULL)
sum_windows(Parameters parameters, Windows windows, uint64_t* progress) {
  after_previous_kernel();
  uint64_t own = windows.of[2 * windows.rank];
  for_elements(parameters, [&](const Parameter& p, uint32_t i, auto sum) {
    using T = decltype(sum);
    uint64_t place = reinterpret_cast<uint64_t>(p.m + i) - own;
    sum = *windows.at<T>(0, place);
    for (uint32_t r = 1; r < windows.ranks; r++) add_to(sum, *windows.at<T>(r, place));
    as<T>(p.w + i) = sum;
  });
  if (progress && thread_item() == 0) *progress += 1;
}

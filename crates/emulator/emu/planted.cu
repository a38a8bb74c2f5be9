// Kernels with deliberate errors, and correct versions of them: tests show that the emulated device finds each error.
#include "ptx.cuh"

// Every thread passes its value to its neighbour through shared memory.
template <bool barrier> __device__ void pass_on(const float* x, float* y) {
  __shared__ float s[256];
  s[threadIdx.x] = x[threadIdx.x];
  if (barrier) __syncthreads();
  y[threadIdx.x] = s[(threadIdx.x + 1) % blockDim.x];
}
extern "C" __global__ void passed_on(const float* x, float* y) { pass_on<true>(x, y); }
extern "C" __global__ void planted_missing_barrier(const float* x, float* y) { pass_on<false>(x, y); }

// The same through dynamic shared memory, which none of our kernels needs.
extern "C" __global__ void passed_on_dynamic(const float* x, float* y) {
#ifdef TGNN_HOST
  float* s = reinterpret_cast<float*>(emu::current->block->shared);
#else
  extern __shared__ float s[];
#endif
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = s[(threadIdx.x + 1) % blockDim.x];
}

// Every thread adds 1.
extern "C" __global__ void counted(uint32_t* n) { atomicAdd(n, 1u); }
extern "C" __global__ void planted_race(uint32_t* n) {
  uint32_t before = *n;
  __threadfence();
  *n = before + 1;
}

extern "C" __global__ void planted_out_of_bounds(float* x, uint32_t n) {
  if (threadIdx.x <= n) x[threadIdx.x] = 1.f;
}
extern "C" __global__ void planted_divergent_barrier(float* x) {
  if (threadIdx.x < 16) __syncthreads();
  else x[threadIdx.x] = __shfl_xor_sync(ALL, x[threadIdx.x], 1);
}
// The result depends on which block runs first.
extern "C" __global__ void planted_block_order(uint32_t* first) {
  if (threadIdx.x == 0) atomicCAS(first, NONE, blockIdx.x);
}
// The first thread of every block waits until all blocks have arrived, and counts itself if they have. It looks `tries`
// times.
extern "C" __global__ void meeting(uint32_t* there, uint32_t* met, uint32_t tries) {
  if (threadIdx.x != 0) return;
  atomicAdd(there, 1u);
  for (uint32_t i = 0; i < tries && atomicAdd(there, 0u) < gridDim.x; i++) __nanosleep(100);
  if (atomicAdd(there, 0u) == gridDim.x) atomicAdd(met, 1u);
}

// Every block of a cluster gives its numbers to another one, which reads them in its shared memory.
template <bool barrier> __device__ void pass_to_block(const float* x, float* y) {
  __shared__ float s[64];
  uint64_t i = thread_item();
  s[threadIdx.x] = x[i];
  if (barrier) cluster_arrive_shared(), cluster_wait();
  y[i] = in_block(s, (cluster_rank() + 1) % cluster_blocks())[threadIdx.x];
  cluster_arrive();
  cluster_wait();
}
extern "C" __global__ void passed_to_block(const float* x, float* y) { pass_to_block<true>(x, y); }
extern "C" __global__ void planted_missing_cluster_barrier(const float* x, float* y) { pass_to_block<false>(x, y); }
// The first block of a cluster reads what others have, which do not wait for that.
extern "C" __global__ void planted_early_exit(const float* x, float* y) {
  __shared__ float s[64];
  s[threadIdx.x] = x[thread_item()];
  cluster_arrive_shared();
  cluster_wait();
  const float* other = in_block(s, (cluster_rank() + 1) % cluster_blocks());
  cluster_arrive();
  if (cluster_rank() > 0) return;
  cluster_wait();
  y[thread_item()] = other[threadIdx.x];
}
// Some threads wait for their block meanwhile.
extern "C" __global__ void planted_divergent_cluster_barrier(const float* x, float* y) {
  if (threadIdx.x < 32) __syncthreads();
  else cluster_arrive(), cluster_wait();
  y[threadIdx.x] = x[threadIdx.x];
}
extern "C" __global__ void planted_second_arrival(const float* x, float* y) {
  cluster_arrive();
  cluster_arrive();
  cluster_wait();
  y[threadIdx.x] = x[threadIdx.x];
}
extern "C" __global__ void planted_missing_block(const float* x, float* y) {
  __shared__ float s[64];
  s[threadIdx.x] = x[threadIdx.x];
  y[threadIdx.x] = *in_block(s, cluster_blocks());
}

// CUDA C++ on the host: the declarations that kernel sources need to compile with a host compiler.
//
// The blocks of a grid run on all cores (`grid.cpp`), the threads of a block as fibres of one host thread
// (`block.cpp`). A fibre yields only at a barrier, at a warp collective, at an atomic under a random schedule, or at
// its end. The order of the threads of a block is therefore reproducible from its seed. The blocks of a cluster run on
// one host thread, too (`cluster.cpp`).
#pragma once
#define TGNN_EMU 1
#include "matrix.hpp"
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __restrict__ __restrict
#define __grid_constant__
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define __shared__ static  // a sanitizer tracks each array separately
#else
#define __shared__ static __thread  // of the block that the host thread runs; filled with NaN before every block
#endif

struct alignas(8) float2 { float x, y; };
struct float3 { float x, y, z; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) int2 { int x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };
struct uint3 { unsigned x, y, z; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(16) longlong2 { long long x, y; };
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

namespace emu {
struct Block {
  dim3 grid, block;
  uint3 index;
  char* shared;
  MatrixUnits matrix;
  unsigned cluster_blocks, cluster_rank;
};
struct Thread { uint3 index; unsigned lane; const Block* block; };
// The CUDA thread that this host thread is running.
extern __thread Thread* current __attribute__((tls_model("initial-exec")));

enum class Collective { Sync, Together, Shuffle, Ballot, Any, All, Match, Add, Min, Max, MinSigned, MaxSigned, And, Or, Xor };
// Called by every lane of `mask` with its `value` at source line `line`; returns the lane's result.
uint64_t collective(Collective, unsigned mask, uint64_t value, int source, int line);
// For `Together`: every lane passes the address of a Shown; the last lane to arrive calls `work` with all lanes'
// `mine`.
struct Shown { void (*work)(void* const* lanes); void* mine; };
enum class Vote { None, Count, And, Or };
int barrier(int vote, Vote, int line);
void yield();        // lets another thread run; for loops that wait for one
void may_switch();   // a point where a random schedule may let another thread run
void cluster_arrive(int line);
void cluster_wait(int line);
// The address of what a block of the cluster has at `own` in its shared memory.
void* in_block(void* own, unsigned rank, int line);

template <class T> uint64_t bits(T v) {
  static_assert(sizeof(T) <= 8, "a collective moves at most eight bytes");
  uint64_t u = 0;
  memcpy(&u, &v, sizeof v);
  return u;
}
template <class T> T from_bits(uint64_t u) {
  T v;
  memcpy(&v, &u, sizeof v);
  return v;
}

// A kernel as the driver sees it: the arguments are passed as an array of addresses.
struct Kernel {
  const char* name;
  void (*call)(void** arguments);
  int count;
  const unsigned short* sizes;
};
template <auto kernel> struct Entry;
template <class... A, void (*kernel)(A...)> struct Entry<kernel> {
  static constexpr unsigned short sizes[sizeof...(A) + 1] = {(unsigned short)sizeof(A)..., 0};
  template <size_t... I> static void spread(void** a, std::index_sequence<I...>) {
    kernel(*static_cast<std::remove_reference_t<A>*>(a[I])...);
  }
  static void call(void** a) { spread(a, std::index_sequence_for<A...>{}); }
  static constexpr Kernel as(const char* name) { return {name, call, sizeof...(A), sizes}; }
};
extern const Kernel kernels[];  // generated from the signatures; ends with a null name
}  // namespace emu

#define threadIdx (emu::current->index)
#define blockIdx (emu::current->block->index)
#define blockDim (emu::current->block->block)
#define gridDim (emu::current->block->grid)
static constexpr int warpSize = 32;

#define EMU_LINE int line = __builtin_LINE()
inline void __syncthreads(EMU_LINE) { emu::barrier(0, emu::Vote::None, line); }
inline int __syncthreads_count(int p, EMU_LINE) { return emu::barrier(p, emu::Vote::Count, line); }
inline int __syncthreads_and(int p, EMU_LINE) { return emu::barrier(p, emu::Vote::And, line); }
inline int __syncthreads_or(int p, EMU_LINE) { return emu::barrier(p, emu::Vote::Or, line); }
// Thread block clusters (`ptx.cuh`).
inline unsigned cluster_blocks() { return emu::current->block->cluster_blocks; }
inline unsigned cluster_rank() { return emu::current->block->cluster_rank; }
inline void cluster_arrive(EMU_LINE) { emu::cluster_arrive(line); }
inline void cluster_arrive_shared(EMU_LINE) { emu::cluster_arrive(line); }
inline void cluster_wait(EMU_LINE) { emu::cluster_wait(line); }
template <class T> T* in_block(T* own, unsigned rank, EMU_LINE) {
  return static_cast<T*>(emu::in_block(const_cast<std::remove_const_t<T>*>(own), rank, line));
}
inline void __syncwarp(unsigned m = ~0u, EMU_LINE) { emu::collective(emu::Collective::Sync, m, 0, 0, line); }
inline void __threadfence() {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  emu::may_switch();
}
inline void __threadfence_block() { emu::may_switch(); }
inline void __nanosleep(unsigned) { emu::yield(); }
#define EMU_SHUFFLE(name, SOURCE)                                                                                   \
  template <class T> T name(unsigned m, T v, int b, int w = 32, EMU_LINE) {                                         \
    int l = int(emu::current->lane), first = l & ~(w - 1);                                                          \
    (void)first;                                                                                                    \
    return emu::from_bits<T>(emu::collective(emu::Collective::Shuffle, m, emu::bits(v), SOURCE, line));             \
  }
EMU_SHUFFLE(__shfl_sync, first + (b & (w - 1)))
EMU_SHUFFLE(__shfl_up_sync, l - b < first ? l : l - b)
EMU_SHUFFLE(__shfl_down_sync, l + b >= first + w ? l : l + b)
EMU_SHUFFLE(__shfl_xor_sync, (l ^ b) >= first + w ? l : (l ^ b))
inline unsigned __ballot_sync(unsigned m, int p, EMU_LINE) {
  return unsigned(emu::collective(emu::Collective::Ballot, m, p != 0, 0, line));
}
inline int __any_sync(unsigned m, int p, EMU_LINE) {
  return int(emu::collective(emu::Collective::Any, m, p != 0, 0, line));
}
inline int __all_sync(unsigned m, int p, EMU_LINE) {
  return int(emu::collective(emu::Collective::All, m, p != 0, 0, line));
}
template <class T> unsigned __match_any_sync(unsigned m, T v, EMU_LINE) {
  return unsigned(emu::collective(emu::Collective::Match, m, emu::bits(v), 0, line));
}
#define EMU_REDUCE(name, T, how)                                                     \
  inline T name(unsigned m, T v, EMU_LINE) {                                         \
    return T(emu::collective(emu::Collective::how, m, emu::bits(v), 0, line));       \
  }
EMU_REDUCE(__reduce_add_sync, unsigned, Add)
EMU_REDUCE(__reduce_add_sync, int, Add)
EMU_REDUCE(__reduce_min_sync, unsigned, Min)
EMU_REDUCE(__reduce_min_sync, int, MinSigned)
EMU_REDUCE(__reduce_max_sync, unsigned, Max)
EMU_REDUCE(__reduce_max_sync, int, MaxSigned)
EMU_REDUCE(__reduce_and_sync, unsigned, And)
EMU_REDUCE(__reduce_or_sync, unsigned, Or)
EMU_REDUCE(__reduce_xor_sync, unsigned, Xor)
unsigned __activemask() __attribute__((error("__activemask() says nothing reliable: pass the mask along")));

template <class T> using emu_same = std::common_type_t<T>;  // T is deduced from the pointer alone
// A compare-and-swap loop, because blocks run on several host threads and T may be a float.
template <class T, class F> T emu_update(T* p, F f) {
  emu::may_switch();
  T old, changed;
  __atomic_load(p, &old, __ATOMIC_RELAXED);
  do changed = f(old);
  while (!__atomic_compare_exchange(p, &old, &changed, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return old;
}
template <class T> T atomicAdd(T* p, emu_same<T> v) { return emu_update(p, [=](T o) { return T(o + v); }); }
template <class T> T atomicSub(T* p, emu_same<T> v) { return emu_update(p, [=](T o) { return T(o - v); }); }
template <class T> T atomicMax(T* p, emu_same<T> v) { return emu_update(p, [=](T o) { return std::max<T>(o, v); }); }
template <class T> T atomicMin(T* p, emu_same<T> v) { return emu_update(p, [=](T o) { return std::min<T>(o, v); }); }
template <class T> T atomicAnd(T* p, emu_same<T> v) { return emu_update(p, [=](T o) { return T(o & v); }); }
template <class T> T atomicOr(T* p, emu_same<T> v) { return emu_update(p, [=](T o) { return T(o | v); }); }
template <class T> T atomicXor(T* p, emu_same<T> v) { return emu_update(p, [=](T o) { return T(o ^ v); }); }
inline unsigned atomicInc(unsigned* p, unsigned most) {
  return emu_update(p, [=](unsigned o) { return o < most ? o + 1 : 0; });
}
template <class T> T atomicExch(T* p, emu_same<T> v) { return emu_update(p, [=](T) { return T(v); }); }
template <class T> T atomicCAS(T* p, emu_same<T> expected, emu_same<T> v) {
  emu::may_switch();
  T old = expected, changed = v;
  // A failed exchange is probably a loop that waits for another thread.
  if (!__atomic_compare_exchange(p, &old, &changed, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) emu::yield();
  return old;
}

template <class T> T __ldg(const T* p) { return *p; }
template <class T> T __ldcg(const T* p) { return *p; }
template <class T> T __ldcs(const T* p) { return *p; }
template <class T> void __stcs(T* p, T v) { *p = v; }
template <class T> void __stcg(T* p, T v) { *p = v; }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1.f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float rsqrtf(float x) { return 1.f / sqrtf(x); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
// Not fused with another operation, also where the compiler may fuse (`TGNN_HOST_FLAGS`).
inline float __fmul_rn(float a, float b) {
  float product = a * b;
  asm("" : "+m"(product));
  return product;
}
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __saturatef(float x) { return std::min(std::max(x, 0.f), 1.f); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
inline unsigned __float_as_uint(float f) { return emu::from_bits<unsigned>(emu::bits(f)); }
inline int __float_as_int(float f) { return emu::from_bits<int>(emu::bits(f)); }
inline float __int_as_float(int i) { return emu::from_bits<float>(emu::bits(i)); }
inline float __uint_as_float(unsigned i) { return emu::from_bits<float>(emu::bits(i)); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned(uint64_t(a) * b >> 32); }
template <class A, class B> std::common_type_t<A, B> min(A a, B b) { return a < b ? a : b; }
template <class A, class B> std::common_type_t<A, B> max(A a, B b) { return a > b ? a : b; }

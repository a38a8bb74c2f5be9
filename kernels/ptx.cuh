// Instructions without a CUDA C++ intrinsic. Each has a host version with the same registers and the same result.
#pragma once
#include "common.cuh"

#ifdef TGNN_HOST
namespace emu {
// The registers of one lane in a warp-wide matrix product: operands a and b, W numbers per register; and where d is.
template <unsigned W> struct Operands {
  float a[4][W], b[2][W];
  float (*d)[4];
};
// d (16 x 8) += a b over a depth of 8 W, for all lanes at once.
template <unsigned W> void multiply(void* const* lanes) {
  auto of = [&](unsigned lane) { return static_cast<const Operands<W>*>(lanes[lane]); };
  float a[16][8 * W];
  Columns b[8 * W];
  for (unsigned lane = 0; lane < 32; lane++) {
    unsigned g = lane / 4, t = lane % 4;
    for (unsigned w = 0; w < W; w++) {
      for (unsigned i = 0; i < 4; i++) a[g + i % 2 * 8][(t + i / 2 * 4) * W + w] = of(lane)->a[i][w];
      for (unsigned i = 0; i < 2; i++) b[(t + i * 4) * W + w][g] = of(lane)->b[i][w];
    }
  }
  for (unsigned row = 0; row < 16; row++) {
    auto d = [&](unsigned column) -> float& { return (*of(row % 8 * 4 + column / 2)->d)[row / 8 * 2 + column % 2]; };
    Columns sum;
    for (unsigned column = 0; column < 8; column++) sum[column] = d(column);
    add_products(current->block->matrix, a[row], b, 8 * W, sum);
    for (unsigned column = 0; column < 8; column++) d(column) = sum[column];
  }
}
template <unsigned W> void multiply(Operands<W>& mine) {
  Shown shown{multiply<W>, &mine};
  collective(Collective::Together, ~0u, reinterpret_cast<uintptr_t>(&shown), 0, __LINE__);
}
// A lane's address in `Shared::load_matrices`, and where its four elements go.
struct Rows {
  const float* row;
  float* x[4];
};
inline void take_matrices(void* const* lanes) {
  for (unsigned lane = 0; lane < 32; lane++) {
    for (unsigned i = 0; i < 4; i++) {
      *static_cast<Rows*>(lanes[lane])->x[i] = static_cast<Rows*>(lanes[8 * i + lane / 4])->row[lane % 4];
    }
  }
}
}  // namespace emu
#endif

// Rounds to the nearest TF32 (11 significant bits, the exponent range of f32), returned as an f32.
__device__ __forceinline__ float to_tf32(float x) {
#ifdef TGNN_HOST
  return x != x ? x : __uint_as_float((__float_as_uint(x) + 0x1000u) & 0xFFFFE000u);
#else
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return __uint_as_float(bits);
#endif
}

// Rounds two numbers to the nearest bfloat16 (8 significant bits, the exponent range of f32); `low` goes into the lower
// half of the word.
__device__ __forceinline__ uint32_t to_bf16x2(float low, float high) {
#ifdef TGNN_HOST
  auto nearest = [](float x) {
    uint32_t bits = __float_as_uint(x);
    return x != x ? 0x7fffu : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  };
  return nearest(low) | nearest(high) << 16;
#else
  uint32_t both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
#endif
}

// Converts to the bits of the nearest IEEE 754 half precision number, and back.
__device__ __forceinline__ uint16_t to_f16(float x) {
#ifdef TGNN_HOST
  return emu::from_bits<uint16_t>(emu::bits(_Float16(x)));
#else
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
#endif
}
__device__ __forceinline__ float from_f16(uint16_t bits) {
#ifdef TGNN_HOST
  return float(emu::from_bits<_Float16>(bits));
#else
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
#endif
}

// Warp-wide products on the matrix units: d (16 x 8) += a (16 x depth) b (depth x 8) with f32 sums. With g = lane / 4
// and t = lane % 4, d = {(g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1)} as (row, column).

// TF32, depth 8: a = {(g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4)}, b = {(t, g), (t + 4, g)}. PTX mma.m16n8k8.
__device__ __forceinline__ void mma_tf32(float (&d)[4], const float (&a)[4], const float (&b)[2]) {
#ifdef TGNN_HOST
  // The matrix units ignore the bits beyond the 11 significant ones.
  auto cut = [](float x) { return x != x ? x : __uint_as_float(__float_as_uint(x) & 0xFFFFE000u); };
  emu::Operands<1> mine{{{cut(a[0])}, {cut(a[1])}, {cut(a[2])}, {cut(a[3])}}, {{cut(b[0])}, {cut(b[1])}}, &d};
  emu::multiply(mine);
#else
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[3])),
        "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
#endif
}

// bfloat16, depth 16, two numbers per register: a = {(g, 2t..), (g + 8, 2t..), (g, 2t + 8..), (g + 8, 2t + 8..)},
// b = {(2t.., g), (2t + 8.., g)}. PTX mma.m16n8k16.
__device__ __forceinline__ void mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#ifdef TGNN_HOST
  emu::Operands<2> mine;
  auto apart = [](uint32_t pair, float (&to)[2]) {
    to[0] = __uint_as_float(pair << 16), to[1] = __uint_as_float(pair & 0xFFFF0000u);
  };
  for (int i = 0; i < 4; i++) apart(a[i], mine.a[i]);
  for (int i = 0; i < 2; i++) apart(b[i], mine.b[i]);
  mine.d = &d;
  emu::multiply(mine);
#else
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

// ---- shared memory ----
// The address of a float in the block's shared memory. It is made once and kept in a register: the compiler would make
// a pointer anew in every round of a loop, from a special register.
class Shared {
 public:
  Shared() = default;
  __device__ __forceinline__ explicit Shared(float* x) {
#ifdef TGNN_HOST
    at = x;
#else
    at = uint32_t(__cvta_generic_to_shared(x));
    asm volatile("" : "+r"(at));
#endif
  }
  __device__ __forceinline__ Shared operator+(uint32_t floats) const {
    Shared there = *this;
    there.at += floats * (sizeof(at) == sizeof(uint32_t) ? sizeof(float) : 1);
    return there;
  }
  // The float at a constant distance.
  template <uint32_t FLOATS> __device__ __forceinline__ float load() const {
#ifdef TGNN_HOST
    return at[FLOATS];
#else
    float x;
    asm volatile("ld.shared.f32 %0, [%1+%2];" : "=f"(x) : "r"(at), "n"(4 * FLOATS) : "memory");
    return x;
#endif
  }
  // Four matrices of 8 rows of 4 floats: lane l has the address of row l % 8 of matrix l / 8. Of every matrix it receives
  // the element of row l / 4 in column l % 4. A row is aligned to 16 bytes. PTX ldmatrix, which takes them for 16-bit
  // numbers.
  template <uint32_t FLOATS>
  __device__ __forceinline__ void load_matrices(float& x0, float& x1, float& x2, float& x3) const {
#ifdef TGNN_HOST
    emu::Rows mine{at + FLOATS, {&x0, &x1, &x2, &x3}};
    emu::Shown shown{emu::take_matrices, &mine};
    emu::collective(emu::Collective::Together, ~0u, reinterpret_cast<uintptr_t>(&shown), 0, __LINE__);
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4+%5];"
                 : "=r"(reinterpret_cast<uint32_t&>(x0)), "=r"(reinterpret_cast<uint32_t&>(x1)),
                   "=r"(reinterpret_cast<uint32_t&>(x2)), "=r"(reinterpret_cast<uint32_t&>(x3))
                 : "r"(at), "n"(4 * FLOATS) : "memory");
#endif
  }
  __device__ __forceinline__ void store(float x) const {
#ifdef TGNN_HOST
    *at = x;
#else
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(x) : "memory");
#endif
  }
  // Stores four floats, aligned to 16 bytes.
  __device__ __forceinline__ void store(const float (&x)[4]) const {
#ifdef TGNN_HOST
    for (int i = 0; i < 4; i++) at[i] = x[i];
#else
    asm volatile("st.shared.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(at), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]) : "memory");
#endif
  }
  // Starts to copy N floats, 1 or 4, from global memory; both addresses are aligned to their size. The thread itself must
  // wait for the copy (`copies_wait`); other threads see it after a barrier. PTX cp.async.
  template <int N> __device__ __forceinline__ void copy(const float* from) const {
    static_assert(N == 1 || N == 4, "4 or 16 bytes");
#ifdef TGNN_HOST
    for (int i = 0; i < N; i++) at[i] = from[i];
#else
    if (N == 4) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
    else asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at), "l"(from) : "memory");
#endif
  }

 private:
#ifdef TGNN_HOST
  float* at;
#else
  uint32_t at;
#endif
};
// Ends a group of copies: those that this thread has started since the last one.
__device__ __forceinline__ void copies_end() {
#ifndef TGNN_HOST
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Waits for all groups but the last N.
template <int N> __device__ __forceinline__ void copies_wait() {
#ifndef TGNN_HOST
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}

// ---- thread block clusters ----
// From compute capability 9.0 on, a launch may combine blocks into clusters. The blocks of a cluster run at the same
// time and read each other's shared memory ("distributed shared memory"). On older devices, and in a launch without
// clusters, every block is a cluster of its own. A warp executes the functions of the barrier as a whole.
//
// - `cluster_blocks` is the number of blocks of this block's cluster, `cluster_rank` the rank of this one among them,
//   from 0 on, along x first, then y, then z.
// - The barrier of a cluster has two steps. `cluster_arrive` does not wait; `cluster_wait` waits until every thread of
//   the cluster has arrived or exited. After it, all that they did to memory before they arrived is complete and
//   visible. A thread that has arrived may exit, or it must wait before it arrives again.
// - `cluster_arrive_shared` is for threads of which only writes to their own block's shared memory must be visible. It
//   needs no fence of the whole GPU (MEMBAR.ALL.GPU), which `cluster_arrive` has.
// - `in_block` is the address of what another block of the cluster has at `own` in its shared memory. That block must
//   be running: it has begun if this one has waited at a barrier of the cluster, and it may not exit before its memory
//   has been read.
#ifndef TGNN_HOST  // the host's versions are in emu/cuda.hpp
#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ uint32_t cluster_blocks() {
  uint32_t blocks;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
  return blocks;
}
__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_arrive_shared() {
  asm volatile("fence.release.sync_restrict::shared::cta.cluster;\n\tbarrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
template <class T> __device__ __forceinline__ T* in_block(T* own, uint32_t rank) {
  T* there;
  asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(own), "r"(rank));
  return there;
}
#else
__device__ __forceinline__ uint32_t cluster_blocks() { return 1; }
__device__ __forceinline__ uint32_t cluster_rank() { return 0; }
__device__ __forceinline__ void cluster_arrive() {}
__device__ __forceinline__ void cluster_arrive_shared() {}
__device__ __forceinline__ void cluster_wait() { __syncthreads(); }
template <class T> __device__ __forceinline__ T* in_block(T* own, uint32_t) { return own; }
#endif
#endif

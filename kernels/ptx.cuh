// Instructions without a CUDA C++ intrinsic. Each has a host version with the same registers and the same result.
#pragma once
#include "common.cuh"

#ifdef TGNN_HOST
namespace emu {
// The registers of one lane in a warp-wide matrix product: operands a and b, and where d is.
struct Operands {
  float a[4], b[2];
  float (*d)[4];
};
// d (16 x 8) += a b over a depth of 8, for all lanes at once.
inline void multiply(void* const* lanes) {
  auto of = [&](unsigned lane) { return static_cast<const Operands*>(lanes[lane]); };
  float a[16][8];
  Columns b[8];
  for (unsigned lane = 0; lane < 32; lane++) {
    unsigned g = lane / 4, t = lane % 4;
    for (unsigned i = 0; i < 4; i++) a[g + i % 2 * 8][t + i / 2 * 4] = of(lane)->a[i];
    for (unsigned i = 0; i < 2; i++) b[t + i * 4][g] = of(lane)->b[i];
  }
  for (unsigned row = 0; row < 16; row++) {
    auto d = [&](unsigned column) -> float& { return (*of(row % 8 * 4 + column / 2)->d)[row / 8 * 2 + column % 2]; };
    Columns sum;
    for (unsigned column = 0; column < 8; column++) sum[column] = d(column);
    add_products(current->block->matrix, a[row], b, sum);
    for (unsigned column = 0; column < 8; column++) d(column) = sum[column];
  }
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

// A warp-wide product on the matrix units: d (16 x 8) += a (16 x 8) b (8 x 8), of TF32 numbers, with f32 sums. With
// g = lane / 4 and t = lane % 4, d = {(g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1)} as (row, column),
// a = {(g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4)}, b = {(t, g), (t + 4, g)}. PTX mma.m16n8k8.
__device__ __forceinline__ void mma_tf32(float (&d)[4], const float (&a)[4], const float (&b)[2]) {
#ifdef TGNN_HOST
  // The matrix units ignore the bits beyond the 11 significant ones.
  auto cut = [](float x) { return x != x ? x : __uint_as_float(__float_as_uint(x) & 0xFFFFE000u); };
  emu::Operands mine{{cut(a[0]), cut(a[1]), cut(a[2]), cut(a[3])}, {cut(b[0]), cut(b[1])}, &d};
  emu::Shown shown{emu::multiply, &mine};
  emu::collective(emu::Collective::Together, ~0u, reinterpret_cast<uintptr_t>(&shown), 0, __LINE__);
#else
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[3])),
        "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
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

 private:
#ifdef TGNN_HOST
  float* at;
#else
  uint32_t at;
#endif
};
// A number that is the same in all lanes of a warp, which the compiler need not know.
__device__ __forceinline__ uint32_t uniform(uint32_t x) { return __shfl_sync(ALL, x, 0); }

// ---- products of a warp's rows and columns in shared memory ----
// Sums of 16 rows and 64 columns: eight adjacent fragments, as `mma_tf32` has them.
struct WarpSums {
  float at[8][4];
  // The compiler does not move these zeros. If it did, ptxas would find them among the products of wgmma, and let each
  // product wait for the one before.
  __device__ __forceinline__ void set_zero() {
#pragma unroll
    for (int n = 0; n < 8; n++) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
#ifdef TGNN_HOST
        at[n][i] = 0.f;
#else
        asm volatile("mov.f32 %0, 0f00000000;" : "=f"(at[n][i]));
#endif
      }
    }
  }
  __device__ __forceinline__ void add(const WarpSums& other) {
#pragma unroll
    for (int n = 0; n < 8; n++) {
#pragma unroll
      for (int i = 0; i < 4; i++) at[n][i] += other.at[n][i];
    }
  }
};
constexpr uint32_t COLUMN_DEPTH = 16;  // floats of a column in shared memory, 64 bytes
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
// wgmma: the four warps of a group multiply the same columns, and `mma_wait` waits for the sums. Until then, neither
// operand may change. What threads have stored in shared memory the matrix units see after `group_barrier`.
class SharedColumns {
 public:
  // Columns of 64 bytes, in groups of 8, with the 64-byte swizzle.
  __device__ __forceinline__ explicit SharedColumns(const float* first)
      : place(uint32_t(__cvta_generic_to_shared(first)) >> 4 & 0x3FFF) {}
  __device__ __forceinline__ SharedColumns operator+(uint32_t floats) const { return SharedColumns(place + floats / 4); }
  __device__ __forceinline__ uint64_t at(uint32_t product) const {  // 32 bytes further
    return uint64_t(place + 2 * product) | 1ull << 16 | 32ull << 32 | 2ull << 62;
  }

 private:
  __device__ __forceinline__ explicit SharedColumns(uint32_t place) : place(place) {}
  uint32_t place;  // in units of 16 bytes; a slab does not reach beyond 14 bits
};
#define TGNN_SUMS(as, x) \
  as(x.at[0][0]), as(x.at[0][1]), as(x.at[0][2]), as(x.at[0][3]), as(x.at[1][0]), as(x.at[1][1]), as(x.at[1][2]), \
  as(x.at[1][3]), as(x.at[2][0]), as(x.at[2][1]), as(x.at[2][2]), as(x.at[2][3]), as(x.at[3][0]), as(x.at[3][1]), \
  as(x.at[3][2]), as(x.at[3][3]), as(x.at[4][0]), as(x.at[4][1]), as(x.at[4][2]), as(x.at[4][3]), as(x.at[5][0]), \
  as(x.at[5][1]), as(x.at[5][2]), as(x.at[5][3]), as(x.at[6][0]), as(x.at[6][1]), as(x.at[6][2]), as(x.at[6][3]), \
  as(x.at[7][0]), as(x.at[7][1]), as(x.at[7][2]), as(x.at[7][3])
// Adds a product to the sums, or to zero.
__device__ __forceinline__ void mma_columns(WarpSums& d, const float (&a)[4], uint64_t b, bool add) {
  asm volatile(
      "{\n\t.reg .pred add;\n\tsetp.ne.b32 add, %37, 0;\n\t"
      "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,"
      "%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, {%32,%33,%34,%35}, %36, add, 1, 1;\n\t}"
      : TGNN_SUMS("+f", d)
      : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[3])),
        "l"(b), "r"(uint32_t(add))
      : "memory");
}
// The operands are in their registers, the low parts only if they are used.
template <bool LOW, class Rows> __device__ __forceinline__ void mma_begin(Rows& a) {
#pragma unroll
  for (int k = 0; k < 2; k++) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      asm volatile("" : "+f"(a.high[k][i])::"memory");
      if (LOW) asm volatile("" : "+f"(a.low[k][i])::"memory");
    }
  }
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void mma_end() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void mma_wait(WarpSums& d) {
  asm volatile("wgmma.wait_group.sync.aligned 0;" : TGNN_SUMS("+f", d)::"memory");
}
__device__ __forceinline__ void group_barrier(uint32_t group) {
  asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
}
__device__ __forceinline__ void group_barrier_of_columns(uint32_t group) {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  group_barrier(group);
}
#else
// Eight products of the warp alone.
class SharedColumns {
 public:
  __device__ __forceinline__ explicit SharedColumns(float* first) {
    uint32_t lane = lane_id(), row = lane / 16 * 8 + lane % 8;
#pragma unroll
    for (uint32_t product = 0; product < 2; product++) {
      of[product] = Shared(first + row * COLUMN_DEPTH + 4 * ((2 * product + lane / 8 % 2) ^ (row / 2 % 4)));
    }
  }
  __device__ __forceinline__ SharedColumns operator+(uint32_t floats) const {
    SharedColumns there = *this;
    there.of[0] = of[0] + floats, there.of[1] = of[1] + floats;
    return there;
  }
  __device__ __forceinline__ Shared at(uint32_t product) const { return of[product]; }

 private:
  Shared of[2];  // what this lane loads for `Shared::load_matrices`
};
template <uint32_t N = 0> __device__ __forceinline__ void mma_columns(WarpSums& d, const float (&a)[4], Shared b, bool add) {
  if (N == 0 && !add) d = {};
  float of[2][2];
  b.load_matrices<N * 8 * COLUMN_DEPTH>(of[0][0], of[0][1], of[1][0], of[1][1]);
  mma_tf32(d.at[N], a, of[0]), mma_tf32(d.at[N + 1], a, of[1]);
  if constexpr (N + 2 < 8) mma_columns<N + 2>(d, a, b, true);
}
template <bool LOW, class Rows> __device__ __forceinline__ void mma_begin(Rows&) {}
__device__ __forceinline__ void mma_end() {}
__device__ __forceinline__ void mma_wait(WarpSums&) {}
__device__ __forceinline__ void group_barrier(uint32_t) { __syncthreads(); }
__device__ __forceinline__ void group_barrier_of_columns(uint32_t) { __syncthreads(); }
#endif

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

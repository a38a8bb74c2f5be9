// Instructions that CUDA C++ has no word for, each with a body for the host: the same registers, the same result.
#pragma once
#include "common.cuh"

#ifdef TGNN_HOST
namespace emu {
// Every lane shows its registers; all may read all while this lives.
template <class T> struct Lanes {
  const T* of(unsigned lane) const { return static_cast<const T*>(shown()[lane]); }
  explicit Lanes(const T* mine) {
    shown()[current->lane] = mine;
    collective(Collective::Sync, ~0u, 0, 0, __LINE__);
  }
  ~Lanes() { collective(Collective::Sync, ~0u, 0, 0, __LINE__); }
  static const void** shown() {
    static const void* table[32][32];
    const uint3& t = current->index;
    return table[(t.x + block.block.x * (t.y + block.block.y * t.z)) / 32];
  }
};
}  // namespace emu
#endif

// The nearest TF32 (eleven significant bits), as an f32.
__device__ __forceinline__ float to_tf32(float x) {
#ifdef TGNN_HOST
  return __uint_as_float((__float_as_uint(x) + 0x1000u) & 0xFFFFE000u);
#else
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return __uint_as_float(bits);
#endif
}

// A matrix-unit product of a warp: d (16 x 8) += a (16 x 8) b (8 x 8), TF32 in, f32 sums. With g = lane / 4, t = lane % 4:
// a = {(g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4)}, b = {(t, g), (t + 4, g)}, d = {(g, 2t), (g, 2t + 1),
// (g + 8, 2t), (g + 8, 2t + 1)}, as (row, column). PTX mma.m16n8k8.
__device__ __forceinline__ void mma_tf32(float (&d)[4], const float (&a)[4], const float (&b)[2]) {
#ifdef TGNN_HOST
  struct Registers { float a[4], b[2]; } mine{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  emu::Lanes<Registers> lanes(&mine);
  unsigned g = lane_id() / 4, t = lane_id() % 4;
  for (unsigned i = 0; i < 4; i++) {
    unsigned row = g + 8 * (i / 2), column = 2 * t + i % 2;
    float sum = 0.f;
    for (unsigned k = 0; k < 8; k++) {
      const Registers& ra = *lanes.of((row % 8) * 4 + k % 4);
      const Registers& rb = *lanes.of(column * 4 + k % 4);
      sum += ra.a[row / 8 + 2 * (k / 4)] * rb.b[k / 4];
    }
    d[i] += sum;
  }
#else
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[3])),
        "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
#endif
}

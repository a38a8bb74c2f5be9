// Rows of stored tables with a 16-bit storage type: converted to f32 on reading, rounded to nearest on writing.
//
// A kernel takes 16-bit words and a format code (`BRAIN` or not). The kernels of f32 tables instantiate the same
// templates with float.
#pragma once
#include "ptx.cuh"

constexpr uint32_t BRAIN = 1;  // bfloat16; any other value means IEEE 754 half precision (`Launch::halves`)

// One number, or four consecutive ones, as stored in memory.
template <bool brain> struct Half { uint16_t bits; };
template <bool brain> struct alignas(8) Half4 { uint32_t low, high; };

template <bool brain> __device__ __forceinline__ float real_of(uint32_t bits) {
  if constexpr (brain) return __uint_as_float(bits << 16);
  else return from_f16(uint16_t(bits));
}
// Packs two numbers into a word, the first one in the lower half.
template <bool brain> __device__ __forceinline__ uint32_t half_of(float a, float b) {
  if constexpr (brain) return to_bf16x2(a, b);
  else return to_f16(a) | uint32_t(to_f16(b)) << 16;
}

// Converts stored numbers to f32.
__device__ __forceinline__ float real(float x) { return x; }
__device__ __forceinline__ float4 real(float4 x) { return x; }
template <bool brain> __device__ __forceinline__ float real(Half<brain> x) { return real_of<brain>(x.bits); }
template <bool brain> __device__ __forceinline__ float4 real(Half4<brain> x) {
  return make_float4(real_of<brain>(x.low & 0xffffu), real_of<brain>(x.low >> 16), real_of<brain>(x.high & 0xffffu),
                     real_of<brain>(x.high >> 16));
}
// Rounds f32 numbers to the storage type and stores them.
__device__ __forceinline__ void keep(float& to, float x) { to = x; }
__device__ __forceinline__ void keep(float4& to, float4 x) { to = x; }
template <bool brain> __device__ __forceinline__ void keep(Half<brain>& to, float x) {
  to.bits = uint16_t(half_of<brain>(x, 0.f) & 0xffffu);
}
template <bool brain> __device__ __forceinline__ void keep(Half4<brain>& to, float4 x) {
  to = {half_of<brain>(x.x, x.y), half_of<brain>(x.z, x.w)};
}

// Calls the generic lambda `use` with `words` cast to a pointer to the stored number type that `kind` names.
template <class Use> __device__ __forceinline__ void as_kept(uint16_t* words, uint32_t kind, Use use) {
  if (kind == BRAIN) use(reinterpret_cast<Half<true>*>(words));
  else use(reinterpret_cast<Half<false>*>(words));
}
template <class Use> __device__ __forceinline__ void as_kept(const uint16_t* words, uint32_t kind, Use use) {
  if (kind == BRAIN) use(reinterpret_cast<const Half<true>*>(words));
  else use(reinterpret_cast<const Half<false>*>(words));
}
// Casts a pointer to single numbers to a pointer to groups of four.
template <bool brain> __device__ __forceinline__ Half4<brain>* fours(Half<brain>* p) {
  return reinterpret_cast<Half4<brain>*>(p);
}
template <bool brain> __device__ __forceinline__ const Half4<brain>* fours(const Half<brain>* p) {
  return reinterpret_cast<const Half4<brain>*>(p);
}
__device__ __forceinline__ float4* fours(float* p) { return reinterpret_cast<float4*>(p); }
__device__ __forceinline__ const float4* fours(const float* p) { return reinterpret_cast<const float4*>(p); }

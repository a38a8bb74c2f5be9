// Rows of stored tables whose real numbers are kept in 16 bits: read as f32, rounded to the nearest where they are written.
//
// A kernel takes their words and what they are (`BRAIN` or not); the f32 tables' kernels are the same templates on float.
#pragma once
#include "ptx.cuh"

constexpr uint32_t BRAIN = 1;  // bfloat16; else IEEE 754's half (`Launch::halves`)

// One number, or four side by side, as they lie in memory.
template <bool brain> struct Half { uint16_t bits; };
template <bool brain> struct alignas(8) Half4 { uint32_t low, high; };

template <bool brain> __device__ __forceinline__ float real_of(uint32_t bits) {
  if constexpr (brain) return __uint_as_float(bits << 16);
  else return from_f16(uint16_t(bits));
}
// Two numbers, the first in the lower half of the word.
template <bool brain> __device__ __forceinline__ uint32_t half_of(float a, float b) {
  if constexpr (brain) return to_bf16x2(a, b);
  else return to_f16(a) | uint32_t(to_f16(b)) << 16;
}

// What a step sees of what is kept.
__device__ __forceinline__ float real(float x) { return x; }
__device__ __forceinline__ float4 real(float4 x) { return x; }
template <bool brain> __device__ __forceinline__ float real(Half<brain> x) { return real_of<brain>(x.bits); }
template <bool brain> __device__ __forceinline__ float4 real(Half4<brain> x) {
  return make_float4(real_of<brain>(x.low & 0xffffu), real_of<brain>(x.low >> 16), real_of<brain>(x.high & 0xffffu),
                     real_of<brain>(x.high >> 16));
}
// What is kept of what a step made.
__device__ __forceinline__ void keep(float& to, float x) { to = x; }
__device__ __forceinline__ void keep(float4& to, float4 x) { to = x; }
template <bool brain> __device__ __forceinline__ void keep(Half<brain>& to, float x) {
  to.bits = uint16_t(half_of<brain>(x, 0.f) & 0xffffu);
}
template <bool brain> __device__ __forceinline__ void keep(Half4<brain>& to, float4 x) {
  to = {half_of<brain>(x.x, x.y), half_of<brain>(x.z, x.w)};
}

// `use` with the words as numbers of their type, which it takes by a template.
template <class Use> __device__ __forceinline__ void as_kept(uint16_t* words, uint32_t kind, Use use) {
  if (kind == BRAIN) use(reinterpret_cast<Half<true>*>(words));
  else use(reinterpret_cast<Half<false>*>(words));
}
template <class Use> __device__ __forceinline__ void as_kept(const uint16_t* words, uint32_t kind, Use use) {
  if (kind == BRAIN) use(reinterpret_cast<const Half<true>*>(words));
  else use(reinterpret_cast<const Half<false>*>(words));
}
// Four at a time.
template <bool brain> __device__ __forceinline__ Half4<brain>* fours(Half<brain>* p) {
  return reinterpret_cast<Half4<brain>*>(p);
}
template <bool brain> __device__ __forceinline__ const Half4<brain>* fours(const Half<brain>* p) {
  return reinterpret_cast<const Half4<brain>*>(p);
}
__device__ __forceinline__ float4* fours(float* p) { return reinterpret_cast<float4*>(p); }
__device__ __forceinline__ const float4* fours(const float* p) { return reinterpret_cast<const float4*>(p); }

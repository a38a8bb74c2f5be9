// The time encoding Phi(dt) = cos(w dt + b), and its derivative.
//
// Sine and cosine have the series of the host (`runtime::simd`). CUDA's would reduce angles beyond 105,615 radians by a
// hundred instructions and an array in local memory, and old events have such angles.
#pragma once
#include "common.cuh"

// The argument of the cosine: a product and a sum, each rounded separately, as on the host.
__device__ __forceinline__ float time_angle(float dt, float w, float b) { return __fadd_rn(__fmul_rn(w, dt), b); }

// An angle without its multiples of pi: at most slightly above pi / 2, and the sign bit that flips sine and cosine.
struct Turned {
  float rest;
  uint32_t flip;
  static __device__ __forceinline__ bool near(float x) { return fabsf(x) < 4194304.f; }
  // Of an angle that is `near`: pi in three parts is exact enough below 2^22 radians.
  struct Near { float x; };
  __device__ __forceinline__ explicit Turned(Near angle) {
    constexpr float SHIFT = 12582912.f;  // a float of this size has no fraction
    float shifted = fmaf(angle.x, 0.318309886f, SHIFT), k = shifted - SHIFT;
    rest = fmaf(k, 3.430249e-15f, fmaf(k, 8.742278e-8f, fmaf(k, -3.14159274f, angle.x)));
    flip = __float_as_uint(shifted) << 31;
  }
  __device__ __forceinline__ explicit Turned(float x) {
    if (near(x)) {
      *this = Turned(Near{x});
    } else {
      double k = rint(double(x) * 0.3183098861837907);
      double r = fma(k, -1.2246467991473532e-16, fma(k, -3.141592653589793, double(x)));
      rest = float(r > 2 ? 2 : r < -2 ? -2 : r);  // beyond 2^52 radians nothing is left of the angle
      flip = k - 2 * floor(k / 2) != 0 ? 1u << 31 : 0;
    }
  }
  __device__ __forceinline__ float flipped(float y) const { return __uint_as_float(__float_as_uint(y) ^ flip); }
  // The series to r^12 and r^13; absolute errors below 2.5e-7.
  __device__ __forceinline__ float cosine() const {
    float s = rest * rest, y = fmaf(2.0876757e-9f, s, -2.755732e-7f);
    y = fmaf(y, s, 2.4801587e-5f), y = fmaf(y, s, -1.3888889e-3f), y = fmaf(y, s, 4.1666668e-2f);
    return flipped(fmaf(fmaf(y, s, -0.5f), s, 1.f));
  }
  __device__ __forceinline__ float sine() const {
    float s = rest * rest, y = fmaf(1.6059044e-10f, s, -2.5052108e-8f);
    y = fmaf(y, s, 2.7557319e-6f), y = fmaf(y, s, -1.984127e-4f), y = fmaf(y, s, 8.333334e-3f);
    y = fmaf(y, s, -1.6666667e-1f);
    return flipped(fmaf(y, s * rest, rest));
  }
};

// Numbers as PTX instructions compute them, where C++ has no operation for it: NaN, rounding, conversions, bit fields.
#pragma once
#include "../matrix.hpp"
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace emu::ptx {
template <class To, class From> inline To bits_as(From x) {
  static_assert(sizeof(To) == sizeof(From), "the same bits");
  To y;
  memcpy(&y, &x, sizeof y);
  return y;
}

// The bits of a result of arithmetic. A NaN is 0x7fffffff in f32; in f64, the ISA leaves its bits open.
constexpr uint32_t NAN32 = 0x7fffffffu;
inline uint32_t bits_of(float x) { return x != x ? NAN32 : bits_as<uint32_t>(x); }
inline uint64_t bits_of(double x) { return x != x ? 0x7ff8000000000000ull : bits_as<uint64_t>(x); }

// Replaces a subnormal number by zero (.ftz).
inline float flush(float x) { return std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.f, x) : x; }

// a b + c, rounded down (.rm) or towards zero (.rz). The product is exact in double; the sum is exact as two doubles.
enum class Rounding { Down, Zero };
inline float fma_rounded(float a, float b, float c, Rounding how) {
  double product = double(a) * b, sum = product + c;
  if (!std::isfinite(sum)) return float(sum);
  double part = sum - product, rest = (product - (sum - part)) + (c - part);
  if (sum == 0) {  // the sum is exact; x - x is -0 only if rounded down
    if (product != 0 || std::signbit(product) != std::signbit(c)) return how == Rounding::Down ? -0.f : 0.f;
    return float(sum);
  }
  float nearest = float(sum);
  double above = double(nearest) - sum;  // exact; compared with the rest, whether `nearest` is above the exact sum
  bool too_high = above > rest, too_low = above < rest;
  if (too_high && (how == Rounding::Down || sum > 0)) return std::nextafterf(nearest, -INFINITY);
  if (too_low && how == Rounding::Zero && sum < 0) return std::nextafterf(nearest, INFINITY);
  return nearest;
}

// To the nearest TF32, ties away from zero (.rna).
inline uint32_t to_tf32(float x) { return x != x ? NAN32 : (bits_as<uint32_t>(x) + 0x1000u) & 0xFFFFE000u; }
// The bits of a TF32 operand that the matrix units use. Infinities and NaN stay what they are.
inline float cut_tf32(uint32_t bits) {
  float x = bits_as<float>(bits);
  return x != x ? x : bits_as<float>(bits & 0xFFFFE000u);
}
// To the nearest bfloat16, ties to even.
inline uint32_t to_bf16(float x) {
  uint32_t bits = bits_as<uint32_t>(x);
  return x != x ? 0x7fffu : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}
inline uint32_t to_f16(float x) { return x != x ? 0x7fffu : bits_as<uint16_t>(_Float16(x)); }
inline uint32_t from_f16(uint32_t bits) { return bits_of(float(bits_as<_Float16>(uint16_t(bits)))); }

// To the nearest integer, ties to even; beyond the range the nearest end of it, and 0 for NaN (cvt.rni.s32.f32).
inline uint32_t to_nearest_s32(float x) {
  double r = std::nearbyint(double(x));
  if (r != r) return 0;
  if (r >= 2147483647.0) return 0x7fffffffu;
  return r <= -2147483648.0 ? 0x80000000u : uint32_t(int32_t(r));
}

// The other number if one is NaN; -0 is less than +0.
inline float least(float a, float b) {
  if (a != a) return b;
  if (b != b) return a;
  if (a == 0 && b == 0) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}
inline float largest(float a, float b) {
  if (a != a) return b;
  if (b != b) return a;
  if (a == 0 && b == 0) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}

// A shift by the width or more leaves nothing but the sign.
template <class T> inline T shifted_left(T x, uint32_t by) { return by >= sizeof(T) * 8 ? T(0) : T(x << by); }
template <class T> inline T shifted_right(T x, uint32_t by) {
  if (by >= sizeof(T) * 8) return std::is_signed<T>::value && x < 0 ? T(-1) : T(0);
  return T(x >> by);
}

// `into` with the lower `length` bits of `x` from bit `position` on (bfi).
template <class T> inline T inserted(T x, T into, uint32_t position, uint32_t length) {
  constexpr uint32_t WIDTH = sizeof(T) * 8;
  position &= 0xff, length &= 0xff;
  if (position >= WIDTH || length == 0) return into;
  T ones = length >= WIDTH ? T(~T(0)) : T((T(1) << length) - 1);
  T field = T(ones << position);
  return (into & ~field) | (T(x << position) & field);
}
inline uint32_t reversed(uint32_t x) {
  x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
  x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
  x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
  return __builtin_bswap32(x);
}
}  // namespace emu::ptx

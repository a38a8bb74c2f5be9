// The matrix units of a chip, as far as results show them.
//
// A unit adds products to a sum a few at a time: it aligns their exact values and the sum to the largest of them, cuts
// off the bits below the last kept one, adds, and cuts the result to f32. Nothing is rounded to nearest, so long sums
// drift towards zero. NVIDIA does not document this; it has been measured (Fasi et al., PeerJ CS 7:e330, 2021; arXiv
// 2512.07004).
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

namespace emu {
struct MatrixUnits {
  unsigned terms;  // products of TF32 added at a time. 0: all, exactly, rounded once
  unsigned extra;  // bits kept below the last one of the largest term as f32
};
constexpr MatrixUnits H100{8, 2}, A100{4, 1}, EXACT{0, 0};

// Sums of eight dot products at a time, one for each column of `b`.
using Columns = float[8];

inline float from_word(uint32_t word) {
  float x;
  memcpy(&x, &word, sizeof x);
  return x;
}
inline uint32_t word_of(float x) {
  uint32_t word;
  memcpy(&word, &x, sizeof word);
  return word;
}

// Most of the time of a product is here, so the loops over columns are vectorised. They use nothing but their own
// arrays, so the thread sanitizer need not watch them.
#if defined(__SANITIZE_THREAD__)
#define VECTORISED __attribute__((no_sanitize("thread"), noinline, optimize("O3")))
#else
#define VECTORISED __attribute__((noinline, optimize("O3")))
#endif

// Adds a[k] b[k] over k < n to the sums as a unit does that keeps `extra` bits. Products of TF32 numbers are exact in
// f32.
VECTORISED inline void add_cut(const float* a, const Columns* b, unsigned n, unsigned extra, Columns& sum) {
  Columns product[8], plain, largest;
  for (int c = 0; c < 8; c++) plain[c] = sum[c], largest[c] = std::fabs(sum[c]);
  for (unsigned k = 0; k < n; k++) {
    for (int c = 0; c < 8; c++) product[k][c] = a[k] * b[k][c], plain[c] += product[k][c];
    for (int c = 0; c < 8; c++) {
      float x = std::fabs(product[k][c]);
      largest[c] = largest[c] < x ? x : largest[c];
    }
  }
  // No term has more than 2^26 units, so that all together fit 32 bits. (Unsigned: infinities and NaN may wrap.)
  uint32_t units[8];
  float per_unit[8], unit[8];
  for (int c = 0; c < 8; c++) {
    uint32_t exponent = word_of(largest[c]) >> 23;
    exponent = exponent < 24 + extra ? 24 + extra : exponent;  // below, the unit would not be a normal number
    per_unit[c] = from_word((277 + extra - exponent) << 23);
    unit[c] = from_word((exponent - 23 - extra) << 23);
    units[c] = uint32_t(int32_t(sum[c] * per_unit[c]));
  }
  for (unsigned k = 0; k < n; k++) {
    for (int c = 0; c < 8; c++) units[c] += uint32_t(int32_t(product[k][c] * per_unit[c]));
  }
  for (int c = 0; c < 8; c++) {
    int32_t total = int32_t(units[c]);
    float nearest = float(total);
    bool beyond = std::fabs(double(nearest)) > std::fabs(double(total));
    float cut = from_word(word_of(nearest) - beyond) * unit[c];
    // Infinities and NaN have no bits to cut.
    sum[c] = std::isfinite(plain[c]) ? cut : plain[c];
  }
}

// Adds a[k] b[k] over k < 8 to the sums.
inline void add_products(MatrixUnits units, const float* a, const Columns* b, Columns& sum) {
  constexpr unsigned DEPTH = 8;
  if (!units.terms) {
    for (int c = 0; c < 8; c++) {
      long double exact = sum[c];
      for (unsigned k = 0; k < DEPTH; k++) exact += (long double)a[k] * b[k][c];
      sum[c] = float(exact);
    }
    return;
  }
  for (unsigned k = 0; k < DEPTH; k += units.terms) add_cut(a + k, b + k, units.terms, units.extra, sum);
}
}  // namespace emu

// What one 32-bit lane of a matrix product's operands holds: a float, or, where the CPU multiplies
// such, a pair of bfloat16. Both products of attention are the same loop over units.

#pragma once

#include "vectors.h"

namespace {

// One float; bfloat16 is widened.
template <class T>
struct Single {
  static constexpr int kElements = 1;
  static constexpr bool kIsCoded = false;
  using Sum = Floats;

  template <class Q>
  static Floats load(const Q* from, int64_t n) {
    return load_elements(from, n);
  }

  static Floats whole(Floats sum) { return sum; }

  // One position's values, kValuesAtOnce at most, of which `n` exist.
  static constexpr int64_t kValuesAtOnce = kWidth;
  static void pack_values(const T* const* rows, int64_t first, int64_t n, float, float* to) {
    store(to, load_elements(rows[0] + first, n));
  }

  // Gives what is divided by at the end: the weights' sum is a sum of these.
  static Floats store_weights(float* to, int64_t lane, Floats weights) {
    store(to + lane, weights);
    return weights;
  }

  static Floats multiply_add(Floats sum, Floats x, float y) { return sum + x * y; }

  static Floats multiply_add_each(Floats sum, Floats x, Floats y) { return sum + x * y; }
};

#if defined(__AVX512BF16__)
// Two neighbours along the dimension that is summed over.
struct Pair {
  static constexpr int kElements = 2;
  static constexpr bool kIsCoded = false;
  using Sum = Floats;

  static __mmask32 mask(int64_t n) { return n >= 32 ? ~0u : (1u << n) - 1; }

  static Floats load(const BFloat16* from, int64_t n) {
    return (Floats)_mm512_maskz_loadu_epi16(mask(n), from);
  }

  static Floats load(const float* from, int64_t n) {
    Floats low = load_elements(from, n), high = load_elements(from + kWidth, max(0, n - kWidth));
    return (Floats)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
  }

  static Floats whole(Floats sum) { return sum; }

  // Two positions' values, interleaved.
  static constexpr int64_t kValuesAtOnce = 2 * kWidth;
  static void pack_values(const BFloat16* const* rows, int64_t first, int64_t n, float, float* to) {
    __m512i low = (__m512i)load(rows[0] + first, n), high = (__m512i)load(rows[1] + first, n);
    Ints order = lane_numbers() * 0x10001 + (kWidth * 2 << 16);  // i of the one, i of the other
    store(to, (Floats)_mm512_permutex2var_epi16(low, (__m512i)order, high));
    order += kWidth * 0x10001;
    if (n > kWidth) store(to + kWidth, (Floats)_mm512_permutex2var_epi16(low, (__m512i)order, high));
  }

  static Floats store_weights(float* to, int64_t lane, Floats weights) {
    __m256bh rounded = _mm512_cvtneps_pbh((__m512)weights);
    _mm256_storeu_si256((__m256i*)(to + lane / 2), (__m256i)rounded);
    return weights;
  }

  static Floats multiply_add(Floats sum, Floats x, float y) {
    return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)x, (__m512bh)_mm512_set1_ps(y));
  }

  static Floats multiply_add_each(Floats sum, Floats x, Floats y) {
    return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)x, (__m512bh)y);
  }
};
#endif

template <class T>
struct UnitOf {
  using Type = Single<T>;
};

#if defined(__AVX512BF16__)
template <>
struct UnitOf<BFloat16> {
  using Type = Pair;
};
#endif

// sums[r][n] += rows[r] . columns[n], `depth` units deep.
template <class Unit, int R, int N>
inline void multiply(const float* rows, int64_t row_stride, const float* columns,
                     int64_t column_stride, int64_t depth, typename Unit::Sum (&sums)[R][N]) {
  for (int64_t i = 0; i < depth; ++i) {
    Floats x[N];
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) x[n] = load(columns + i * column_stride + n * kWidth);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      float y = rows[r * row_stride + i];
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) sums[r][n] = Unit::multiply_add(sums[r][n], x[n], y);
    }
  }
}

// Calls `body.run_tile<R, vectors>(row, vector)` for tiles that cover all vectors.
template <class Body, int R, int N>
inline void cover_row(Body body, int64_t row, int64_t num_vectors) {
  int64_t vector = 0;
  for (; vector + N <= num_vectors; vector += N) body.template run_tile<R, N>(row, vector);
  if constexpr (N > 1) {
    for (; vector < num_vectors; ++vector) body.template run_tile<R, 1>(row, vector);
  }
}

// Calls `body.run_rows<rows>(row)` until all are covered.
template <class Body>
inline void by_rows(Body& body, int64_t row, int64_t end) {
  for (; row + kDown <= end; row += kDown) body.template run_rows<kDown>(row);
  if (end - row == 3) body.template run_rows<3>(row);
  if (end - row == 2) body.template run_rows<2>(row);
  if (end - row == 1) body.template run_rows<1>(row);
}

}  // namespace

// Vectors of the widest kind that the build may use, and what the compiler's own vector types lack.
//
// Everything lies in an unnamed namespace, and nothing of the standard library's templates is used:
// the linker merges equal names, and the portable build must not get the AVX-512 one's code.

#pragma once

#include <cstdint>

#if defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

// Loops that want all registers for themselves are functions of their own: joined with what is around
// them, the compiler keeps their sums in memory.
#define SPLICE_APART __attribute__((noinline))

namespace {

#if defined(__AVX512F__)
constexpr int kWidth = 16;
constexpr int kAcross = 4;  // accumulators: kDown rows x 4 vectors of 32 registers
#elif defined(__AVX2__)
constexpr int kWidth = 8;
constexpr int kAcross = 2;
#else
constexpr int kWidth = 4;
constexpr int kAcross = 2;
#endif
constexpr int kDown = 4;

typedef float Floats __attribute__((vector_size(4 * kWidth)));
typedef int32_t Ints __attribute__((vector_size(4 * kWidth)));
typedef float LooseFloats __attribute__((vector_size(4 * kWidth), aligned(4)));

struct BFloat16 {
  uint16_t bits;
};

inline int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }
inline int64_t rounded_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

inline Floats splat(float x) { return x - Floats{}; }
inline Floats load(const float* from) { return *reinterpret_cast<const LooseFloats*>(from); }
inline void store(float* to, Floats x) { *reinterpret_cast<LooseFloats*>(to) = x; }
inline Floats larger(Floats a, Floats b) { return a > b ? a : b; }

// So small a number that its inverse is none counts as zero; so does what isn't one.
inline float inverse_of(float scale) { return scale > 1e-30f ? 1 / scale : 0; }

inline float as_float(float x) { return x; }
inline float as_float(BFloat16 x) { return __builtin_bit_cast(float, uint32_t(x.bits) << 16); }

inline void round_to(float& to, float x) { to = x; }
inline void round_to(BFloat16& to, float x) {
  uint32_t bits = __builtin_bit_cast(uint32_t, x);
  bool is_nan = x != x;
  to.bits = is_nan ? 0x7fc0 : uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// A whole vector, rounded.
inline void store_rounded(float* to, Floats x) { store(to, x); }
inline void store_rounded(BFloat16* to, Floats x) {
#if defined(__AVX512BF16__)
  _mm256_storeu_si256((__m256i*)to, (__m256i)_mm512_cvtneps_pbh((__m512)x));
#else
  typedef uint16_t Rounded __attribute__((vector_size(2 * kWidth), aligned(2)));
  Ints bits = (Ints)x;
  Ints up = x == x ? bits + 0x7fff + (bits >> 16 & 1) : Ints{} + 0x7fc00000;
  *reinterpret_cast<Rounded*>(to) = __builtin_convertvector(up >> 16, Rounded);
#endif
}

// The first `count` of a vector, or all that it has.
template <class T>
inline void store_elements(T* to, int64_t count, Floats x) {
  if (count >= kWidth) return store_rounded(to, x);
  for (int i = 0; i < count; ++i) round_to(to[i], x[i]);
}

// 0, 1, 2, ...
inline Ints lane_numbers() {
  Ints numbers{};
  for (int i = 0; i < kWidth; ++i) numbers[i] = i;
  return numbers;
}

// Joins a vector's halves until one number is left.
#if defined(__AVX2__) && !defined(__AVX512F__)
template <class Join>
inline float reduced(Floats x, Join join) {
  __m128 y = join(_mm256_castps256_ps128((__m256)x), _mm256_extractf128_ps((__m256)x, 1));
  y = join(y, _mm_movehl_ps(y, y));
  return join(y, _mm_shuffle_ps(y, y, 1))[0];
}
#endif

inline float sum(Floats x) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_ps((__m512)x);
#elif defined(__AVX2__)
  return reduced(x, [](__m128 a, __m128 b) { return a + b; });
#else
  float total = x[0];
  for (int i = 1; i < kWidth; ++i) total += x[i];
  return total;
#endif
}

inline float largest(Floats x) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_ps((__m512)x);
#elif defined(__AVX2__)
  return reduced(x, [](__m128 a, __m128 b) { return _mm_max_ps(a, b); });
#else
  float most = x[0];
  for (int i = 1; i < kWidth; ++i) most = x[i] > most ? x[i] : most;
  return most;
#endif
}

// 2^f for |f| <= 1/2, within 8e-8 of itself: the polynomial whose largest relative error is least
// (Remez's algorithm).
inline Floats fraction_power(Floats f) {
  Floats y = splat(1.3276472e-3f);
  y = y * f + 9.6755413e-3f;
  y = y * f + 5.5507133e-2f;
  y = y * f + 2.4022120e-1f;
  y = y * f + 6.9314697e-1f;
  return y * f + 1.00000007f;
}

// 2 to the x, within 2e-7 of itself; 0 below the smallest normal number, large x saturate.
inline Floats power_of_two(Floats x) {
#if defined(__AVX512F__)
  __m512 least = _mm512_min_ps(_mm512_set1_ps(127), (__m512)x);  // of a NaN and another, the second
  __m512 whole = _mm512_roundscale_ps(least, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m512 y = (__m512)fraction_power((Floats)(least - whole));
  __mmask16 is_normal = _mm512_cmp_ps_mask(least, _mm512_set1_ps(-126), _CMP_NLT_UQ);
  return (Floats)_mm512_maskz_scalef_ps(is_normal, y, whole);
#else
  // The nearest integer goes into the exponent.
  Floats clamped = x < -127.f ? splat(-127.f) : x > 127.f ? splat(127.f) : x;
  Floats shifted = clamped + 12582912.f;  // 1.5 * 2^23: rounds to an integer, in the low bits
  Floats y = fraction_power(clamped - (shifted - 12582912.f));
  Floats result = (Floats)((Ints)y + ((Ints)shifted << 23));
  return x < -126.f ? Floats{} : result;
#endif
}

// tanh, as far as a soft cap needs it: the error is absolute, of 1e-7.
inline Floats tanh_of(Floats x) {
  Floats e = power_of_two(x * 2.8853901f);  // e^2x
  return 1.f - 2.f / (e + 1.f);
}

// kWidth elements from `from` on, of which `n` exist; zeros behind them.
inline Floats load_elements(const float* from, int64_t n) {
  if (n >= kWidth) return load(from);
  Floats x{};
  for (int i = 0; i < n; ++i) x[i] = from[i];
  return x;
}

inline Floats load_elements(const BFloat16* from, int64_t n) {
  if (n >= kWidth) {
#if defined(__AVX512F__)
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)from));
    return (Floats)_mm512_slli_epi32(wide, 16);
#elif defined(__AVX2__)
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)from));
    return (Floats)_mm256_slli_epi32(wide, 16);
#endif
  }
  Floats x{};
  for (int i = 0; i < (n < kWidth ? n : kWidth); ++i) x[i] = as_float(from[i]);
  return x;
}

// Rows become columns: x[i][j] is what x[j][i] was.
inline void transpose(Floats (&x)[kWidth]) {
#if defined(__AVX512F__)
  __m512 a[16], b[16];
  for (int i = 0; i < 16; i += 2) {
    a[i] = _mm512_unpacklo_ps((__m512)x[i], (__m512)x[i + 1]);
    a[i + 1] = _mm512_unpackhi_ps((__m512)x[i], (__m512)x[i + 1]);
  }
  for (int i = 0; i < 16; i += 4)
    for (int j = 0; j < 2; ++j) {
      __m512d low = (__m512d)a[i + j], high = (__m512d)a[i + j + 2];
      b[i + 2 * j] = (__m512)_mm512_unpacklo_pd(low, high);
      b[i + 2 * j + 1] = (__m512)_mm512_unpackhi_pd(low, high);
    }
  // b[4k + j] holds columns j, 4 + j, 8 + j and 12 + j of rows 4k to 4k + 3.
  for (int j = 0; j < 4; ++j) {
    __m512 p = _mm512_shuffle_f32x4(b[j], b[4 + j], 0x88);
    __m512 q = _mm512_shuffle_f32x4(b[j], b[4 + j], 0xdd);
    __m512 r = _mm512_shuffle_f32x4(b[8 + j], b[12 + j], 0x88);
    __m512 s = _mm512_shuffle_f32x4(b[8 + j], b[12 + j], 0xdd);
    x[j] = (Floats)_mm512_shuffle_f32x4(p, r, 0x88);
    x[8 + j] = (Floats)_mm512_shuffle_f32x4(p, r, 0xdd);
    x[4 + j] = (Floats)_mm512_shuffle_f32x4(q, s, 0x88);
    x[12 + j] = (Floats)_mm512_shuffle_f32x4(q, s, 0xdd);
  }
#elif defined(__AVX2__)
  __m256 a[8], b[8];
  for (int i = 0; i < 8; i += 2) {
    a[i] = _mm256_unpacklo_ps((__m256)x[i], (__m256)x[i + 1]);
    a[i + 1] = _mm256_unpackhi_ps((__m256)x[i], (__m256)x[i + 1]);
  }
  for (int i = 0; i < 8; i += 4)
    for (int j = 0; j < 2; ++j) {
      __m256d low = (__m256d)a[i + j], high = (__m256d)a[i + j + 2];
      b[i + 2 * j] = (__m256)_mm256_unpacklo_pd(low, high);
      b[i + 2 * j + 1] = (__m256)_mm256_unpackhi_pd(low, high);
    }
  for (int j = 0; j < 4; ++j) {
    x[j] = (Floats)_mm256_permute2f128_ps(b[j], b[4 + j], 0x20);
    x[4 + j] = (Floats)_mm256_permute2f128_ps(b[j], b[4 + j], 0x31);
  }
#else
  for (int i = 0; i < kWidth; ++i)
    for (int j = 0; j < i; ++j) {
      float swapped = x[i][j];
      x[i][j] = x[j][i];
      x[j][i] = swapped;
    }
#endif
}

}  // namespace

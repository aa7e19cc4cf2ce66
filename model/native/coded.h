// Attention over bfloat16 where the CPU multiplies whole numbers of 16 bits at twice the rate of
// floats, and no bfloat16: a unit is a pair of codes. What a code stands for is kept beside: for
// queries by row, for keys by position, for values by tile, and for weights by row and tile, for away
// from its largest score a row has many that are small. Sums have 32 bits, so codes have some twelve
// (docs/exactness.md has what that makes of logits).

#pragma once

#include "units.h"

namespace {

#if defined(__AVX512VNNI__) && !defined(__AVX512BF16__)

// The largest of what it has seen, in size: by bits, of which those of what is no finite number are
// the most.
struct LargestBits {
  Ints bits{};

  void take(Floats x) {
    Ints size = (Ints)x & 0x7fffffff;
    bits = size > bits ? size : bits;
  }

  // What a step of `most_code` is, in each lane; none where something was no number.
  Floats scales(float most_code) const {
    Floats none = splat(__builtin_nanf(""));
    return bits < 0x7f800000 ? (Floats)bits / most_code : none;
  }
};

struct CodedPair {
  static constexpr int kElements = 2;
  static constexpr bool kIsCoded = true;
  using Sum = Ints;
  static constexpr float kMostWeight = 4095;  // times the next one times a tile: less than 2^31
  static constexpr float kMostValue = 8191;

  // The largest of a tile's values.
  struct Largest {
    LargestBits seen;

    void take(const BFloat16* from, int64_t count) {
      for (int64_t i = 0; i < count; i += kWidth) seen.take(load_elements(from + i, count - i));
    }

    float scale(float most_code) const {
      return _mm512_reduce_max_epi32((__m512i)seen.bits) < 0x7f800000
                 ? largest((Floats)seen.bits) / most_code
                 : __builtin_nanf("");
    }
  };

  // Of queries and keys: the largest whose products' sum fits.
  static float most_code(int64_t head_size) {
    return float(min(32767, int64_t(__builtin_sqrtf(2147483000.f / head_size))));
  }

  static Ints rounded(Floats x) { return (Ints)_mm512_cvtps_epi32((__m512)x); }

  static Floats codes(Floats first, Floats second) {
    return (Floats)((rounded(first) & 0xffff) | rounded(second) << 16);
  }

  // Codes for as many floats or halves; what one stands for.
  template <class Q>
  static float put_codes(const Q* from, int64_t count, float* to) {
    LargestBits seen;
    for (int64_t i = 0; i < count; i += kWidth) seen.take(load_elements(from + i, count - i));
    float scale = Largest{seen}.scale(most_code(count)), inverse = inverse_of(scale);
    for (int64_t i = 0; i < count; i += kWidth)
      put_narrow(to + i / 2, load_elements(from + i, count - i) * inverse);
    return scale;
  }

  // Halves as they lie in memory.
  static Floats load(const BFloat16* from, int64_t n) {
    return (Floats)_mm512_maskz_loadu_epi16(n >= 32 ? ~0u : (1u << n) - 1, from);
  }

  // Pairs of halves become codes in place: of each lane, `depth` rows; what one stands for.
  static Floats code_lanes(float* lanes, int64_t stride, int64_t depth, int64_t head_size) {
    auto first = [](Floats pairs) { return (Floats)((Ints)pairs << 16); };
    auto second = [](Floats pairs) { return (Floats)((Ints)pairs & int32_t(0xffff0000)); };
    LargestBits seen;
    for (int64_t i = 0; i < depth; ++i) {
      Floats pairs = ::load(lanes + i * stride);
      seen.take(first(pairs));
      seen.take(second(pairs));
    }
    Floats scales = seen.scales(most_code(head_size));
    Floats inverse = scales > 1e-30f ? 1.f / scales : Floats{};
    for (int64_t i = 0; i < depth; ++i) {
      Floats pairs = ::load(lanes + i * stride);
      store(lanes + i * stride, codes(first(pairs) * inverse, second(pairs) * inverse));
    }
    return scales;
  }

  // Two positions' values, interleaved.
  static constexpr int64_t kValuesAtOnce = kWidth;
  static void pack_values(const BFloat16* const* rows, int64_t first, int64_t n, float inverse,
                          float* to) {
    store(to, codes(load_elements(rows[0] + first, n) * inverse,
                    load_elements(rows[1] + first, n) * inverse));
  }

  // Weights of 1 at most, and what their codes stand for, so that small ones are lost to no sum of
  // them that is divided by; what is no number stays none.
  static Floats store_weights(float* to, int64_t lane, Floats weights) {
    Ints coded = rounded(weights * kMostWeight);
    _mm256_storeu_si256((__m256i*)(to + lane / 2), _mm512_cvtepi32_epi16((__m512i)coded));
    return whole(coded) / kMostWeight + (weights - weights);
  }

  static Ints multiply_add(Ints sum, Floats x, float y) {
    return (Ints)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)x, (__m512i)_mm512_set1_ps(y));
  }

  static Floats whole(Ints sum) { return __builtin_convertvector(sum, Floats); }

 private:
  static void put_narrow(float* to, Floats x) {
    _mm256_storeu_si256((__m256i*)to, _mm512_cvtepi32_epi16((__m512i)rounded(x)));
  }
};

template <class T>
struct AttendedUnitOf : UnitOf<T> {};

template <>
struct AttendedUnitOf<BFloat16> {
  using Type = CodedPair;
};

#else

template <class T>
using AttendedUnitOf = UnitOf<T>;

#endif

template <class T>
using AttendedUnit = typename AttendedUnitOf<T>::Type;

}  // namespace

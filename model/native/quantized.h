// Weights of 4 or 8 bits times a few rows. Weights stay as they are; activations have 16 bits for
// this, with a scale for each group, so that products and their sums over a group are exact
// integers, and a pair of them costs what a float costs elsewhere. Sums over groups are float32.
//
// A lane is an output: nothing is added up across lanes, and scales are vectors as they lie.

#pragma once

#include "kernels.h"
#include "vectors.h"

namespace {

using splice::group_bytes;
using splice::Inputs;
using splice::kGroup;
using splice::kOutputs;
using splice::PackedLayer;
using splice::Quantized;
using splice::Unpacked;

constexpr int kVectors = kOutputs / kWidth;  // of a block's outputs
constexpr int64_t kSteps = kGroup / 4;       // of four inputs each

#if defined(__AVX512F__)
constexpr int kRowsAtOnce = 8;
#else
constexpr int kRowsAtOnce = 4;
#endif

// A lane of these is two neighbouring inputs of one output.
typedef int16_t Shorts __attribute__((vector_size(4 * kWidth)));
typedef uint8_t Bytes __attribute__((vector_size(2 * kWidth)));
typedef int8_t SignedBytes __attribute__((vector_size(2 * kWidth)));
typedef uint16_t Halves __attribute__((vector_size(2 * kWidth)));
typedef uint32_t Bits __attribute__((vector_size(4 * kWidth)));

template <class Vector>
inline Vector load_as(const uint8_t* from) {
  Vector x;
  __builtin_memcpy(&x, from, sizeof(x));
  return x;
}

// float16 to float32; scales are finite.
inline Floats load_halves(const uint8_t* from) {
#if defined(__AVX512F__)
  return (Floats)_mm512_cvtph_ps(load_as<__m256i>(from));
#elif defined(__F16C__)
  return (Floats)_mm256_cvtph_ps(load_as<__m128i>(from));
#else
  Bits half = __builtin_convertvector(load_as<Halves>(from), Bits);
  // The exponent's bias is 15 in the one and 127 in the other.
  Floats size = (Floats)((half & 0x7fff) << 13) * 0x1p112f;
  return (Floats)((Bits)size | (half & 0x8000) << 16);
#endif
}

// For each lane, sum + x[0] * y[0] + x[1] * y[1].
inline Ints add_products(Ints sum, Shorts x, Shorts y) {
#if defined(__AVX512VNNI__)
  return (Ints)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)x, (__m512i)y);
#elif defined(__AVX512F__)
  return sum + (Ints)_mm512_madd_epi16((__m512i)x, (__m512i)y);
#elif defined(__AVX2__)
  return sum + (Ints)_mm256_madd_epi16((__m256i)x, (__m256i)y);
#elif defined(__SSE2__)
  return sum + (Ints)_mm_madd_epi16((__m128i)x, (__m128i)y);
#else
  Ints high = ((Ints)x >> 16) * ((Ints)y >> 16);
  return sum + high + ((Ints)x << 16 >> 16) * ((Ints)y << 16 >> 16);
#endif
}

// A vector's weights for four inputs, the first two and the last two.
template <int BITS>
inline void load_weights(const uint8_t* step, int vector, Shorts (&pairs)[2]) {
  constexpr int64_t kHalf = sizeof(Bytes) * kVectors;
  if constexpr (BITS == 4) {
    Shorts both = __builtin_convertvector(load_as<Bytes>(step + vector * sizeof(Bytes)), Shorts);
    pairs[0] = both & 15;
    pairs[1] = both >> 4;
  } else {
    for (int i = 0; i < 2; ++i)
      pairs[i] = __builtin_convertvector(
          load_as<SignedBytes>(step + i * kHalf + vector * sizeof(Bytes)), Shorts);
  }
}

// What a group's codes stand for: code * scale + minimum, where there are minima.
template <int BITS>
struct Scales {
  Floats scale[kVectors], minimum[kVectors];

  explicit Scales(const uint8_t* group) {
    const uint8_t* from = group + kOutputs * kGroup * BITS / 8;
    for (int v = 0; v < kVectors; ++v) {
      scale[v] = load_halves(from + 2 * v * kWidth);
      if constexpr (BITS == 4) minimum[v] = load_halves(from + 2 * (kOutputs + v * kWidth));
    }
  }
};

inline Shorts both_of(const int16_t* from) {
  int32_t pair;
  __builtin_memcpy(&pair, from, sizeof(pair));
  return (Shorts)(pair + Ints{});
}

// One group's products, as integers, for R rows from `codes` on.
template <int BITS, int R>
inline void multiply_group(const uint8_t* group, const int16_t* codes, int64_t row_codes,
                           Ints (&sums)[R][kVectors]) {
  constexpr int64_t kStepBytes = kOutputs * 4 * BITS / 8;
  for (int64_t step = 0; step < kSteps; ++step) {
    Shorts pairs[kVectors][2];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) load_weights<BITS>(group + step * kStepBytes, v, pairs[v]);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        Shorts inputs = both_of(codes + r * row_codes + 4 * step + 2 * i);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v)
          sums[r][v] = add_products(sums[r][v], pairs[v][i], inputs);
      }
  }
}

template <class T>
void put_outputs(const PackedLayer& layer, int64_t row, int64_t block,
                 const Floats (&results)[kVectors]) {
  int64_t first = block * kOutputs, count = layer.num_outputs - first;
  const T* bias = layer.bias ? static_cast<const T*>(layer.bias) + first : nullptr;
  T* to = reinterpret_cast<T*>(layer.output) + row * layer.output_row + first;
  for (int64_t v = 0; v < kVectors && v * kWidth < count; ++v) {
    int64_t rest = count - v * kWidth;
    Floats x = results[v];
    if (bias) x += load_elements(bias + v * kWidth, rest);
    store_elements(to + v * kWidth, rest, x);
  }
}

// R rows times a block of outputs.
template <int BITS, int R>
void multiply_block(const PackedLayer& layer, const Quantized& x, int64_t row, int64_t block) {
  constexpr int64_t kBytes = group_bytes(BITS);
  const uint8_t* group = layer.weight + block * x.num_groups * kBytes;
  const int64_t row_codes = x.num_groups * kGroup;
  Floats totals[R][kVectors] = {};
  for (int64_t g = 0; g < x.num_groups; ++g, group += kBytes) {
    Ints sums[R][kVectors] = {};
    multiply_group<BITS, R>(group, x.codes + row * row_codes + g * kGroup, row_codes, sums);
    Scales<BITS> weights(group);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      float scale = x.scales[(row + r) * x.num_groups + g];
      float sum = x.sums[(row + r) * x.num_groups + g];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        totals[r][v] += __builtin_convertvector(sums[r][v], Floats) * (weights.scale[v] * scale);
        if constexpr (BITS == 4) totals[r][v] += weights.minimum[v] * sum;
      }
    }
  }
  for (int r = 0; r < R; ++r)
    x.is_half ? put_outputs<BFloat16>(layer, row + r, block, totals[r])
              : put_outputs<float>(layer, row + r, block, totals[r]);
}

// What is left of the rows by R and halves of it, so that few sizes are compiled.
template <int BITS, int R>
void multiply_rows(const PackedLayer& layer, const Quantized& x, int64_t row, int64_t block) {
  for (; row + R <= x.num_rows; row += R) multiply_block<BITS, R>(layer, x, row, block);
  if constexpr (R > 1) multiply_rows<BITS, R / 2>(layer, x, row, block);
}

// Blocks `begin` to `end` of all rows; a block's weights are still near for its next rows.
template <int BITS>
void multiply_quantized(const PackedLayer& layer, const Quantized& x, int64_t begin, int64_t end) {
  for (int64_t block = begin; block < end; ++block)
    multiply_rows<BITS, kRowsAtOnce>(layer, x, 0, block);
}

// One group's activations in 16 bits, `rest` of which exist; what isn't a number makes all of the
// group no number.
template <class T>
inline void quantize_group(const T* from, int64_t rest, int16_t* codes, float& scale, float& total_sum) {
  constexpr int kParts = kGroup / kWidth;
  typedef int16_t Codes __attribute__((vector_size(2 * kWidth)));
  Floats x[kParts], most{}, total{};
  Ints code_total{};
  for (int i = 0; i < kParts; ++i) {
    x[i] = load_elements(from + i * kWidth, rest - i * kWidth);
    most = larger(most, x[i] < 0.f ? -x[i] : x[i]);
    total += x[i];
  }
  float size = largest(most);
  // So small a number that its inverse is none counts as zero.
  float inverse = size > 1e-30f ? 32767 / size : 0;
  for (int i = 0; i < kParts; ++i) {
    Ints rounded = (Ints)(x[i] * inverse + 12582912.f) - 0x4b400000;  // 1.5 * 2^23: rounds
    code_total += rounded;
    Codes part = __builtin_convertvector(rounded, Codes);
    __builtin_memcpy(codes + i * kWidth, &part, sizeof(part));
  }
  float any = sum(total);
  scale = any == any ? size / 32767 : any;
  // Of what the codes stand for, so that minima weigh the same numbers as codes do.
  total_sum = sum(__builtin_convertvector(code_total, Floats)) * scale;
}

template <class T>
void quantize_inputs(const Inputs& call) {
  int64_t num_groups = (call.num_inputs + kGroup - 1) / kGroup;
  for (int64_t row = 0; row < call.num_rows; ++row) {
    const T* from = static_cast<const T*>(call.from) + row * call.num_inputs;
    for (int64_t g = 0; g < num_groups; ++g) {
      int64_t i = row * num_groups + g, rest = call.num_inputs - g * kGroup;
      quantize_group(from + g * kGroup, rest, call.codes + i * kGroup, call.scales[i], call.sums[i]);
    }
  }
}

// Four inputs' weights to four rows of T, for a block of outputs that is whole.
template <int BITS, class T>
inline void unpack_step(const uint8_t* step, const Scales<BITS>& weights, T* to, int64_t stride) {
  for (int v = 0; v < kVectors; ++v) {
    Shorts pairs[2];
    load_weights<BITS>(step, v, pairs);
    for (int i = 0; i < 4; ++i) {
      Ints codes = i % 2 ? (Ints)pairs[i / 2] >> 16 : (Ints)pairs[i / 2] << 16 >> 16;
      Floats x = __builtin_convertvector(codes, Floats) * weights.scale[v];
      if constexpr (BITS == 4) x += weights.minimum[v];
      store_rounded(to + i * stride + v * kWidth, x);
    }
  }
}

// Blocks `begin` to `end`. Rows of `to` are long enough for whole blocks.
template <int BITS, class T>
void unpack(const Unpacked& call, int64_t begin, int64_t end) {
  constexpr int64_t kBytes = group_bytes(BITS), kStepBytes = kOutputs * 4 * BITS / 8;
  for (int64_t block = begin; block < end; ++block)
    for (int64_t g = 0; g < call.num_groups; ++g) {
      const uint8_t* group = call.weight + (block * call.num_groups + g) * kBytes;
      Scales<BITS> weights(group);
      T* to = static_cast<T*>(call.to) + g * kGroup * call.num_outputs + block * kOutputs;
      for (int64_t step = 0; step < kSteps; ++step)
        unpack_step<BITS, T>(group + step * kStepBytes, weights, to + 4 * step * call.num_outputs,
                             call.num_outputs);
    }
}

}  // namespace

// Weights of 4 or 8 bits times many rows, as a prompt has, where the CPU multiplies bytes: that is
// twice as fast as anything wider. Activations have 8 bits here, with a scale and a sum for each
// group: the arithmetic of ggml's products of Q4_1 and Q8_0 with Q8_1 (`ggml_vec_dot_q4_1_q8_1`).
// A group that has a much larger activation than is usual in its row, for which 8 bits would blur
// the others, is multiplied twice: what its codes miss is codes once more.
//
// AVX-512 VNNI adds products of bytes up in 32 bits. Elsewhere the sums have 16, which hold a group's
// products with weights of 4 bits; those of 8 are no faster than float32 there, and aren't taken.
//
// Weights are made bytes once for all rows, some blocks at a time, and stay in the nearest caches;
// a tile of rows takes as many sums as there are registers for.

#pragma once

#include "kernels.h"
#include "quantized.h"

namespace {

using splice::kTileRows;
using splice::PackedLayer;
using splice::strip_bytes;
using splice::tile_parts;
using splice::Tiles;

#if defined(__AVX2__)

#if defined(__AVX512VNNI__)
constexpr bool kHasTiles[2] = {true, true};  // for 4 and 8 bits
#else
constexpr bool kHasTiles[2] = {true, false};
#endif

// What a code may stand for at most, in root mean squares of the row; a coarser group is refined.
constexpr float kCoarse = 0.05f;
constexpr float kMostCode = 127;
constexpr float kFiner = 254;  // codes miss half a step at most
constexpr int kPieces = kGroup / kWidth;
constexpr int kTileVectors = 2;  // of outputs that are multiplied together

// One tile's rows while they are made ready.
template <class T>
struct Tile {
  typedef int8_t Codes __attribute__((vector_size(kWidth)));

  const Tiles& call;
  int64_t first_row, first_part;

  Tile(const Tiles& tiles, int64_t index)
      : call(tiles), first_row(index * kTileRows), first_part(index * tile_parts(tiles.num_groups)) {}

  // A group's activations; rows that don't exist are zeros.
  void load(int64_t row, int64_t group, Floats (&x)[kPieces]) const {
    int64_t first = group * kGroup;
    const T* from = static_cast<const T*>(call.from) + (first_row + row) * call.num_inputs + first;
    for (int i = 0; i < kPieces; ++i)
      x[i] = first_row + row < call.num_rows
                 ? load_elements(from + i * kWidth, call.num_inputs - first - i * kWidth)
                 : Floats{};
  }

  float* scale_of(int64_t part) const { return call.scales + (first_part + part) * kTileRows; }

  // The nearest codes for `x`, which becomes what they miss, in steps.
  void put(int64_t part, int64_t row, Floats (&x)[kPieces], float inverse, float scale) const {
    int64_t place = (first_part + part) * kTileRows + row;
    Ints total{};
    for (int i = 0; i < kPieces; ++i) {
      Floats steps = x[i] * inverse;
      Floats shifted = steps + 12582912.f;  // 1.5 * 2^23: rounds
      Ints rounded = (Ints)shifted - 0x4b400000;
      x[i] = steps - (shifted - 12582912.f);
      total += rounded;
      Codes bytes = __builtin_convertvector(rounded, Codes);
      __builtin_memcpy(call.codes + place * kGroup + i * kWidth, &bytes, sizeof(bytes));
    }
    call.scales[place] = scale;
    // Of what the codes stand for, so that minima weigh the same numbers as codes do.
    call.sums[place] = sum(__builtin_convertvector(total, Floats)) * scale;
  }
};

// All groups of a row. What isn't a number makes all of its group none. The coarsest step is
// returned that needs no refining.
template <class T>
inline float fill_row(const Tile<T>& tile, int64_t row) {
  Floats squares{};
  for (int64_t g = 0; g < tile.call.num_groups; ++g) {
    Floats x[kPieces], most{}, none{};
    tile.load(row, g, x);
    for (int i = 0; i < kPieces; ++i) {
      most = larger(most, x[i] < 0.f ? -x[i] : x[i]);
      squares += x[i] * x[i];
      none += x[i] * 0.f;
    }
    float scale = largest(most) / kMostCode + sum(none);
    tile.put(g, row, x, inverse_of(scale), scale);
  }
  return kCoarse * __builtin_sqrtf(sum(squares) / tile.call.num_inputs);
}

// The codes of a tile: of all groups, and behind them, of those that are refined, what is missed.
// Only of the rows that need it: a row's numbers don't depend on its neighbours.
template <class T>
void fill_tile(const Tiles& call, int64_t index) {
  Tile<T> tile(call, index);
  int32_t* groups = call.groups + tile.first_part;
  float coarsest[kTileRows];
  for (int64_t row = 0; row < kTileRows; ++row) coarsest[row] = fill_row(tile, row);
  int64_t num_parts = call.num_groups;
  for (int64_t g = 0; g < call.num_groups; ++g) {
    const float* scales = tile.scale_of(g);
    bool is_coarse = false;
    for (int64_t row = 0; row < kTileRows; ++row) is_coarse |= scales[row] > coarsest[row];
    groups[g] = int32_t(g);
    if (!is_coarse) continue;
    for (int64_t row = 0; row < kTileRows; ++row) {
      Floats x[kPieces] = {};
      if (scales[row] > coarsest[row]) {
        tile.load(row, g, x);
        tile.put(g, row, x, inverse_of(scales[row]), scales[row]);  // as it was
      }
      tile.put(num_parts, row, x, kFiner, scales[row] / kFiner);
    }
    groups[num_parts++] = int32_t(g);
  }
  call.num_parts[index] = int32_t(num_parts);
}

// A group's weights of N vectors of outputs: a lane is four neighbouring inputs of one output. Codes
// with a sign are 128 more than they are, which minima take back.
template <int N>
struct Strip {
  Ints codes[kSteps][N];
  Floats scale[N], minimum[N];
};

template <int BITS>
inline Ints bytes_of(const uint8_t* step) {
  auto wide = [](const uint8_t* pairs) {
    return __builtin_convertvector(load_as<Halves>(pairs), Ints);
  };
  if constexpr (BITS == 4) {
    Ints both = wide(step);  // the first two inputs' in the low halves
    return (both | both << 12) & 0x0f0f0f0f;
  } else {
    return (wide(step) | wide(step + 2 * kOutputs) << 16) ^ int32_t(0x80808080);
  }
}

template <int BITS, int N>
void fill_strip(const PackedLayer& layer, int64_t num_groups, int64_t vector, Strip<N>* to) {
  constexpr int64_t kBytes = group_bytes(BITS), kStepBytes = kOutputs * 4 * BITS / 8;
  for (int n = 0; n < N; ++n) {
    int64_t block = (vector + n) / kVectors, inside = (vector + n) % kVectors;
    for (int64_t g = 0; g < num_groups; ++g) {
      const uint8_t* group = layer.weight + (block * num_groups + g) * kBytes;
      for (int64_t step = 0; step < kSteps; ++step)
        to[g].codes[step][n] = bytes_of<BITS>(group + step * kStepBytes + 2 * inside * kWidth);
      Scales<BITS> weights(group);
      to[g].scale[n] = weights.scale[inside];
      to[g].minimum[n] = BITS == 4 ? weights.minimum[inside] : weights.scale[inside] * -128.f;
    }
  }
}

inline Ints four_of(const int8_t* from) {
  int32_t four;
  __builtin_memcpy(&four, from, sizeof(four));
  return four + Ints{};
}

#if defined(__AVX512VNNI__)

typedef Ints Sums;  // of a group's products
constexpr int kUnrolled = kSteps;

inline Sums add_bytes(Sums sum, Ints weights, Ints inputs) {
  return (Sums)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)weights, (__m512i)inputs);
}

inline Ints whole_of(Sums sum) { return sum; }

#else

typedef Shorts Sums;
constexpr int kUnrolled = 1;  // for more the compiler would want more registers than there are

// At most 2 * 15 * 128 more, and that kSteps times.
inline Sums add_bytes(Sums sum, Ints weights, Ints inputs) {
#if defined(__AVX512F__)
  return sum + (Sums)_mm512_maddubs_epi16((__m512i)weights, (__m512i)inputs);
#else
  return sum + (Sums)_mm256_maddubs_epi16((__m256i)weights, (__m256i)inputs);
#endif
}

inline Ints whole_of(Sums sum) { return add_products(Ints{}, sum, Sums{} + 1); }

#endif

// One part of a tile's rows: codes [kTileRows, kGroup], scales and sums [kTileRows].
template <int N>
inline void multiply_part(const Strip<N>& strip, const int8_t* codes, const float* scales,
                          const float* sums, Floats (&totals)[kTileRows][N]) {
  Sums products[kTileRows][N] = {};
#pragma GCC unroll kUnrolled
  for (int64_t step = 0; step < kSteps; ++step)
#pragma GCC unroll 8
    for (int r = 0; r < kTileRows; ++r) {
      Ints inputs = four_of(codes + r * kGroup + 4 * step);
#pragma GCC unroll 2
      for (int n = 0; n < N; ++n)
        products[r][n] = add_bytes(products[r][n], strip.codes[step][n], inputs);
    }
#pragma GCC unroll 8
  for (int r = 0; r < kTileRows; ++r)
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) {
      Floats whole = __builtin_convertvector(whole_of(products[r][n]), Floats);
      totals[r][n] += whole * scales[r] * strip.scale[n];
      totals[r][n] += strip.minimum[n] * sums[r];
    }
}

template <class T, int N>
inline void put_tile(const PackedLayer& layer, int64_t row, int64_t num_rows, int64_t vector,
                     const Floats (&totals)[kTileRows][N]) {
  for (int n = 0; n < N; ++n) {
    int64_t first = (vector + n) * kWidth, count = layer.num_outputs - first;
    Floats bias{};
    if (layer.bias) bias = load_elements(static_cast<const T*>(layer.bias) + first, count);
    T* to = reinterpret_cast<T*>(layer.output) + row * layer.output_row + first;
    for (int64_t r = 0; r < num_rows; ++r)
      store_elements(to + r * layer.output_row, count, totals[r][n] + bias);
  }
}

// All parts of a tile's rows.
template <int N>
SPLICE_APART void multiply_tile(const Strip<N>* strips, const Tiles& x, int64_t tile,
                                Floats (&results)[kTileRows][N]) {
  Floats totals[kTileRows][N] = {};
  int64_t first = tile * tile_parts(x.num_groups);
  for (int64_t part = first; part < first + x.num_parts[tile]; ++part) {
    int64_t place = part * kTileRows;
    multiply_part<N>(strips[x.groups[part]], x.codes + place * kGroup, x.scales + place,
                     x.sums + place, totals);
  }
  for (int r = 0; r < kTileRows; ++r)
    for (int n = 0; n < N; ++n) results[r][n] = totals[r][n];
}

template <int BITS, class T, int N>
void multiply_strip(const PackedLayer& layer, const Tiles& x, int64_t vector, void* scratch) {
  static_assert(sizeof(Strip<kTileVectors>) <= strip_bytes(1));
  auto* strips = static_cast<Strip<N>*>(scratch);
  fill_strip<BITS, N>(layer, x.num_groups, vector, strips);
  for (int64_t tile = 0; tile < x.num_tiles(); ++tile) {
    Floats totals[kTileRows][N];
    multiply_tile(strips, x, tile, totals);
    int64_t row = tile * kTileRows;
    put_tile<T, N>(layer, row, min(kTileRows, x.num_rows - row), vector, totals);
  }
}

// Blocks `begin` to `end` of all rows.
template <int BITS, class T>
void multiply_tiles(const PackedLayer& layer, const Tiles& x, int64_t begin, int64_t end,
                    void* scratch) {
  int64_t vector = begin * kVectors, behind = end * kVectors;
  for (; vector + kTileVectors <= behind; vector += kTileVectors)
    multiply_strip<BITS, T, kTileVectors>(layer, x, vector, scratch);
  for (; vector < behind; ++vector) multiply_strip<BITS, T, 1>(layer, x, vector, scratch);
}

#else

constexpr bool kHasTiles[2] = {false, false};

template <class T>
void fill_tile(const Tiles&, int64_t) {}

template <int BITS, class T>
void multiply_tiles(const PackedLayer&, const Tiles&, int64_t, int64_t, void*) {}

#endif

}  // namespace

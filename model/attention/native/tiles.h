// Weights of 4 or 8 bits times many rows, as a prompt has, where the CPU multiplies bytes: that is
// twice as fast as anything wider. Activations have 8 bits here, with a scale and a sum for each
// group: the arithmetic of ggml's products of Q4_1 and Q8_0 with Q8_1 (`ggml_vec_dot_q4_1_q8_1`).
// A group that has a much larger activation than is usual in its row, for which 8 bits would blur
// the others, is multiplied twice: what its codes miss is codes once more.
//
// Weights are made bytes once for all rows, some blocks at a time, and stay in the nearest caches;
// a tile of rows takes as many sums as there are registers for.

#pragma once

#include "kernels.h"
#include "quantized.h"

namespace {

using splice::ByteWeights;
using splice::kTileBlocks;
using splice::kTileRows;
using splice::tile_parts;
using splice::Tiles;

#if defined(__AVX512VNNI__) && defined(__AVX512BF16__)

constexpr bool kHasTiles = true;

// What a code may stand for at most, in root mean squares of the row; a coarser group is refined.
constexpr float kCoarse = 0.035f;
constexpr float kMostCode = 127;
constexpr float kFiner = 254;  // codes miss half a step at most
constexpr int kPieces = kGroup / kWidth;

// One tile's rows while they are made ready.
template <class T>
struct Tile {
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
      _mm_storeu_si128((__m128i*)(call.codes + place * kGroup + i * kWidth),
                       _mm512_cvtepi32_epi8((__m512i)rounded));
    }
    call.scales[place] = scale;
    // Of what the codes stand for, so that minima weigh the same numbers as codes do.
    call.sums[place] = _mm512_reduce_add_epi32((__m512i)total) * scale;
  }
};

// So small a number that its inverse is none counts as zero; so does what isn't one.
inline float inverse_of(float scale) { return scale > 1e-30f ? 1 / scale : 0; }

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

// A group's weights of V blocks: a lane is four neighbouring inputs of one output. Codes with a
// sign are 128 more than they are, which minima take back.
template <int V>
struct Strip {
  Ints codes[kSteps][V];
  Floats scale[V], minimum[V];
};

template <int BITS>
inline Ints bytes_of(const uint8_t* step) {
  auto wide = [](const uint8_t* pairs) {
    return (Ints)_mm512_cvtepu16_epi32(load_as<__m256i>(pairs));
  };
  if constexpr (BITS == 4) {
    Ints both = wide(step);  // the first two inputs' in the low halves
    return (both | both << 12) & 0x0f0f0f0f;
  } else {
    return (wide(step) | wide(step + 2 * kOutputs) << 16) ^ int32_t(0x80808080);
  }
}

template <int BITS, int V>
void fill_strip(const ByteWeights& call, int64_t num_groups, int64_t block, Strip<V>* to) {
  constexpr int64_t kBytes = group_bytes(BITS), kStepBytes = kOutputs * 4 * BITS / 8;
  for (int v = 0; v < V; ++v)
    for (int64_t g = 0; g < num_groups; ++g) {
      const uint8_t* group = call.weight + ((block + v) * num_groups + g) * kBytes;
      for (int64_t step = 0; step < kSteps; ++step)
        to[g].codes[step][v] = bytes_of<BITS>(group + step * kStepBytes);
      Scales<BITS> weights(group);
      to[g].scale[v] = weights.scale[0];
      to[g].minimum[v] = BITS == 4 ? weights.minimum[0] : weights.scale[0] * -128.f;
    }
}

// One part of a tile's rows: codes [kTileRows, kGroup], scales and sums [kTileRows].
template <int V>
inline void multiply_part(const Strip<V>& strip, const int8_t* codes, const float* scales,
                          const float* sums, Floats (&totals)[kTileRows][V]) {
  Ints products[kTileRows][V] = {};
#pragma GCC unroll 8
  for (int64_t step = 0; step < kSteps; ++step)
#pragma GCC unroll 4
    for (int r = 0; r < kTileRows; ++r) {
      int32_t four;
      __builtin_memcpy(&four, codes + r * kGroup + 4 * step, sizeof(four));
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v)
        products[r][v] = (Ints)_mm512_dpbusd_epi32((__m512i)products[r][v],
                                                   (__m512i)strip.codes[step][v],
                                                   _mm512_set1_epi32(four));
    }
#pragma GCC unroll 4
  for (int r = 0; r < kTileRows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) {
      totals[r][v] += __builtin_convertvector(products[r][v], Floats) * scales[r] * strip.scale[v];
      totals[r][v] += strip.minimum[v] * sums[r];
    }
}

inline void put_vector(float* to, __mmask16 exist, Floats x) {
  _mm512_mask_storeu_ps(to, exist, (__m512)x);
}
inline void put_vector(BFloat16* to, __mmask16 exist, Floats x) {
  _mm256_mask_storeu_epi16(to, exist, (__m256i)_mm512_cvtneps_pbh((__m512)x));
}

template <class T, int V>
inline void put_tile(const ByteWeights& call, int64_t row, int64_t num_rows, int64_t block,
                     const Floats (&totals)[kTileRows][V]) {
  for (int v = 0; v < V; ++v) {
    int64_t first = (block + v) * kOutputs, count = min(kOutputs, call.num_outputs - first);
    Floats bias{};
    if (call.bias) bias = load_elements(static_cast<const T*>(call.bias) + first, count);
    T* to = static_cast<T*>(call.output) + row * call.num_outputs + first;
    for (int64_t r = 0; r < num_rows; ++r)
      put_vector(to + r * call.num_outputs, __mmask16((1u << count) - 1), totals[r][v] + bias);
  }
}

template <int BITS, class T, int V>
void multiply_strip(const ByteWeights& call, const Tiles& x, int64_t block, void* scratch) {
  auto* strips = static_cast<Strip<V>*>(scratch);
  fill_strip<BITS, V>(call, x.num_groups, block, strips);
  for (int64_t tile = 0; tile < x.num_tiles(); ++tile) {
    int64_t first = tile * tile_parts(x.num_groups);
    Floats totals[kTileRows][V] = {};
    for (int64_t part = first; part < first + x.num_parts[tile]; ++part) {
      int64_t place = part * kTileRows;
      multiply_part<V>(strips[x.groups[part]], x.codes + place * kGroup, x.scales + place,
                       x.sums + place, totals);
    }
    int64_t row = tile * kTileRows;
    put_tile<T, V>(call, row, min(kTileRows, x.num_rows - row), block, totals);
  }
}

// Blocks `begin` to `end`, kTileBlocks or fewer, of all rows.
template <int BITS, class T>
void multiply_tiles(const ByteWeights& call, const Tiles& x, int64_t begin, int64_t end,
                    void* scratch) {
  int64_t block = begin;
  for (; block + kTileBlocks <= end; block += kTileBlocks)
    multiply_strip<BITS, T, kTileBlocks>(call, x, block, scratch);
  for (; block < end; ++block) multiply_strip<BITS, T, 1>(call, x, block, scratch);
}

#else

constexpr bool kHasTiles = false;

template <class T>
void fill_tile(const Tiles&, int64_t) {}

template <int BITS, class T>
void multiply_tiles(const ByteWeights&, const Tiles&, int64_t, int64_t, void*) {}

#endif

}  // namespace
